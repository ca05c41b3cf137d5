"""One story for each trap that other replicated logs fell into. The trap is set on purpose; the invariants and the
checker of the simulation judge, and what a client must be told is asserted here.

Timing is drawn from the seed, so each story is told several times with other moments.
"""

from __future__ import annotations

import dataclasses

import pytest
from tests.hostile.batches import produce
from tests.simulation.stage import ORDERS, Play, stage
from tests.simulator.options import UNCLEAN, TopicOptions
from tests.simulator.world.cluster import SimNode
from tests.simulator.world.wire import Wire

from strandline.codec.columns import Record, encode_batch
from strandline.codec.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from strandline.codec.messages.delete_topics_response import DeleteTopicsResponse
from strandline.codec.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from strandline.codec.messages.fetch_response import FetchResponse
from strandline.codec.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from strandline.codec.messages.list_offsets_response import ListOffsetsResponse
from strandline.codec.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from strandline.codec.messages.offset_for_leader_epoch_response import OffsetForLeaderEpochResponse
from strandline.codec.messages.produce_response import ProduceResponse
from strandline.errors import DiskFailed, ErrorCode

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))]
ONE = dataclasses.replace(ORDERS, partitions=1)


# KIP-101, KIP-279: truncation by the high watermark loses or forks records


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_follower_that_comes_back_just_before_its_leader_dies(seed: int) -> None:
    """Its high watermark is behind what it holds; were it cut there, what it alone holds then would be gone."""
    with stage(seed, ONE) as play:
        play.work()
        for _ in range(4):
            play.wait(acknowledged=60)
            follower = play.random.choice(play.followers("orders"))
            follower.kill()
            play.rest(play.random.uniform(0.0, 0.5))
            follower.start()
            play.rest(play.random.uniform(0.1, 3.0))
            leader = play.leader("orders")
            leader.kill()
            play.rest(play.random.uniform(0.5, 9.0))
            leader.start()
            play.wait_whole()


@pytest.mark.parametrize("seed", SEEDS)
def test_leaders_in_quick_succession_fork_no_log(seed: int) -> None:
    """Each leader writes something that no follower gets, and is cut off; then all of them meet again."""
    with stage(seed, ONE, settings={"broker.session.timeout.ms": "3000"}) as play:
        play.work()
        for _ in range(3):
            play.wait(acknowledged=40)
            leader = play.leader("orders")
            for other in play.followers("orders"):
                play.network.block(leader.name, other.name)
                play.network.block(other.name, leader.name)
            # Its clients still reach it, and it appends what it cannot commit.
            play.rest(play.random.uniform(4.0, 8.0))
            if play.random.random() < 0.5:
                leader.kill()
                play.network.heal()
                play.rest(play.random.uniform(0.0, 1.0))
                leader.start()
            play.network.heal()
            play.wait_whole()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_cut_that_the_power_took_back_leaves_no_high_watermark_above_it(seed: int) -> None:
    """An old leader was cut, went on, and noted how far all was committed. Then its disk forgot the cut, and not the
    note: what lies below the note is not what was committed there."""
    settings = {"replica.high.watermark.checkpoint.interval.ms": "200", "broker.session.timeout.ms": "3000"}
    async_flush = dataclasses.replace(ONE, configs={**ONE.configs, "flush.mode": "async"})
    with stage(seed, async_flush, settings=settings) as play:
        play.work()
        play.wait(acknowledged=40)
        old = play.leader("orders")
        epoch = play.image_of("orders").leader_epoch
        for other in play.followers("orders"):
            play.network.block(old.name, other.name)
            play.network.block(other.name, old.name)
        play.rest(1.5)
        assert old.node is not None
        forked = old.node.partition("orders", 0)
        assert forked is not None
        forked.log.flush_now()
        play.until(lambda: play.image_of("orders").leader_epoch > epoch, "another leads")
        play.wait(acknowledged=60)
        play.network.heal()
        play.wait_whole()
        play.rest(1.5)
        old.power_cut()
        old.start()
        play.rest(5.0)


# KIP-320: a client that does not see a truncation


