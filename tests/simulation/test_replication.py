"""What a replicated partition promises, each told as a short story of three nodes: how soon a follower knows, what a
client is told that asks the wrong node, and what a full disk does.
"""

from __future__ import annotations

import dataclasses

import pytest
from tests.simulation.stage import ORDERS, Play, stage
from tests.simulator.world.cluster import SimNode
from tests.simulator.world.disk import CAPACITY_BYTES

from strandline.codec.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from strandline.codec.messages.delete_records_response import DeleteRecordsResponse
from strandline.codec.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from strandline.codec.messages.fetch_response import FetchResponse
from strandline.codec.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from strandline.codec.messages.list_offsets_response import ListOffsetsResponse
from strandline.codec.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from strandline.codec.messages.produce_response import ProduceResponse
from strandline.errors import ErrorCode
from strandline.partition.partition import Partition

ONE = dataclasses.replace(ORDERS, partitions=1)
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]


def partition_on(node: SimNode) -> Partition:
    assert node.node is not None
    partition = node.node.partition("orders", 0)
    assert partition is not None
    return partition


def test_a_follower_knows_the_high_watermark_soon_though_nothing_more_is_written() -> None:
    """Not when its fetch has waited for half a second: it may be the next leader."""
    with stage(1, ONE) as play:
        play.work()
        for _ in range(20):
            play.wait(acknowledged=1)
            committed = partition_on(play.leader("orders")).high_watermark
            began = play.loop.now
            play.until(
                lambda at=committed: all(partition_on(each).high_watermark >= at for each in play.followers("orders")),
                "both followers know what is committed",
            )
            assert play.loop.now - began < 0.1


def test_whoever_asks_the_wrong_node_is_told_who_leads_and_where() -> None:
    with stage(2, ONE) as play:
        play.work()
        play.wait(acknowledged=20)
        leader, follower = play.leader("orders"), play.followers("orders")[0]
        epoch = play.image_of("orders").leader_epoch
        produced = play.ask(
            follower,
            ProduceRequest(
                acks=-1,
                timeout_ms=1000,
                topic_data=[TopicProduceData(name="orders", partition_data=[PartitionProduceData(0, b"")])],
            ),
            12,
            ProduceResponse,
        )
        told = produced.responses[0].partition_responses[0]
        assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (told.current_leader.leader_id, told.current_leader.leader_epoch) == (leader.node_id, epoch)
        assert [(each.node_id, each.host) for each in produced.node_endpoints] == [(leader.node_id, leader.name)]
        asked = FetchPartition(partition=0, current_leader_epoch=epoch - 1, partition_max_bytes=1 << 20)
        fetch = FetchRequest(
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[FetchTopic(topic_id=play.topic_id("orders"), partitions=[asked])],
        )
        fetched = play.ask(follower, fetch, 16, FetchResponse)
        if epoch > 0:
            assert fetched.responses[0].partitions[0].current_leader.leader_id == leader.node_id
            assert [each.node_id for each in fetched.node_endpoints] == [leader.node_id]
        # An old client does not know that followers answer; a new one is served what is committed.
        fetch.topics[0].topic = "orders"
        asked.current_leader_epoch = -1
        refused = play.ask(follower, fetch, 10, FetchResponse)
        assert refused.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        served = play.ask(follower, fetch, 12, FetchResponse)
        assert served.responses[0].partitions[0].error_code == 0
        assert served.responses[0].partitions[0].records


def as_replica(play: Play, node_id: int, epoch: int, offset: int) -> FetchRequest:
    partition = FetchPartition(
        partition=0,
        current_leader_epoch=play.image_of("orders").leader_epoch,
        fetch_offset=offset,
        log_start_offset=0,
        partition_max_bytes=1 << 20,
    )
    return FetchRequest(
        max_bytes=1 << 20,
        session_epoch=-1,
        replica_state=ReplicaState(replica_id=node_id, replica_epoch=epoch),
        topics=[FetchTopic(topic_id=play.topic_id("orders"), partitions=[partition])],
    )


def test_nobody_acknowledges_who_is_not_that_very_broker() -> None:
    with stage(3, ONE) as play:
        play.work()
        play.wait(acknowledged=20)
        leader, (follower, _) = play.leader("orders"), play.followers("orders")
        assert leader.node is not None
        known = leader.node.image.brokers[follower.node_id].epoch
        in_sync = partition_on(leader).in_sync
        assert in_sync is not None
        for node_id, epoch in ((follower.node_id, known - 1), (follower.node_id, -1), (99, known), (leader.node_id, 1)):
            before = [each.end_offset for each in in_sync.followers.values()]
            answer = play.ask(leader, as_replica(play, node_id, epoch, 10_000_000), 17, FetchResponse)
            assert answer.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert [each.end_offset for each in in_sync.followers.values()] >= before
            assert max(each.end_offset for each in in_sync.followers.values()) < 10_000_000


