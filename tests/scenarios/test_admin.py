"""Administration of a real node: partitions added, records deleted and gone for good, epochs, sizes, producers."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.hostile.batches import batch, produce
from tests.hostile.peer import Peer
from tests.hostile.process import until

from strandline.codec.messages.api_versions_request import ApiVersionsRequest
from strandline.codec.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from strandline.codec.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from strandline.codec.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from strandline.codec.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from strandline.codec.messages.describe_log_dirs_request import DescribableLogDirTopic, DescribeLogDirsRequest
from strandline.codec.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from strandline.codec.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from strandline.codec.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from strandline.codec.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from strandline.codec.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from strandline.errors import ErrorCode
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.testing import embedded

EARLIEST, LATEST = -2, -1
UP_TO_HIGH_WATERMARK = -1


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with embedded(properties={"log.segment.delete.delay.ms": "0"}) as running:
        yield running


@pytest.fixture
def peer(broker: EmbeddedBroker) -> Iterator[Peer]:
    with Peer(broker.port) as connected:
        yield connected


def create(peer: Peer, name: str, partitions: int = 1, **configs: str) -> None:
    settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=settings)
    assert peer.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == 0


def write(peer: Peer, name: str, count: int, partition: int = 0) -> None:
    for _ in range(count):
        answer = peer.ask(produce(name, batch([b"v" * 100]), partition=partition), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0


def offset(peer: Peer, name: str, timestamp: int, partition: int = 0) -> int:
    asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[asked])])
    (answer,) = peer.ask(request, 7).topics[0].partitions
    assert answer.error_code == 0
    found: int = answer.offset
    return found


def delete_records(peer: Peer, name: str, up_to: int, partition: int = 0, version: int = 2) -> tuple[int, int]:
    asked = DeleteRecordsPartition(partition_index=partition, offset=up_to)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=[asked])], timeout_ms=5000)
    (answer,) = peer.ask(request, version).topics[0].partitions
    return answer.error_code, answer.low_watermark


def fetch_error(peer: Peer, name: str, at: int) -> int:
    asked = FetchPartition(partition=0, fetch_offset=at, partition_max_bytes=1000)
    request = FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic=name, partitions=[asked])])
    code: int = peer.ask(request, 11).responses[0].partitions[0].error_code
    return code


# Partitions


def test_added_partitions_are_served_when_the_answer_is_there(peer: Peer) -> None:
    create(peer, "growing")
    names = MetadataRequest(topics=[MetadataRequestTopic(name="growing")])
    assert len(peer.ask(names, 12).topics[0].partitions) == 1
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="growing", count=5, assignments=None)], timeout_ms=20_000
    )
    assert peer.ask(request, 3).results[0].error_code == 0
    write(peer, "growing", 1, partition=4)
    assert offset(peer, "growing", LATEST, partition=4) == 1
    assert len(peer.ask(names, 12).topics[0].partitions) == 5, "what was kept of the old answer is not told again"


@pytest.mark.slow
def test_added_partitions_are_there_after_a_kill(tmp_path: Path) -> None:
    with embedded(data=tmp_path / "data") as broker:
        with Peer(broker.port) as peer:
            create(peer, "growing")
            request = CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name="growing", count=3, assignments=None)], timeout_ms=20_000
            )
            assert peer.ask(request, 3).results[0].error_code == 0
        broker.kill()
        broker.restart()
        with Peer(broker.port) as peer:
            write(peer, "growing", 1, partition=2)


# Records


@pytest.mark.parametrize("version", range(3))
def test_records_are_deleted_up_to_an_offset(peer: Peer, version: int) -> None:
    name = f"trimmed-{version}"
    create(peer, name)
    write(peer, name, 10)
    assert delete_records(peer, name, 4, version=version) == (0, 4)
    assert offset(peer, name, EARLIEST) == 4
    assert fetch_error(peer, name, 3) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch_error(peer, name, 4) == 0
    assert delete_records(peer, name, UP_TO_HIGH_WATERMARK, version=version) == (0, 10)
    assert offset(peer, name, EARLIEST) == offset(peer, name, LATEST) == 10
    write(peer, name, 1)
    assert offset(peer, name, LATEST) == 11, "offsets go on where they were"


def test_what_may_not_be_deleted(peer: Peer) -> None:
    create(peer, "kept")
    create(peer, "compacted", cleanup_policy="compact")
    write(peer, "kept", 2)
    assert delete_records(peer, "kept", 3) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete_records(peer, "kept", -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete_records(peer, "kept", 0, partition=1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete_records(peer, "missing", 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete_records(peer, "compacted", 0) == (ErrorCode.POLICY_VIOLATION, -1)
    assert offset(peer, "kept", EARLIEST) == 0


@pytest.mark.slow
def test_deleted_records_stay_deleted_through_kills(tmp_path: Path) -> None:
    """Killed right after the answer, again and again: the start of the log never goes back."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    # No other checkpoint is written meanwhile: what is found again was written for the answer.
    patient = {"log.flush.offset.checkpoint.interval.ms": "3600000"}
    with embedded(data=tmp_path / "data", properties=patient) as broker:
        with Peer(broker.port) as peer:
            create(peer, "orders", 2, internal_segment_bytes="1024")
        ends, starts = [0, 0], [0, 0]
        for _ in range(5):
            with Peer(broker.port) as peer:
                for index in range(2):
                    count = rng.randrange(1, 30)
                    write(peer, "orders", count, partition=index)
                    ends[index] += count
                    up_to = rng.randint(starts[index], ends[index])
                    assert delete_records(peer, "orders", up_to, partition=index) == (0, up_to)
                    starts[index] = up_to
                broker.kill()
            broker.restart()
            with Peer(broker.port) as peer:
                assert [offset(peer, "orders", EARLIEST, index) for index in range(2)] == starts
                assert [offset(peer, "orders", LATEST, index) for index in range(2)] == ends
            for index in range(2):
                bases = sorted(int(path.stem) for path in (tmp_path / f"data/orders-{index}").glob("*.log"))
                assert all(following > starts[index] for following in bases[1:]), "no file holds only deleted records"