def epochs_asked(play: Play, target: SimNode, epoch: int) -> list[int]:
    """What Fetch, ListOffsets and OffsetForLeaderEpoch answer to a client that believes in `epoch`."""
    fetch = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[
            FetchTopic(
                topic_id=play.topic_id("orders"),
                partitions=[FetchPartition(partition=0, current_leader_epoch=epoch, partition_max_bytes=1 << 20)],
            )
        ],
    )
    fetched = play.ask(target, fetch, 16, FetchResponse)
    look = ListOffsetsPartition(partition_index=0, current_leader_epoch=epoch, timestamp=-1)
    listed = play.ask(
        target,
        ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="orders", partitions=[look])]),
        7,
        ListOffsetsResponse,
    )
    ends = play.ask(
        target,
        OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                OffsetForLeaderTopic(
                    topic="orders",
                    partitions=[OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch, leader_epoch=0)],
                )
            ],
        ),
        4,
        OffsetForLeaderEpochResponse,
    )
    return [
        fetched.responses[0].partitions[0].error_code,
        listed.topics[0].partitions[0].error_code,
        ends.topics[0].partitions[0].error_code,
    ]


def test_an_old_epoch_is_fenced_and_a_future_one_unknown_on_every_client_api() -> None:
    with stage(1, ONE) as play:
        play.work()
        play.wait(acknowledged=40)
        before = play.image_of("orders").leader_epoch
        leader = play.leader("orders")
        leader.kill()
        play.until(lambda: play.image_of("orders").leader_epoch > before, "another leads")
        leader.start()
        play.wait_whole()
        now = play.image_of("orders").leader_epoch
        current = play.leader("orders")
        assert epochs_asked(play, current, before) == [ErrorCode.FENCED_LEADER_EPOCH] * 3
        assert epochs_asked(play, current, now + 5) == [ErrorCode.UNKNOWN_LEADER_EPOCH] * 3
        assert epochs_asked(play, current, now) == [ErrorCode.NONE] * 3


# KIP-207: offsets that go back after an election


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_the_end_of_a_partition_never_goes_back_for_a_client_that_keeps_asking(seed: int) -> None:
    with stage(seed, ONE) as play:
        play.work()
        watchers = [play.run.consumer(ONE, f"watcher-{number}", looks_every_s=0.05) for number in range(2)]
        for _ in range(4):
            play.wait(acknowledged=60)
            leader = play.leader("orders")
            if play.random.random() < 0.5:
                leader.stop(leader.start)
            else:
                leader.kill()
            play.rest(play.random.uniform(0.5, 9.0))
            if not leader.is_up:
                leader.start()
            play.wait_whole()
        for watcher in watchers:
            watcher.stop()


# KIP-966: the last replica standing, and an unclean shutdown


@pytest.mark.parametrize("seed", SEEDS)
def test_the_last_in_sync_replica_loses_power(seed: int) -> None:
    """Two are gone. The third alone may commit nothing (min.insync.replicas=2), goes on appending, and loses power.

    It is the only copy from the moment on at which the others are out of the in-sync set; `flush.mode=auto` then brings
    to the disk what it has.
    """
    with stage(seed, ONE) as play:
        play.work()
        play.wait(acknowledged=60)
        last = play.leader("orders")
        others = play.followers("orders")
        for other in others:
            other.kill()
            play.rest(play.random.uniform(0.0, 2.0))
        # No controller is left to decide on the in-sync set: one comes back, and is made to wait outside.
        others[0].start()
        play.until(lambda: play.controller() is not None, "there is a controller")
        play.until(lambda: others[1].node_id not in play.image_of("orders").isr, "one is out")
        others[0].kill()
        play.rest(play.random.uniform(0.5, 6.0))
        if play.image_of("orders").isr == [last.node_id]:
            last.power_cut()
        else:
            last.kill()
        for other in others:
            other.start()
            play.rest(play.random.uniform(0.0, 5.0))
        last.start()
        play.wait_whole()


# min.insync.replicas=1: whom the controller put out of the in-sync set, and what the leader knew of it

ALONE = dataclasses.replace(
    ORDERS, partitions=4, configs={**ORDERS.configs, "min.insync.replicas": "1", "flush.mode": "async"}
)
PATIENT = {"replica.lag.time.max.ms": "60000"}
"""No leader shrinks a set here: it is the controller that no longer hears of the members."""


