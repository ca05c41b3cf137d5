"""TxnOffsetCommit on its way: the transaction is verified, the log is in order, nothing is told that may be lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.coordinators.world import Asked, World
from tests.unit.partition.test_partition import World as PartitionWorld

from strandline.broker.coordinating import coordinator_context, pending_appends
from strandline.codec.columns import decode_batch
from strandline.codec.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from strandline.codec.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from strandline.codec.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from strandline.errors import ErrorCode
from strandline.handlers import k08_offset_commit, k09_offset_fetch, k28_txn_offset_commit
from strandline.handlers.support.marker_writing import Marker, write_marker
from strandline.ids import TopicPartition
from strandline.partition.partition import Partition
from strandline.quorum.controller.topic_names import CONSUMER_OFFSETS

E = ErrorCode
PLACE = TopicPartition(CONSUMER_OFFSETS, 0)
ID = 4001
OTHER = 4002


class Coordinator:
    """Of transactions: it writes down what it is asked, and says yes at once unless it is told otherwise."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.code: ErrorCode | None = E.NONE
        self.waiting: list[Callable[[dict[Any, ErrorCode]], object]] = []

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        places: Sequence[tuple[str, int]],
        *,
        adds: bool,
        then: Callable[[dict[Any, ErrorCode]], object],
    ) -> None:
        self.asked.append((transactional_id, producer_id, producer_epoch, list(places), adds))
        if self.code is None:
            self.waiting.append(then)
        else:
            then({PLACE: self.code})

    def say(self, code: ErrorCode) -> None:
        waiting, self.waiting = self.waiting, []
        for then in waiting:
            then({PLACE: code})


class Node(World):
    """A node with one partition of `__consumer_offsets`, on a disk."""

    def __init__(self, path: Path, *, flush_mode: str = "async") -> None:
        super().__init__(partition_count=1)
        self.transactions = Coordinator()
        self.disk = PartitionWorld(path, flush_mode=flush_mode)
        self.offsets_topic.partitions = [self.disk.partition]  # type: ignore[list-item]
        self.make_topic("t", partition_count=2_000)
        self.groups.load(0)

    def partition(self, topic: str, index: int) -> Partition | None:
        assert (topic, index) == PLACE
        return self.offsets_topic.partitions[0]  # type: ignore[return-value]

    def settle(self) -> None:
        """The loop turns, and the disk does what it was asked to."""
        self.clock.run()
        self.disk.runtime.settle()

    def log(self) -> list[str]:
        """A word for each batch in the partition."""
        words = []
        for raw in self.disk.partition.read_all():
            columns = decode_batch(raw)
            if columns.is_control:
                key = columns.key(0)
                assert key is not None
                words.append(f"{('abort', 'commit')[key[3]]} {columns.producer_id}")
            elif columns.is_transactional:
                assert columns.base_sequence == -1
                words.append(f"offsets of {columns.producer_id}/{columns.producer_epoch} x{columns.count}")
            else:
                words.append(f"plain x{columns.count}")
        return words

    def mark(self, producer_id: int = ID, *, is_commit: bool = True, epoch: int = 0) -> list[ErrorCode]:
        told: list[ErrorCode] = []
        write_marker(self, PLACE, Marker(producer_id, epoch, 3, is_commit, 1), told.append)  # type: ignore[arg-type]
        return told


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def slow_node(tmp_path: Path) -> Node:
    """Nothing is committed there before it is on the disk."""
    node = Node(tmp_path, flush_mode="ack")
    node.settle()
    return node


def commit(
    node: Node,
    offset: int,
    *,
    producer_id: int = ID,
    epoch: int = 0,
    version: int = 4,
    partitions: int = 1,
    **more: Any,
) -> Asked:
    topics = more.pop("topics", None) or [
        TxnOffsetCommitRequestTopic(
            name="t",
            partitions=[
                TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
                for index in range(partitions)
            ],
        )
    ]
    request = TxnOffsetCommitRequest(
        transactional_id="writer",
        group_id=more.pop("group_id", "g"),
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=topics,
        **more,
    )
    return node.ask(k28_txn_offset_commit, request, version)