# Epochs


def end_of_epoch(
    peer: Peer, epoch: int, *, current: int = -1, name: str = "orders", version: int = 4
) -> tuple[int, ...]:
    asked = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=name, partitions=[asked])])
    (answer,) = peer.ask(request, version).topics[0].partitions
    return answer.error_code, answer.leader_epoch, answer.end_offset


@pytest.mark.slow
def test_where_leader_epochs_ended(tmp_path: Path) -> None:
    """Each start leads a new epoch: two with records, one without, and again one with."""
    with embedded(data=tmp_path / "data") as broker:
        with Peer(broker.port) as peer:
            create(peer, "orders")
            assert end_of_epoch(peer, 0) == (0, 0, 0), "an epoch is known before its first record"
            write(peer, "orders", 3)
        broker.restart()
        with Peer(broker.port) as peer:
            assert end_of_epoch(peer, 0) == (0, 0, 3)
            assert end_of_epoch(peer, 1) == (0, 1, 3)
        broker.restart()
        with Peer(broker.port) as peer:
            assert end_of_epoch(peer, 1) == (0, 0, 3), "nothing was written in it"
            write(peer, "orders", 4)
            for version in (2, 3, 4):
                assert end_of_epoch(peer, 0, version=version) == (0, 0, 3)
                assert end_of_epoch(peer, 1, version=version) == (0, 0, 3)
                assert end_of_epoch(peer, 2, version=version) == (0, 2, 7)
                assert end_of_epoch(peer, 3, version=version) == (0, -1, -1), "not led yet"
                assert end_of_epoch(peer, -1, version=version) == (0, -1, -1)
            assert end_of_epoch(peer, 0, current=2) == (0, 0, 3)
            assert end_of_epoch(peer, 0, current=1) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
            assert end_of_epoch(peer, 0, current=3) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
            assert end_of_epoch(peer, 0, name="missing") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
            assert delete_records(peer, "orders", 5) == (0, 5)
            assert end_of_epoch(peer, 0) == (0, 0, 5), "its records are gone: the first that is left"