def partition_beside_the_controller(play: Play) -> int:
    """One whose replicas all live on other nodes than the only controller."""
    return next(
        index
        for index in range(ALONE.partitions)
        if play.controller().node_id not in play.image_of("orders", index).replicas
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_a_leader_loses_power_and_is_the_last_that_is_missed(seed: int) -> None:
    """Its followers hang a little before; their sessions end first, and it alone is left in the in-sync set."""
    with stage(seed, ALONE, nodes=4, controllers=1, settings=PATIENT) as play:
        play.work()
        play.wait(acknowledged=100)
        index = partition_beside_the_controller(play)
        leader, followers = play.leader("orders", index), play.followers("orders", index)
        for follower in followers:
            follower.pause()
        play.rest(play.random.uniform(1.5, 4.0))
        leader.power_cut()
        play.until(lambda: play.image_of("orders", index).isr == [leader.node_id], "the others are out")
        play.rest(play.random.uniform(0.0, 5.0))
        leader.start()
        play.rest(play.random.uniform(0.0, 10.0))
        for follower in followers:
            follower.resume()
        play.wait_whole()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_leader_that_was_made_the_only_one_in_sync_dies_before_it_can_say_that_it_knows(seed: int) -> None:
    """What it took in meanwhile was never acknowledged: the one that was put out last may lead."""
    with stage(seed, ALONE, nodes=4, controllers=1, settings=PATIENT) as play:
        play.work()
        play.wait(acknowledged=100)
        index = partition_beside_the_controller(play)
        controller, leader, followers = (
            play.controller(),
            play.leader("orders", index),
            play.followers("orders", index),
        )
        for follower in followers:
            follower.pause()

        def knows() -> bool:
            assert leader.node is not None
            known = leader.node.image.partition("orders", index)
            return known is not None and known.isr == [leader.node_id]

        play.until(knows, "it knows that it is alone")
        play.network.block(leader.name, controller.name)
        play.rest(play.random.uniform(0.5, 4.0))
        leader.power_cut()
        play.network.unblock(leader.name, controller.name)
        for follower in followers:
            follower.resume()
        play.rest(play.random.uniform(0.0, 2.0))
        leader.start()
        play.wait_whole()


@pytest.mark.slow
@pytest.mark.parametrize("by_leader", [True, False], ids=["by the leader", "by the controller"])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_only_one_in_sync_loses_power_as_soon_as_it_is_that(seed: int, by_leader: bool) -> None:
    """With `flush.mode=auto` its disk holds what was committed with others before it counts alone."""
    topic = dataclasses.replace(ALONE, configs={**ALONE.configs, "flush.mode": "auto"})
    impatient = {"replica.lag.time.max.ms": "2000", "broker.session.timeout.ms": "20000"}
    with stage(seed, topic, nodes=4, controllers=1, settings=impatient if by_leader else PATIENT) as play:
        play.work()
        play.wait(acknowledged=100)
        index = partition_beside_the_controller(play)
        leader, followers = play.leader("orders", index), play.followers("orders", index)
        for follower in followers:
            follower.pause()

        def is_alone() -> bool:
            image = play.image_of("orders", index)
            return image.isr == [leader.node_id] and not image.eligible_leader_replicas

        play.until(is_alone, "only the leader is in sync")
        leader.power_cut()
        play.rest(play.random.uniform(0.0, 2.0))
        leader.start()
        for follower in followers:
            follower.resume()
        play.until(lambda: play.image_of("orders", index).leader >= 0, "there is a leader", 120.0)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_machine_after_the_other_loses_power(seed: int) -> None:
    """A machine is back before its session ends, with less than it had: it must not pass for one in sync."""
    with stage(seed, dataclasses.replace(ONE, configs={**ONE.configs, "flush.mode": "async"})) as play:
        play.work()
        for node in [*play.cluster.nodes.values(), *play.cluster.nodes.values()]:
            play.wait(acknowledged=60)
            node.power_cut()
            play.rest(play.random.uniform(0.0, 2.0))
            node.start()
            play.rest(play.random.uniform(0.0, 1.0))
            leader = play.leader("orders")
            if leader is not node:
                leader.kill()
                play.rest(play.random.uniform(0.1, 8.0))
                leader.start()
            play.wait_rejoined()


# KIP-903, KIP-841: a rebooted broker that is not what it was


@pytest.mark.parametrize("seed", SEEDS)
def test_a_broker_with_a_new_empty_disk_is_not_in_sync_by_what_its_predecessor_held(seed: int) -> None:
    with stage(seed, ONE, nodes=5, controllers=3) as play:
        play.work()
        for _ in range(3):
            play.wait(acknowledged=60)
            replaced = play.node(play.random.choice([4, 5]))
            replaced.kill()
            play.rest(play.random.uniform(0.0, 1.0))
            replaced.disk.wipe()
            replaced.format(play.cluster.cluster_id)
            replaced.start()
            play.rest(play.random.uniform(0.0, 3.0))
            leader = play.leader("orders")
            if leader is not replaced:
                leader.kill()
                play.rest(play.random.uniform(0.5, 9.0))
                leader.start()
            play.wait_whole()


# KIP-858: a directory that is not the one on record


@pytest.mark.parametrize("seed", SEEDS)
def test_a_broker_whose_disk_was_replaced_leads_when_it_is_the_last_in_sync(seed: int) -> None:
    """Every partition has two replicas. A broker that is no controller gets a new disk, and one that it shares
    partitions with dies."""
    topic = dataclasses.replace(ORDERS, replicas=2, partitions=10, configs={"min.insync.replicas": "1"})
    with stage(seed, topic, nodes=5, controllers=3, on_all_nodes=True) as play:
        play.work()
        play.wait(acknowledged=100)
        replicas = [set(play.image_of("orders", index).replicas) for index in range(topic.partitions)]
        # Which brokers share partitions depends on the seed. Take 5 if possible: it is no controller either.
        partner = max(set().union(*(each for each in replicas if 4 in each)) - {4})
        shared = [index for index, each in enumerate(replicas) if each == {4, partner}]
        replaced = play.node(4)
        replaced.kill()
        replaced.disk.wipe()
        replaced.format(play.cluster.cluster_id)
        replaced.start()
        play.rest(play.random.uniform(0.0, 2.0))
        play.wait_rejoined()
        other = play.node(partner)
        other.kill()
        for index in shared:
            play.until(lambda index=index: play.image_of("orders", index).leader == 4, "the new disk leads")  # type: ignore[misc]
        other.start()
        play.wait_whole()


# KIP-497: the leader and the controller disagree on who is in sync


@pytest.mark.parametrize("seed", SEEDS)
def test_a_leader_that_the_controller_cannot_hear_counts_nobody_out(seed: int) -> None:
    with stage(seed, ONE, nodes=5, controllers=3, settings={"replica.lag.time.max.ms": "1500"}) as play:
        play.work()
        for _ in range(4):
            play.wait(acknowledged=40)
            leader = play.leader("orders")
            follower = play.random.choice(play.followers("orders"))
            controllers = [play.node(each) for each in play.cluster.controllers if play.node(each) is not leader]
            for controller in controllers:
                play.network.block(leader.name, controller.name)
                if play.random.random() < 0.5:
                    play.network.block(controller.name, leader.name)
            play.rest(play.random.uniform(0.0, 1.0))
            follower.pause()
            play.rest(play.random.uniform(1.0, 6.0))
            follower.resume()
            if play.random.random() < 0.5:
                leader.kill()
            play.network.heal()
            play.rest(play.random.uniform(0.0, 4.0))
            if not leader.is_up:
                leader.start()
            play.wait_whole()


# KIP-631: a zombie


@pytest.mark.parametrize("seed", SEEDS)
def test_a_leader_that_was_stopped_past_its_session_acknowledges_nothing(seed: int) -> None:
    """Requests wait in its sockets while another leads; when it goes on, it must not take them for its own."""
    with stage(seed, ONE) as play:
        play.work()
        for _ in range(3):
            play.wait(acknowledged=60)
            zombie = play.leader("orders")
            epoch = play.image_of("orders").leader_epoch
            zombie.pause()
            play.until(lambda epoch=epoch: play.image_of("orders").leader_epoch > epoch, "another leads")
            play.wait(acknowledged=60)
            # It learns nothing of this before its old clients come.
            others = [each for each in play.cluster.nodes.values() if each is not zombie]
            if play.random.random() < 0.5:
                for other in others:
                    play.network.block(other.name, zombie.name)
            zombie.resume()
            play.rest(play.random.uniform(0.1, 3.0))
            play.network.heal()
            play.wait_whole()


# Answers that are late, or come after the question was changed


@pytest.mark.parametrize("seed", SEEDS)
def test_answers_that_are_late_or_lost_are_never_taken_for_others(seed: int) -> None:
    with stage(seed) as play:
        play.network.spike_share, play.network.spike_s = 0.05, 3.0
        play.network.fragment_share = 0.2
        play.work()
        for _ in range(15):
            play.rest(play.random.uniform(0.2, 2.0))
            ends = [each for each in play.network.transports.values() if each.own_host.startswith("node")]
            for end in play.random.sample(ends, min(len(ends), 6)):
                play.network.reset(end)
            if play.random.random() < 0.2:
                leader = play.leader("orders")
                leader.kill()
                play.rest(play.random.uniform(0.1, 3.0))
                leader.start()
        play.network.spike_share = 0.0


# A disk that fails under a follower


@pytest.mark.slow
def test_a_follower_whose_log_failed_acknowledges_nothing_more() -> None:
    with stage(3, ONE) as play:
        play.work()
        play.wait(acknowledged=40)
        leader = play.leader("orders")
        follower, *_ = play.followers("orders")
        assert leader.node is not None
        assert follower.node is not None
        failed, led = follower.node.partition("orders", 0), leader.node.partition("orders", 0)
        assert failed is not None
        assert led is not None
        failed.log.fail(DiskFailed("a sync failed"))
        held = failed.log_end_offset
        for tenth in range(150):
            play.rest(0.1)
            assert led.in_sync is None or led.in_sync.followers[follower.node_id].end_offset <= held
            # Until replica.lag.time.max.ms is over its leader may still count on it.
            assert tenth < 60 or follower.node_id not in play.image_of("orders").isr
        follower.kill()
        follower.start()


# Unclean elections


def test_without_an_in_sync_replica_nobody_leads() -> None:
    with stage(5, ONE) as play:
        play.work()
        play.wait(acknowledged=40)
        behind, *_ = play.followers("orders")
        behind.kill()
        play.until(lambda: behind.node_id not in play.image_of("orders").isr, "it is out of the in-sync set")
        play.wait(acknowledged=40)
        held = play.run.history.acknowledged
        in_sync = [each for each in play.cluster.nodes.values() if each is not behind]
        stopped = [each for each in in_sync if each is not play.controller()]
        # One member of the set and the one behind are up: the quorum lives, and the partition must wait for its leader.
        for each in stopped:
            each.kill()
        behind.start()
        play.rest(20.0)
        assert play.image_of("orders").leader != behind.node_id
        for each in stopped:
            each.start()
        play.wait_whole()
        assert play.run.history.acknowledged >= held


def test_a_topic_that_allows_it_is_led_by_whoever_is_there() -> None:
    loose = TopicOptions(
        "loose",
        1,
        2,
        {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"},
        allowed=UNCLEAN,
        may_lose=True,
    )
    with stage(6, loose, nodes=5, controllers=3) as play:
        play.work()
        play.wait(acknowledged=40)
        leader = play.leader("loose")
        (behind,) = play.followers("loose")
        behind.kill()
        play.until(lambda: behind.node_id not in play.image_of("loose").isr, "it is out of the in-sync set")
        play.wait(acknowledged=40)
        leader.kill()
        behind.start()
        play.until(lambda: play.image_of("loose").leader == behind.node_id, "the one behind leads")
        play.wait(acknowledged=40)
        leader.start()
        play.wait_whole()


# KIP-392: readers at followers


@pytest.mark.parametrize("seed", SEEDS)
def test_a_reader_at_a_follower_never_sees_what_is_taken_back(seed: int) -> None:
    with stage(seed, ONE) as play:
        play.work()
        readers = [
            play.run.consumer(ONE, f"follower-reader-{number}", rewinds_every_s=5.0, follows_replicas=True)
            for number in range(2)
        ]
        for _ in range(3):
            play.wait(acknowledged=60)
            leader = play.leader("orders")
            for other in play.followers("orders"):
                play.network.block(leader.name, other.name)
            play.rest(play.random.uniform(0.5, 8.0))
            leader.kill()
            play.network.heal()
            play.rest(play.random.uniform(0.5, 8.0))
            leader.start()
            play.wait_whole()
        for reader in readers:
            reader.stop()


# KIP-516: a topic that is made again under the same name


@pytest.mark.parametrize("seed", SEEDS)
def test_records_of_a_deleted_topic_are_not_in_its_namesake(seed: int) -> None:
    """One replica sleeps through the end of the old topic and the beginning of the new one."""
    with stage(seed, ONE) as play:
        play.work()
        play.wait(acknowledged=60)
        sleeper = play.random.choice(play.followers("orders"))
        for client in (*play.run.producers, *play.run.consumers):
            client.stop()
        play.until(lambda: all(producer.is_idle for producer in play.run.producers), "all is acknowledged")
        sleeper.kill()
        old = play.topic_id("orders")
        answer = play.ask(
            play.controller(),
            DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")], timeout_ms=5_000),
            6,
            DeleteTopicsResponse,
        )
        assert answer.responses[0].error_code == ErrorCode.NONE
        play.until(lambda: "orders" not in play.run.invariants.image.topics, "the topic is gone")
        # What was written to the old one is not to be looked for in the new one.
        play.run.history.ops.clear()
        play.run.history.surprises.clear()
        play.run.producers.clear()
        play.run.consumers.clear()
        play.run.create(ONE)
        assert play.topic_id("orders") != old
        play.work()
        play.wait(acknowledged=40)
        sleeper.start()
        play.wait_whole()
        # The sleeper leads, if it can be made to: what it shows then is the new topic's.
        leader = play.leader("orders")
        if leader is not sleeper:
            leader.kill()
            play.wait(acknowledged=40)
            leader.start()


# A start takes time: what comes in between


@pytest.mark.parametrize("how", ["stop", "kill", "power_cut"])
def test_a_node_that_ends_while_it_opens_its_logs_loses_nothing(how: str) -> None:
    """What it has not opened yet stays as the life before left it: neither forgotten nor taken for whole."""
    with stage(3, dataclasses.replace(ORDERS, partitions=6)) as play:
        play.work()
        for _ in range(3):
            play.wait(acknowledged=60)
            follower = play.random.choice(play.followers("orders"))
            follower.kill()
            play.rest(play.random.uniform(0.0, 0.5))
            follower.start()
            half_open = begin_opening(play, follower)
            getattr(follower, how)()
            play.until(lambda follower=follower: not follower.is_up, "the node has ended")
            assert len(half_open) < 6
            follower.start()
            play.wait_whole()


def begin_opening(play: Play, follower: SimNode) -> list[str]:
    """Let the node open one log in each turn, until the first is there; the logs that are."""
    node = follower.node
    assert node is not None
    node.replicas.work_s_max = -1.0
    play.until(lambda: any(each.topic == "orders" for each in node.replicas.all()), "the first log is open")
    return [repr(each) for each in node.replicas.all() if each.topic == "orders"]


@pytest.mark.parametrize("seed", [0, 1])
def test_a_whole_cluster_that_is_stopped_at_once_does_not_wait_for_itself(seed: int) -> None:
    """The last ones find neither a controller nor anybody who could take over from them."""
    with stage(seed, ONE) as play:
        play.work()
        play.wait(acknowledged=60)
        for each in list(play.cluster.up()):
            each.stop()
        play.until(lambda: not play.cluster.up(), "all have ended", within_s=4.0)
        for each in play.cluster.nodes.values():
            each.start()
        play.wait_whole()
        assert all(each.node.directory.was_clean for each in play.cluster.up() if each.node is not None)


# KIP-98: a retry is stored once, also where its broker stood still for longer than it remembers a silent producer


@pytest.mark.parametrize("seed", SEEDS)
def test_a_broker_that_was_stopped_reads_retries_before_it_forgets_their_producer(seed: int) -> None:
    """They arrived while the producer was to be remembered, on several connections: the client gave each one up."""
    expiry = {"producer.id.expiration.ms": "20000", "producer.id.expiration.check.interval.ms": "1000"}
    alone = dataclasses.replace(ONE, replicas=1, configs={})
    with stage(seed, alone, nodes=1, controllers=1, settings=expiry) as play:
        leader, client = play.leader("orders"), play.client()
        producer = {"producer_id": 7, "producer_epoch": 0}
        first, second = (
            encode_batch([Record(timestamp_ms=client.runtime.now_ms(), value=b"paid")], base_sequence=each, **producer)
            for each in range(2)
        )
        answers: list[ProduceResponse] = []

        def send(batch: bytes) -> None:
            wire = Wire(client.runtime, client.network, leader.name, 9092, client_id="producer")
            wire.ask(produce("orders", batch), 12, ProduceResponse, answers.append, timeout_s=60.0)

        for batch in (first, second):
            send(batch)
            play.rest(0.5)
        leader.pause()
        for _ in range(3):
            play.rest(play.random.uniform(1.0, 5.0))
            send(second)
        play.rest(play.random.uniform(20.0, 30.0))
        leader.resume()
        play.until(lambda: len(answers) == 5, "all are answered")
        told = [each.responses[0].partition_responses[0] for each in answers]
        assert [(each.error_code, each.base_offset) for each in told] == [(0, 0)] + [(0, 1)] * 4
        # Nothing came for long enough: it is forgotten all the same.
        play.rest(25.0)
        assert leader.node is not None
        forgetful = leader.node.partition("orders", 0)
        assert forgetful is not None
        assert not forgetful.producers.entries
        # No history tells of these records.
        play.is_over = True
