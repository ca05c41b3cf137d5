"""A coordinator that was deposed and does not know it yet has no say about offsets."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from tests.scenarios.sink_clients import patiently, talk

import strandline
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
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
from strandline.errors import ErrorCode

TOPIC = "orders"
GROUP = "billing"

pytestmark = pytest.mark.timeout(180)


def coordinator(ports: Sequence[int]) -> int:
    """The port of the node that coordinates the group."""

    def ask() -> tuple[int, int]:
        with talk(ports) as peer:
            (found,) = peer.ask(FindCoordinatorRequest(coordinator_keys=[GROUP]), 4).coordinators
        return found.error_code, found.port

    return int(patiently(ask))


def commit(ports: Sequence[int], offset: int) -> None:
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(group_id=GROUP, topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[part])])

    def ask() -> tuple[int, None]:
        with talk([coordinator(ports)]) as peer:
            return peer.ask(request, 8).topics[0].partitions[0].error_code, None

    patiently(ask)


def committed(port: int) -> tuple[int, int]:
    """What one node says: an error, and an offset."""
    topic = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])], require_stable=True)
    with talk([port]) as peer:
        (group,) = peer.ask(request, 8).groups
    return group.error_code, group.topics[0].partitions[0].committed_offset if group.topics else -1


@pytest.mark.slow
def test_a_coordinator_cut_off_from_the_others_tells_no_offset_that_another_has_moved() -> None:
    with strandline.embedded(nodes=3, properties={"broker.session.timeout.ms": "3000"}) as cluster:
        cluster.create_topic(TOPIC)
        ports = {node_id: place.port for node_id, place in zip(cluster.nodes, cluster.layout.places, strict=True)}
        commit(list(ports.values()), 730)
        deposed = coordinator(list(ports.values()))
        assert committed(deposed) == (ErrorCode.NONE, 730)
        (lost,) = [node_id for node_id, port in ports.items() if port == deposed]
        cluster.partition(lost)
        others = [port for port in ports.values() if port != deposed]
        while coordinator(others) == deposed:
            time.sleep(0.1)  # Nothing is asked of it: behind a commit that cannot succeed it would not answer at all.
        commit(others, 1206)
        assert committed(coordinator(others)) == (ErrorCode.NONE, 1206)
        assert committed(deposed) == (ErrorCode.NOT_COORDINATOR, -1), "it cannot know, and says no more than that"
        cluster.heal()