# Sizes and producers


@pytest.mark.parametrize("version", range(1, 6))
def test_sizes_are_those_of_the_files(broker: EmbeddedBroker, peer: Peer, version: int) -> None:
    name = f"sized-{version}"
    create(peer, name, 2, internal_segment_bytes="1024")
    write(peer, name, 20, partition=1)
    asked = [
        DescribableLogDirTopic(topic=name, partitions=[0, 1, 7]),
        DescribableLogDirTopic(topic="missing", partitions=[0]),
    ]
    (directory,) = peer.ask(DescribeLogDirsRequest(topics=asked), version).results
    assert (directory.error_code, directory.log_dir) == (0, str(broker.data.absolute()))
    (topic,) = directory.topics
    files = sum(path.stat().st_size for path in (broker.data / f"{name}-1").glob("*.log"))
    assert files > 2000
    assert [(each.partition_index, each.partition_size, each.offset_lag) for each in topic.partitions] == [
        (0, 0, 0),
        (1, files, 0),
    ]
    if version >= 4:
        assert 0 < directory.usable_bytes < directory.total_bytes
    else:
        assert (directory.total_bytes, directory.usable_bytes) == (-1, -1)
    assert not directory.is_cordoned
    (everything,) = peer.ask(DescribeLogDirsRequest(topics=None), version).results
    assert name in {each.name for each in everything.topics}
    assert "__cluster_metadata" not in {each.name for each in everything.topics}
    assert peer.ask(DescribeLogDirsRequest(topics=[]), version).results[0].topics == []


def test_producers_that_a_partition_remembers(peer: Peer) -> None:
    create(peer, "written", 2)
    for sequence, producer_id in ((0, 7), (2, 7), (0, 9)):
        content = batch(
            [b"a", b"b"],
            timestamp_ms=1_700_000_000_000,
            producer_id=producer_id,
            producer_epoch=3,
            base_sequence=sequence,
        )
        assert peer.ask(produce("written", content), 9).responses[0].partition_responses[0].error_code == 0
    asked = [TopicRequest(name="written", partition_indexes=[0, 1, 5]), TopicRequest(name="b/d", partition_indexes=[0])]
    written, bad = peer.ask(DescribeProducersRequest(topics=asked), 0).topics
    busy, idle, missing = written.partitions
    assert [(p.producer_id, p.producer_epoch, p.last_sequence, p.last_timestamp) for p in busy.active_producers] == [
        (7, 3, 3, 1_700_000_000_000),
        (9, 3, 1, 1_700_000_000_000),
    ]
    assert {(p.coordinator_epoch, p.current_txn_start_offset) for p in busy.active_producers} == {(-1, -1)}
    assert (idle.error_code, idle.active_producers) == (0, [])
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert bad.partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


# Many topics at once


def test_a_bystander_is_served_while_many_topics_are_created_and_deleted(broker: EmbeddedBroker) -> None:
    names = [f"many-{number}" for number in range(1000)]
    create_all = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    )
    delete_all = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names], timeout_ms=60_000)
    for request, version in ((create_all, 7), (delete_all, 6)):
        answers, served = meanwhile(broker, request, version)
        assert {each.error_code for each in answers} == {0}
        assert served >= 4, "a loop that did it all in one turn would serve one or two"
    until(lambda: not [path for path in broker.data.iterdir() if path.name.startswith("many-")], "the files are gone")


def meanwhile(broker: EmbeddedBroker, request: Any, version: int) -> tuple[list[Any], int]:
    """The results of a long request, and how many short ones of another connection were answered before it was."""
    results: list[Any] = []

    def ask() -> None:
        with Peer(broker.port) as peer:
            answer = peer.ask(request, version)
            results.extend(answer.topics if version == 7 else answer.responses)

    thread = threading.Thread(target=ask)
    served = 0
    with Peer(broker.port) as bystander:
        thread.start()
        while thread.is_alive():
            bystander.ask(ApiVersionsRequest(), 0)
            served += 1
    thread.join()
    return results, served
