"""Groups by the thousand are listed, described and deleted, and nobody else waits for it; the stage holds the turns."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.hostile.peer import Peer, request
from tests.hostile.stage import stage

from strandline.codec.messages.delete_groups_request import DeleteGroupsRequest
from strandline.codec.messages.describe_groups_request import DescribeGroupsRequest
from strandline.codec.messages.list_groups_request import ListGroupsRequest
from strandline.codec.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from strandline.codec.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from strandline.errors import ErrorCode
from strandline.local.embedded_broker import EmbeddedBroker

GROUPS = [f"many-{number}" for number in range(1_500)]
PARTITIONS = 500
AT_ONCE = 100
"""Requests that wait in one connection: more would fill its buffers while nobody reads the answers."""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with stage({"wide": PARTITIONS}) as log:
        yield log


def commit(group: str, partitions: int = 1) -> OffsetCommitRequest:
    committed = [OffsetCommitRequestPartition(partition_index=n, committed_offset=n) for n in range(partitions)]
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name="wide", partitions=committed)])


def listed(peer: Peer) -> set[str]:
    answer = peer.ask(ListGroupsRequest(), 5)
    assert answer.error_code == ErrorCode.NONE
    return {group.group_id for group in answer.groups}


@pytest.mark.slow
def test_many_groups(broker: EmbeddedBroker) -> None:
    with Peer(broker.port) as peer:
        # The first one loads the shard, so it may be told to come again.
        while peer.ask(commit(GROUPS[0]), 8).topics[0].partitions[0].error_code != ErrorCode.NONE:
            pass
        for at in range(0, len(GROUPS), AT_ONCE):
            peer.send(b"".join(request(commit(group), 8) for group in GROUPS[at : at + AT_ONCE]))
            for _ in GROUPS[at : at + AT_ONCE]:
                peer.receive_answer()
        assert listed(peer) >= set(GROUPS)
        described = peer.ask(DescribeGroupsRequest(groups=[*GROUPS, "nobody"]), 6).groups
        assert [group.group_state for group in described] == [*["Empty"] * len(GROUPS), "Dead"]
        deleted = peer.ask(DeleteGroupsRequest(groups_names=[*GROUPS, "nobody"]), 2).results
        assert [each.error_code for each in deleted] == [*[ErrorCode.NONE] * len(GROUPS), ErrorCode.GROUP_ID_NOT_FOUND]
        assert not listed(peer) & set(GROUPS)


def test_a_group_of_many_offsets(broker: EmbeddedBroker) -> None:
    with Peer(broker.port) as peer:
        while peer.ask(commit("wide", PARTITIONS), 8).topics[0].partitions[0].error_code != ErrorCode.NONE:
            pass
        partitions = [OffsetDeleteRequestPartition(partition_index=n) for n in range(PARTITIONS + 10)]
        topics = [OffsetDeleteRequestTopic(name="wide", partitions=partitions)]
        (answered,) = peer.ask(OffsetDeleteRequest(group_id="wide", topics=topics), 0).topics
        refused = {each.partition_index for each in answered.partitions if each.error_code != ErrorCode.NONE}
        assert refused == set(range(PARTITIONS, PARTITIONS + 10))
        assert len(answered.partitions) == PARTITIONS + 10
