"""Which anchor a partition has last: from the committed lines of the audit topic, and from no others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from tests.unit.coordinators.world import TurnedClock

from strandline.broker.audit.audit_topic import AuditTopic
from strandline.codec.columns import Record, encode_batch
from strandline.codec.messages.find_anchors_request import ChainedPartition, FindAnchorsRequest
from strandline.codec.messages.find_anchors_response import FindAnchorsResponse
from strandline.codec.record_batch import HEADER, LEADER_FIELDS
from strandline.errors import DiskFailed, ErrorCode, StrandlineError
from strandline.security.audit.audit_event import CHANGE, SUCCESS, AuditEvent, CountedEvent, audit_line
from strandline.security.audit.chain import Anchor, anchor_event

LEDGER, OTHER = UUID(int=1), UUID(int=2)


def line(event: AuditEvent) -> bytes:
    return audit_line(CountedEvent(event, 1, 5, 5), node_id=1, line_id="1-5-0")


def anchor(topic_id: UUID, offset: int, *, begins: bool = False) -> bytes:
    return line(anchor_event(Anchor(topic_id, 0, offset, bytes([offset]) * 32, begins), "ledger", 1))


class Partition:
    """The audit topic on its leader: a batch for each line."""

    is_leader = True
    epoch_start_offset = 0
    log_start_offset = 0

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.high_watermark = 0
        self.failure: StrandlineError | None = None
        self.log: Any = self
        self.reads: list[int] = []

    def append(self, *lines: bytes, is_committed: bool = True) -> None:
        for each in lines:
            batch = bytearray(encode_batch([Record(timestamp_ms=5, key=b"k", value=each)]))
            LEADER_FIELDS.pack_into(batch, 0, len(self.batches), HEADER.unpack_from(batch)[1], 0)
            self.batches.append(bytes(batch))
        if is_committed:
            self.high_watermark = len(self.batches)

    def read(self, offset: int, *, size_bytes_max: int, limit_offset: int) -> Any:
        if self.failure is not None:
            raise self.failure
        assert offset >= self.log_start_offset
        self.reads.append(offset)
        data = b"".join(self.batches[offset : min(offset + 2, limit_offset)])
        return SimpleNamespace(read=lambda: data, release=lambda: None)


class Stage:
    def __init__(self) -> None:
        self.partition = Partition()
        services: Any = SimpleNamespace(runtime=TurnedClock(), partition=lambda topic, index: self.partition)
        self.topic = AuditTopic(services)

    def ask(self) -> FindAnchorsResponse:
        answers: list[FindAnchorsResponse] = []
        asked = [ChainedPartition(LEDGER, 0), ChainedPartition(OTHER, 0), ChainedPartition(LEDGER, 7)]
        self.topic.find_anchors(FindAnchorsRequest(partitions=asked), answers.append)
        (answer,) = answers
        return answer

    def found(self) -> dict[UUID, int]:
        answer = self.ask()
        assert answer.error_code == ErrorCode.NONE
        assert all(each.hash == bytes([each.offset]) * 32 for each in answer.anchors)
        return {each.topic_id: each.offset for each in answer.anchors}


def test_the_last_committed_anchor_of_each_partition() -> None:
    stage = Stage()
    assert stage.found() == {}
    change = line(AuditEvent(CHANGE, SUCCESS, resource='"type":"anchor"'))
    stage.partition.append(
        anchor(LEDGER, 0, begins=True), change, anchor(OTHER, 4), b'{"type":"anchor"', anchor(LEDGER, 9)
    )
    assert stage.found() == {LEDGER: 9, OTHER: 4}
    stage.partition.append(anchor(LEDGER, 12), is_committed=False)
    assert stage.found() == {LEDGER: 9, OTHER: 4}
    stage.partition.reads.clear()
    stage.partition.append(anchor(OTHER, 5))
    assert stage.found() == {LEDGER: 12, OTHER: 5}
    assert stage.partition.reads == [5], "only what is new is read"


def test_a_late_line_does_not_take_a_chain_back_and_a_beginning_does() -> None:
    stage = Stage()
    stage.partition.append(anchor(LEDGER, 9), anchor(LEDGER, 7))
    assert stage.found() == {LEDGER: 9}
    stage.partition.append(anchor(LEDGER, 3, begins=True))
    assert stage.found() == {LEDGER: 3}


def test_a_leader_that_does_not_know_what_is_committed_finds_nothing() -> None:
    stage = Stage()
    stage.partition.append(anchor(LEDGER, 9))
    stage.partition.high_watermark, stage.partition.epoch_start_offset = 0, 1
    assert stage.ask().error_code == ErrorCode.LEADER_NOT_AVAILABLE
    stage.partition.high_watermark = 1
    assert stage.found() == {LEDGER: 9}
    stage.partition.append(anchor(LEDGER, 10))
    stage.partition.failure = DiskFailed("broken")
    assert stage.ask().error_code == ErrorCode.KAFKA_STORAGE_ERROR
    stage.partition.is_leader = False
    assert stage.ask().error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_deleted_lines_are_passed_over() -> None:
    stage = Stage()
    stage.partition.append(anchor(LEDGER, 9), anchor(OTHER, 4))
    stage.partition.log_start_offset = 1
    assert stage.found() == {OTHER: 4}
    # The topic was deleted and made again.
    stage.partition = Partition()
    assert stage.found() == {}