def test_deleted_records_are_gone_on_every_replica_when_the_answer_comes() -> None:
    with stage(4, ONE) as play:
        play.work()
        play.wait(acknowledged=100)
        leader = play.leader("orders")
        offset = partition_on(leader).high_watermark // 2
        play.run.invariants.trimmed.add("orders")
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic("orders", [DeleteRecordsPartition(partition_index=0, offset=offset)])],
            timeout_ms=5000,
        )
        answer = play.ask(leader, request, 2, DeleteRecordsResponse)
        told = answer.topics[0].partitions[0]
        assert (told.error_code, told.low_watermark) == (0, offset)
        assert {partition_on(each).log_start_offset for each in play.cluster.nodes.values()} == {offset}
        # The final read would look for what was deleted on purpose.
        play.is_over = True


@pytest.mark.parametrize("seed", SEEDS)
def test_the_end_does_not_go_back_when_the_leader_dies_right_after_it_told_it(seed: int) -> None:
    """The next leader holds all that was told, and has not heard that it is committed (KIP-207)."""
    with stage(seed, ONE) as play:
        play.work()
        play.wait(acknowledged=40)
        for _ in range(4):
            leader = play.leader("orders")
            followers = play.followers("orders")
            # What the leader sends reaches no node any more; it still receives.
            for each in followers:
                play.network.block(leader.name, each.name)
            play.rest(play.random.uniform(0.0, 0.02))
            told = partition_on(leader).high_watermark
            leader.kill()
            play.network.heal()
            play.until(lambda old=leader: play.image_of("orders").leader not in (-1, old.node_id), "another leads")
            next_leader = play.leader("orders")
            for _ in range(30):
                listed = play.ask(
                    next_leader,
                    ListOffsetsRequest(
                        replica_id=-1,
                        topics=[
                            ListOffsetsTopic(
                                name="orders", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
                            )
                        ],
                    ),
                    7,
                    ListOffsetsResponse,
                )
                if listed is None:
                    continue
                answer = listed.topics[0].partitions[0]
                assert answer.error_code or answer.offset >= told, "a client has seen more than that"
                play.rest(0.002)
            leader.start()
            play.wait_whole()


@pytest.mark.parametrize("seed", SEEDS)
def test_two_leaders_die_one_after_the_other(seed: int) -> None:
    """The third holds everything that was committed, has not heard that it is, and never got to fetch from the second:
    whatever it would cut on becoming its follower would be gone (KIP-101)."""
    with stage(seed, ONE) as play:
        play.work()
        play.wait(acknowledged=40)
        for _ in range(3):
            first = play.leader("orders")
            one, other = play.followers("orders")
            for each in (one, other):
                play.network.block(first.name, each.name)
            play.rest(play.random.uniform(0.0, 0.02))
            first.kill()
            play.network.heal()
            play.until(lambda old=first: play.image_of("orders").leader not in (-1, old.node_id), "another leads")
            second = play.leader("orders")
            third = other if second is one else one
            play.until(
                lambda follower=third, leader=second: partition_on(follower).leader_id == leader.node_id, "it follows"
            )
            # In that very moment: its first fetch is on its way.
            second.kill()
            first.start()
            play.rest(play.random.uniform(5.0, 8.0))
            second.start()
            play.wait_whole()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_follower_that_flushes_acknowledges_what_its_disk_has(seed: int) -> None:
    """flush.mode=ack on slow disks: the power goes out everywhere at once, and nothing acknowledged is gone."""
    topic = dataclasses.replace(ONE, configs={**ONE.configs, "flush.mode": "ack"})
    with stage(seed, topic) as play:
        play.work()
        for _ in range(3):
            for each in play.cluster.nodes.values():
                each.host.thread_factor = 100.0
            play.wait(acknowledged=50, within_s=60.0)
            for each in play.cluster.nodes.values():
                each.power_cut()
            for each in play.cluster.nodes.values():
                each.host.thread_factor = 1.0
                each.start()
            play.wait_whole()


def test_a_full_disk_gives_leadership_away_and_gets_it_back() -> None:
    with stage(5, ONE, settings={"leader.imbalance.check.interval.seconds": "5"}) as play:
        play.work()
        play.wait(acknowledged=40)
        leader = play.leader("orders")
        leader.disk.capacity_bytes = leader.disk.used_bytes = 0
        play.until(lambda: play.image_of("orders").leader not in (-1, leader.node_id), "another leads")
        play.wait(acknowledged=40)
        assert leader.node is not None
        assert leader.node.replicas.health.offline_dirs() == (leader.node.directory_id,)
        assert partition_on(leader).log.failure is None, "what is there can be read"
        leader.disk.capacity_bytes = CAPACITY_BYTES
        play.until(lambda: leader.node is not None and not leader.node.replicas.health.offline_dirs(), "there is room")
        play.wait_whole()


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_node_that_starts_on_a_full_disk_opens_its_logs_when_there_is_room(replicas: int) -> None:
    spread = dataclasses.replace(ORDERS, partitions=3, replicas=replicas)
    with stage(4, spread, on_all_nodes=True) as play:
        play.work()
        play.wait(acknowledged=100)
        node = play.leader("orders")
        node.power_cut()
        node.start()
        node.disk.full_share = 0.9
        play.until(lambda: node.node is not None and len(node.node.replicas.offline) > 0, "a log finds no room")
        play.rest(12.0)
        assert node.node is not None
        assert node.node.replicas.offline
        node.disk.full_share = 0.0
        play.until(lambda: node.node is not None and not node.node.replicas.offline, "they are open")
        play.wait_whole()
        assert node.lives == 2, "without another restart"
