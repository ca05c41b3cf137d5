"""What is committed becomes the image, in order and never sooner."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.handlers.node_of_one import SlowRuntime
from tests.unit.log.engine import NOON_MS, UnsyncedDisk, abandon, open_log
from tests.unit.log.manual_runtime import ManualRuntime

from strandline.broker.kraft.metadata_loader import MetadataLoader, Write
from strandline.codec.columns import Record, encode_batch
from strandline.codec.internal_records import encode_metadata_record
from strandline.codec.messages.partition_record import PartitionRecord
from strandline.codec.messages.remove_topic_record import RemoveTopicRecord
from strandline.codec.messages.topic_record import TopicRecord
from strandline.codec.record_batch import parse_header
from strandline.errors import CorruptLog, StrandlineError
from strandline.log.partition_log import PartitionLog
from strandline.log.truncation import truncate_to
from strandline.quorum.image.cluster_image import fold


class Folding:
    def __init__(self, path: Path, runtime: ManualRuntime | None = None) -> None:
        self.runtime = runtime or ManualRuntime()
        self.log: PartitionLog = open_log(path / "__cluster_metadata-0", disk=UnsyncedDisk())
        self.fold = MetadataLoader(self.log, self.runtime)  # type: ignore[arg-type]  # as much of one as is asked
        self.applied: list[int] = []
        self.fold.on_applied = self._on_applied

    def _on_applied(self, records: list[Any], then: Callable[[], object]) -> None:
        self.applied.append(len(records))
        then()

    def append(self, records: list[Any], epoch: int = 1) -> int:
        values = [Record(timestamp_ms=NOON_MS, value=encode_metadata_record(record)) for record in records]
        batch = bytearray(encode_batch(values))
        return self.log.append(batch, parse_header(batch), leader_epoch=epoch, now_ms=NOON_MS)

    @property
    def topics(self) -> list[str]:
        return sorted(self.fold.image.topics)


@pytest.fixture
def folding(tmp_path: Path) -> Any:
    folding = Folding(tmp_path)
    yield folding
    abandon(folding.log)


def topic(number: int) -> TopicRecord:
    return TopicRecord(name=f"topic-{number}", topic_id=uuid.UUID(int=number + 1))


def test_only_what_is_committed(folding: Folding) -> None:
    for number in range(4):
        folding.append([topic(number)])
    folding.fold.commit(2)
    assert folding.topics == ["topic-0", "topic-1"]
    folding.fold.commit(4)
    assert len(folding.topics) == 4


def test_what_was_cut_off_is_not_remembered(folding: Folding) -> None:
    for number in range(4):
        folding.append([topic(number)])
    folding.fold.commit(2)
    truncate_to(folding.log, 2)
    folding.append([topic(7)], epoch=2)
    folding.append([topic(8)], epoch=2)
    folding.fold.commit(4)
    assert folding.topics == ["topic-0", "topic-1", "topic-7", "topic-8"]


def test_a_batch_is_folded_as_a_whole_and_decoded_in_shares(tmp_path: Path) -> None:
    folding = Folding(tmp_path, SlowRuntime())
    made = topic(0)
    partitions = [
        PartitionRecord(partition_id=index, topic_id=made.topic_id, replicas=[1], isr=[1], leader=1)
        for index in range(3000)
    ]
    folding.append([made, *partitions])
    folding.fold.commit(3001)
    turns = 0
    while folding.fold.folded_offset < 3001:
        assert folding.topics == [], "nobody sees half a topic"
        folding.runtime.turn()
        turns += 1
    assert turns > 3
    assert folding.applied == [3001]
    abandon(folding.log)


def test_an_own_write_is_made_ready_in_shares_and_folded_as_a_whole(tmp_path: Path) -> None:
    folding = Folding(tmp_path, SlowRuntime())
    told: list[BaseException | None] = []
    made = topic(0)
    records: list[Any] = [made]
    for index in range(3000):
        records.append(PartitionRecord(partition_id=index, topic_id=made.topic_id, replicas=[1], isr=[1], leader=1))
    folding.append(records)
    folding.fold.writes.append(Write(0, 3001, records, told.append, 100, NOON_MS))
    folding.fold.commit(3001)
    turns = 0
    while not told:
        assert folding.topics == [], "nobody sees half a topic"
        folding.runtime.turn()
        turns += 1
    assert turns > 3
    assert folding.fold.image == fold(records), "as if the records had been applied one by one"
    abandon(folding.log)


def test_a_snapshot_that_comes_while_a_batch_is_made_ready_takes_its_place(tmp_path: Path) -> None:
    folding = Folding(tmp_path, SlowRuntime())
    made = topic(0)
    partitions = [
        PartitionRecord(partition_id=index, topic_id=made.topic_id, replicas=[1], isr=[1], leader=1)
        for index in range(3000)
    ]
    folding.append([made, *partitions])
    folding.append([topic(1)])
    folding.fold.commit(3002)
    folding.runtime.turn()
    assert folding.topics == []
    snapshot = fold([made, *partitions])
    folding.fold.replace(snapshot, 3001, NOON_MS)
    while folding.fold.folded_offset < 3002:
        folding.runtime.turn()
    assert folding.fold.image == fold([made, *partitions, topic(1)])
    abandon(folding.log)


def test_own_writes_are_not_read_back(folding: Folding) -> None:
    told: list[BaseException | None] = []
    record = topic(1)
    folding.append([topic(0)])
    folding.append([record])
    folding.fold.writes.append(Write(1, 2, [record], told.append, 100, NOON_MS))
    folding.fold.writes.append(Write(2, 2, [], told.append))
    folding.fold.commit(1)
    assert told == []
    folding.fold.commit(2)
    assert told == [None, None]
    assert folding.topics == ["topic-0", "topic-1"]


def test_writes_that_are_committed_are_told_so_when_the_lead_is_lost(tmp_path: Path) -> None:
    folding = Folding(tmp_path, SlowRuntime())
    told: list[tuple[int, BaseException | None]] = []
    records = [topic(number) for number in range(30)]
    for number, record in enumerate(records):
        folding.append([record])
        folding.fold.writes.append(
            Write(number, number + 1, [record], lambda error, number=number: told.append((number, error)))  # type: ignore[misc]
        )
    folding.fold.commit(20)
    assert folding.fold.folded_offset < 20
    lost = StrandlineError("lost")
    folding.fold.fail_writes(lost)
    assert {number for number, error in told if error is lost} == set(range(20, 30))
    folding.runtime.settle()
    assert [number for number, error in told if error is None] == list(range(20))
    abandon(folding.log)


def test_when_the_log_fails_what_is_committed_is_still_folded(folding: Folding) -> None:
    told: list[BaseException | None] = []
    for number in range(2):
        folding.append([topic(number)])
        folding.fold.writes.append(Write(number, number + 1, [topic(number)], told.append))
    folding.fold.committed_offset = 1
    failure = CorruptLog("the disk is gone")
    folding.log.fail(failure)
    folding.fold.on_log_failed(failure)
    assert told == [None, failure]
    assert folding.topics == ["topic-0"]


def test_a_record_that_nobody_understands_stops_the_fold(folding: Folding) -> None:
    errors: list[StrandlineError] = []
    folding.fold.on_error = errors.append
    batch = bytearray(encode_batch([Record(timestamp_ms=NOON_MS, value=b"\x01\xfe\x01\x00")]))
    folding.append([topic(0)])
    folding.log.append(batch, parse_header(batch), leader_epoch=1, now_ms=NOON_MS)
    folding.append([topic(1)])
    folding.fold.commit(3)
    assert len(errors) == 1
    assert folding.topics == ["topic-0"]


def test_removed_topics_are_known_until_nobody_wants_them(folding: Folding) -> None:
    folding.append([topic(0), topic(1)])
    folding.append([RemoveTopicRecord(topic_id=topic(0).topic_id)])
    folding.fold.commit(3)
    assert folding.fold.removed_topic_ids == {topic(0).topic_id}
    folding.fold.keeps_removed = False
    folding.append([RemoveTopicRecord(topic_id=topic(1).topic_id)])
    folding.fold.commit(4)
    assert folding.fold.removed_topic_ids == {topic(0).topic_id}
