"""Disks change bits while nodes are down: no reader is served what changed, and replicas repair one another.

On leaving the stage all is read and judged: a changed record, a lost one, or a replica that stays out of sync fails.
"""

from __future__ import annotations

import pytest
from tests.simulation.stage import Play, stage
from tests.simulator.options import TopicOptions
from tests.simulator.world.cluster import SimNode

from strandline.codec.messages.scrub_partitions_request import ScrubPartitionsRequest, ScrubTopic
from strandline.codec.messages.scrub_partitions_response import ScrubPartitionsResponse
from strandline.codec.record_batch import parse_header
from strandline.partition.partition import Partition

SMALL = {"min.insync.replicas": "2", "internal.segment.bytes": "4000", "index.interval.bytes": "400"}
ONE = TopicOptions("orders", 1, 3, SMALL)
SEEDS = [31, pytest.param(32, marks=pytest.mark.slow)]
MENDED_S = 60.0


def replica(node: SimNode) -> Partition:
    assert node.node is not None
    partition = node.node.partition("orders", 0)
    assert partition is not None
    return partition


def damage(play: Play, node: SimNode, at: int) -> None:
    """Flip bits of a segment of a node while it is down: one in a header, one among the records."""
    segment = replica(node).log.segments[at]
    path, size = segment.path, segment.size_bytes
    node.stop()
    play.until(lambda: not node.is_up, "it has stopped")
    content, starts, place = node.disk.read_whole(path), [], 0
    while place < size:
        starts.append(place)
        place += parse_header(content, place).size_bytes
    node.disk.damage(path, play.random.choice(starts) + play.random.randrange(61))
    node.disk.damage(path, play.random.randrange(size))
    node.start()
    play.wait_whole()


def scrub(play: Play, node: SimNode) -> int:
    """How many segments of the node are damaged, as it says itself after it has looked."""
    request = ScrubPartitionsRequest(topics=[ScrubTopic("orders", [0])])
    answer = play.ask(node, request, 0, ScrubPartitionsResponse)
    return len(answer.partitions[0].damages) + (answer.partitions[0].error_code != 0)


def repairs(play: Play) -> int:
    return sum(node.node.scrubber.corruption.repaired for node in play.cluster.up() if node.node is not None)


def is_whole(play: Play) -> bool:
    return all(node.node is not None and not len(node.node.scrubber.corruption) for node in play.cluster.up())


def fill(play: Play) -> None:
    play.work()
    play.wait(acknowledged=300, within_s=120.0)
    play.until(lambda: len(replica(play.leader("orders")).log.segments) >= 4, "there are segments", 120.0)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_follower_mends_itself(seed: int) -> None:
    with stage(seed, ONE) as play:
        fill(play)
        [follower, _] = play.followers("orders")
        damage(play, follower, 1)
        assert scrub(play, follower) <= 1
        # A scrub answers as soon as it has found damage; it becomes known, and is mended, later.
        play.until(lambda: repairs(play) >= 1 and is_whole(play), "it is mended", MENDED_S)
        assert scrub(play, follower) == 0
        assert len(play.image_of("orders").isr) == 3


@pytest.mark.parametrize("seed", SEEDS)
def test_every_copy_is_damaged_and_none_is_lost(seed: int) -> None:
    with stage(seed, ONE) as play:
        fill(play)
        for number, node in enumerate(list(play.cluster.nodes.values())):
            damage(play, node, number)
        for node in play.cluster.nodes.values():
            scrub(play, node)
        play.until(lambda: is_whole(play), "all are mended", MENDED_S)
        assert [scrub(play, node) for node in play.cluster.nodes.values()] == [0, 0, 0]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_leader_makes_way(seed: int) -> None:
    with stage(seed, ONE) as play:
        fill(play)
        leader = play.leader("orders")
        damage(play, leader, 0)
        while play.leader("orders") is not leader:
            other = play.leader("orders")
            other.stop()
            play.until(lambda other=other: not other.is_up, "it has stopped")  # type: ignore[misc]
            other.start()
            play.wait_whole()
        scrub(play, leader)
        play.until(lambda: is_whole(play), "it is mended", MENDED_S)
        assert repairs(play) >= 1
        assert scrub(play, leader) == 0