def commit_plainly(node: Node, offset: int, partition: int = 0) -> Asked:
    committed = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
    topics = [OffsetCommitRequestTopic(name="t", partitions=[committed])]
    return node.ask(k08_offset_commit, OffsetCommitRequest(group_id="g", topics=topics), 9)


def fetch(node: Node, *, require_stable: bool = True, version: int = 9) -> Asked:
    groups = [OffsetFetchRequestGroup(group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])])]
    return node.ask(k09_offset_fetch, OffsetFetchRequest(groups=groups, require_stable=require_stable), version)


def stable_offset(node: Node) -> int | ErrorCode:
    partition = fetch(node).response.groups[0].topics[0].partitions[0]
    code = E(partition.error_code)
    offset: int = partition.committed_offset
    return offset if code is E.NONE else code


def codes(asked: Asked) -> list[ErrorCode]:
    return [E(partition.error_code) for topic in asked.response.topics for partition in topic.partitions]


@pytest.mark.parametrize("version", range(6))
def test_offsets_are_pending_until_the_marker_in_every_version(node: Node, version: int) -> None:
    asked = commit(node, 10, partitions=2, version=version)
    node.settle()
    assert codes(asked) == [E.NONE, E.NONE]
    assert node.transactions.asked == [("writer", ID, 0, [PLACE], version >= 5)]
    assert stable_offset(node) is E.UNSTABLE_OFFSET_COMMIT
    assert node.mark() == [E.NONE]
    assert stable_offset(node) == 10
    assert node.log() == [f"offsets of {ID}/0 x2", f"commit {ID}"]


def test_an_open_transaction_needs_no_more_asking(node: Node) -> None:
    commit(node, 10)
    node.settle()
    commit(node, 11)
    node.settle()
    assert len(node.transactions.asked) == 1
    node.mark()
    commit(node, 12)
    assert len(node.transactions.asked) == 2


@pytest.mark.parametrize(
    ("said", "version", "heard"),
    [
        (E.INVALID_TXN_STATE, 3, E.INVALID_TXN_STATE),
        (E.TRANSACTION_ABORTABLE, 3, E.INVALID_TXN_STATE),
        (E.TRANSACTION_ABORTABLE, 4, E.TRANSACTION_ABORTABLE),
        (E.INVALID_PRODUCER_EPOCH, 5, E.INVALID_PRODUCER_EPOCH),
        (E.INVALID_PRODUCER_ID_MAPPING, 4, E.INVALID_PRODUCER_ID_MAPPING),
        (E.CONCURRENT_TRANSACTIONS, 5, E.CONCURRENT_TRANSACTIONS),
        (E.NETWORK_EXCEPTION, 4, E.COORDINATOR_LOAD_IN_PROGRESS),
        (E.NETWORK_EXCEPTION, 1, E.COORDINATOR_NOT_AVAILABLE),
        (E.COORDINATOR_LOAD_IN_PROGRESS, 2, E.COORDINATOR_LOAD_IN_PROGRESS),
        (E.NOT_COORDINATOR, 4, E.NOT_COORDINATOR),
    ],
)
def test_nothing_is_written_for_a_transaction_that_its_coordinator_does_not_know(
    node: Node, said: ErrorCode, version: int, heard: ErrorCode
) -> None:
    node.transactions.code = said
    assert codes(commit(node, 10, partitions=2, version=version)) == [heard, heard]
    node.settle()
    assert node.log() == []
    assert stable_offset(node) == -1


def test_a_marker_that_came_before_the_answer_voids_it(node: Node) -> None:
    """The coordinator knows the transaction, and the marker that ends it is here before the coordinator's yes."""
    node.transactions.code = None
    asked = commit(node, 10)
    node.mark(is_commit=False)
    node.transactions.say(E.NONE)
    node.settle()
    assert codes(asked) == [E.INVALID_TXN_STATE]
    assert node.log() == [f"abort {ID}"]
    assert stable_offset(node) == -1


