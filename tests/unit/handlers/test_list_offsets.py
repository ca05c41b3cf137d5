"""ListOffsets: each kind of question against one small partition, and who may not ask."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.handlers.node_of_one import Context, NodeOfOne, Records, ask

from strandline.codec.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from strandline.codec.messages.list_offsets_response import ListOffsetsResponse
from strandline.errors import DiskFailed, ErrorCode
from strandline.handlers import k02_list_offsets
from strandline.quorum.controller.new_topics import NewTopic

FIRST, LAST = k02_list_offsets.VERSIONS


def a_partition() -> Records:
    """Six records in two epochs; offset 0 is trimmed, 5 is not committed, 4 is in an open transaction."""
    return Records(
        records=[(10, 0), (20, 0), (40, 0), (30, 1), (50, 1), (60, 1)],
        log_start_offset=1,
        high_watermark=5,
        last_stable_offset=4,
        leader_epoch=1,
    )


def a_node() -> NodeOfOne:
    node = NodeOfOne()
    records, _ = node.controller.create_topics([NewTopic("t", 2)])
    node.controller_write(records, lambda error: None)
    node.flush()
    node.partitions["t", 0] = a_partition()
    return node


def question(timestamp: int, *, topic: str = "t", index: int = 0, epoch: int = -1, **more: Any) -> ListOffsetsRequest:
    asked = ListOffsetsPartition(partition_index=index, current_leader_epoch=epoch, timestamp=timestamp)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])], **more)


def answer(node: NodeOfOne, request: ListOffsetsRequest, version: int = LAST) -> tuple[int, int, int, int]:
    response = ask(k02_list_offsets, node, request, version, ListOffsetsResponse)
    ((partition,),) = [topic.partitions for topic in response.topics]
    return partition.error_code, partition.offset, partition.timestamp, partition.leader_epoch


@pytest.mark.parametrize(
    ("timestamp", "first_version", "offset", "found_timestamp", "epoch"),
    [
        (-1, 1, 5, -1, 1),
        (-2, 1, 1, -1, 0),
        (0, 1, 1, 20, 0),
        (20, 1, 1, 20, 0),
        (21, 1, 2, 40, 0),
        (45, 1, 4, 50, 1),
        (55, 1, -1, -1, -1),  # only a record that is not committed is as late
        (61, 1, -1, -1, -1),
        (-3, 7, -1, -1, -1),  # the latest record is not committed
        (-4, 8, 1, -1, 0),
        (-5, 9, -1, -1, -1),
        (-6, 11, -1, -1, -1),
    ],
)
def test_each_kind_of_question(
    timestamp: int, first_version: int, offset: int, found_timestamp: int, epoch: int
) -> None:
    node = a_node()
    for version in range(FIRST, LAST + 1):
        expected: tuple[int, ...]
        if version < first_version:
            expected = (ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1)
        else:
            expected = (ErrorCode.NONE, offset, found_timestamp, epoch if version >= 4 else -1)
        assert answer(node, question(timestamp), version) == expected, f"version {version}"


def test_max_timestamp_of_committed_records() -> None:
    node = a_node()
    partition = node.partitions["t", 0]
    partition.high_watermark = 6
    assert answer(node, question(-3)) == (ErrorCode.NONE, 5, 60, 1)


def test_read_committed_ends_at_the_last_stable_offset() -> None:
    node = a_node()
    assert answer(node, question(-1, isolation_level=1)) == (ErrorCode.NONE, 4, -1, 1)
    assert answer(node, question(45, isolation_level=1)) == (ErrorCode.NONE, -1, -1, -1)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (question(-1, topic="missing"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (question(-1, index=2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (question(-1, index=-1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (question(-1, index=1), ErrorCode.KAFKA_STORAGE_ERROR),
        (question(-1, epoch=0), ErrorCode.FENCED_LEADER_EPOCH),
        (question(-1, epoch=2), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (question(-1, epoch=1), ErrorCode.NONE),
        (question(-7), ErrorCode.UNSUPPORTED_VERSION),
        (question(-(2**63)), ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_who_may_not_ask(request_: ListOffsetsRequest, code: ErrorCode) -> None:
    assert answer(a_node(), request_)[0] == code


def test_a_partition_led_elsewhere() -> None:
    node = a_node()
    node.image.topics["t"].partitions[1].leader = 2
    assert answer(node, question(-1, index=1))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_partition_that_stands_twice_is_refused_both_times() -> None:
    twice = [
        ListOffsetsPartition(partition_index=0, timestamp=-1),
        ListOffsetsPartition(partition_index=0, timestamp=-2),
    ]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=twice)])
    response = ask(k02_list_offsets, a_node(), request, LAST, ListOffsetsResponse)
    assert [partition.error_code for partition in response.topics[0].partitions] == [ErrorCode.INVALID_REQUEST] * 2


def test_the_answer_leaves_once_when_the_last_look_up_is_back() -> None:
    node = a_node()
    held: list[Any] = []
    node.partitions["t", 0].held = held
    node.partitions["t", 1] = a_partition()
    node.partitions["t", 1].held = held
    asked = [ListOffsetsPartition(partition_index=index, timestamp=20) for index in (0, 1)]
    context = Context(node, LAST)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=asked)])
    assert k02_list_offsets.handle(context, request) is None
    held.pop()()
    assert not context.replies
    held.pop()()
    (response,) = context.replies
    assert [partition.offset for partition in response.topics[0].partitions] == [1, 1]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_look_up_that_fails_is_told_for_its_partition(at_once: bool) -> None:
    node = a_node()

    def broken(timestamp: int, callback: Any, **_: Any) -> None:
        error = DiskFailed("cannot read")
        if at_once:
            raise error
        callback(None, error)

    node.partitions["t", 0].offset_for_timestamp = broken  # type: ignore[method-assign]
    assert answer(node, question(5))[0] == ErrorCode.KAFKA_STORAGE_ERROR