def test_a_topic_made_again_before_the_answer_is_another_topic(node: Node) -> None:
    """While the coordinator of the transaction is asked, the topic is deleted and made again, and read by a group."""
    node.transactions.code = None
    asked = commit(node, 100)
    old = node.image.topic_by_name("t")
    assert old is not None
    node.remove_topic(old.id)
    node.make_topic("t")
    commit_plainly(node, 7)
    node.transactions.say(E.NONE)
    node.settle()
    assert codes(asked) == [E.UNKNOWN_TOPIC_OR_PARTITION]
    node.mark()
    assert stable_offset(node) == 7


def test_another_leads_when_the_coordinator_answers(node: Node) -> None:
    node.transactions.code = None
    asked = commit(node, 10)
    node.offsets_topic.partitions[0] = None
    node.transactions.say(E.NONE)
    assert codes(asked) == [E.NOT_COORDINATOR]
    assert codes(commit(node, 10)) == [E.NOT_COORDINATOR]


def test_an_epoch_that_is_over_is_fenced_without_asking(node: Node) -> None:
    commit(node, 10, epoch=5)
    node.settle()
    node.mark(epoch=5)
    assert codes(commit(node, 11, epoch=4)) == [E.INVALID_PRODUCER_EPOCH]
    assert len(node.transactions.asked) == 1


def test_a_fenced_member_leaves_no_trace(node: Node) -> None:
    asked = commit(node, 10, generation_id=4, member_id="zombie")
    node.settle()
    assert codes(asked) == [E.ILLEGAL_GENERATION]
    assert node.log() == []


def test_a_group_needs_a_name_and_a_partition_a_topic(node: Node) -> None:
    assert codes(commit(node, 10, group_id="")) == [E.INVALID_GROUP_ID]
    unknown = TxnOffsetCommitRequestTopic(name="gone", partitions=[TxnOffsetCommitRequestPartition()])
    assert codes(commit(node, 10, topics=[unknown])) == [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert node.transactions.asked == []
    known = TxnOffsetCommitRequestTopic(
        name="t", partitions=[TxnOffsetCommitRequestPartition(partition_index=index) for index in (0, 2_000)]
    )
    asked = commit(node, 10, topics=[unknown, known])
    node.settle()
    answered = {(t.name, p.partition_index): p.error_code for t in asked.response.topics for p in t.partitions}
    assert answered == {("gone", 0): 3, ("t", 0): 0, ("t", 2_000): 3}


def test_a_producer_is_not_told_before_its_offsets_are_committed(slow_node: Node) -> None:
    asked = commit(slow_node, 10)
    slow_node.clock.run()
    assert slow_node.log()
    assert not asked.is_answered
    slow_node.settle()
    assert codes(asked) == [E.NONE]


def test_an_end_that_may_be_lost_is_not_visible(slow_node: Node) -> None:
    commit(slow_node, 10)
    slow_node.settle()
    told = slow_node.mark()
    asked = fetch(slow_node)
    assert (told, asked.is_answered) == ([], False)
    slow_node.settle()
    assert told == [E.NONE]
    assert asked.response.groups[0].topics[0].partitions[0].committed_offset == 10


def test_the_log_is_in_the_order_in_which_things_happened(node: Node) -> None:
    """All within one turn of the loop: what was taken before the marker must not come behind it."""
    commit_plainly(node, 1, partition=1)
    commit_plainly(node, 2, partition=2)
    commit(node, 10)
    commit(node, 20, producer_id=OTHER)
    commit_plainly(node, 3, partition=1)
    node.mark()
    node.settle()
    assert node.log() == [
        "plain x2",
        f"offsets of {ID}/0 x1",
        f"offsets of {OTHER}/0 x1",
        "plain x1",
        f"commit {ID}",
    ]
    assert stable_offset(node) is E.UNSTABLE_OFFSET_COMMIT
    node.mark(OTHER)
    assert stable_offset(node) == 20


def test_what_is_asked_for_while_a_transaction_is_written_is_written_too(node: Node) -> None:
    first = commit(node, 10)
    commit(node, 20, producer_id=OTHER)
    # The first is answered in the middle of the write, and its connection sends the next request at once.
    first.on_reply = lambda: commit_plainly(node, 3, partition=1)
    node.settle()
    assert node.log() == [f"offsets of {ID}/0 x1", f"offsets of {OTHER}/0 x1", "plain x1"]


def test_a_marker_that_is_refused_ends_nothing(node: Node) -> None:
    commit(node, 10, epoch=2)
    node.settle()
    assert node.mark(epoch=1) == [E.INVALID_PRODUCER_EPOCH]
    assert stable_offset(node) is E.UNSTABLE_OFFSET_COMMIT
    asked = commit(node, 11, epoch=2)
    node.settle()
    assert codes(asked) == [E.NONE]
    assert node.mark(epoch=2) == [E.NONE]
    assert stable_offset(node) == 11


def test_what_begins_when_a_transaction_ends_belongs_to_the_next(node: Node) -> None:
    """A commit may wait at the coordinator for the end of the transaction before, and go on as soon as it is told."""
    commit(node, 10)
    node.settle()
    asked: list[Asked] = []
    marker = Marker(ID, 0, 3, True, 1)
    write_marker(node, PLACE, marker, lambda code: asked.append(commit(node, 20)))  # type: ignore[arg-type]
    node.settle()
    assert codes(asked[0]) == [E.NONE]
    assert stable_offset(node) is E.UNSTABLE_OFFSET_COMMIT
    node.mark(is_commit=False)
    assert stable_offset(node) == 10


def test_thousands_of_partitions_are_one_transaction(node: Node) -> None:
    asked = commit(node, 10, partitions=1_700)
    node.settle()
    assert codes(asked) == [E.NONE] * 1_700
    assert len(node.transactions.asked) == 1
    assert sum(int(word.rpartition("x")[2]) for word in node.log()) == 1_700
    node.mark()
    shard = node.groups.shard_of("g")
    assert shard is not None
    assert shard.offsets.count("g") == 1_700


def test_a_batch_that_would_be_too_large_is_several(node: Node) -> None:
    node.transactions.code = E.NONE
    partitions = [
        TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="x" * 4_000)
        for index in range(300)
    ]
    asked = commit(node, 1, topics=[TxnOffsetCommitRequestTopic(name="t", partitions=partitions)])
    node.settle()
    assert codes(asked) == [E.NONE] * 300
    assert len(node.log()) == 3
    sizes = [len(raw) for raw in node.disk.partition.read_all()]
    assert max(sizes) < 2 * pending_appends.BATCH_BYTES_MAX


# ---- another coordinator loads what this one wrote


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_that_comes_while_the_groups_are_loaded(
    node: Node, monkeypatch: pytest.MonkeyPatch, is_commit: bool
) -> None:
    commit_plainly(node, 3)
    commit(node, 10)
    node.settle()
    node.restart()
    monkeypatch.setattr(coordinator_context, "LOAD_RECORDS_PER_TURN_MAX", 1)
    node.groups.load(0)
    assert codes(commit(node, 12)) == [E.COORDINATOR_LOAD_IN_PROGRESS]
    node.mark(is_commit=is_commit)
    node.settle()
    assert stable_offset(node) == (10 if is_commit else 3)


def test_a_marker_that_comes_after_the_last_record_was_loaded(slow_node: Node) -> None:
    """All is read, but not all of it is committed yet, so the groups are not served yet."""
    commit(slow_node, 10)
    slow_node.clock.run()
    slow_node.restart()
    slow_node.groups.load(0)
    slow_node.mark()
    slow_node.disk.runtime.settle()
    slow_node.clock.run(1)
    assert stable_offset(slow_node) == 10


def test_a_marker_of_a_shard_that_is_not_loaded_is_found_by_the_load(node: Node) -> None:
    commit(node, 10)
    node.settle()
    node.restart()
    assert node.mark() == [E.NONE]
    node.groups.load(0)
    assert stable_offset(node) == 10
