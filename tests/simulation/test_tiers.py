"""Tiered topics in the simulated world: short runs under faults of the store, and stories about single cases.

`truth.tier_truth` says what must hold. The stories are rows of the table of failures in docs/testing.md.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.simulation.stage import ORDERS, Play, stage
from tests.simulation.test_users import focused
from tests.simulator.clients.consumer import Position, SimConsumer
from tests.simulator.options import UNCLEAN, SimOptions, TopicOptions
from tests.simulator.run import Result, run
from tests.simulator.tier_users import with_tiered_topics
from tests.simulator.world.cluster import STALE_COPY_S, SimNode
from tests.simulator.world.nemesis import HOUR_MS

from strandline.codec.columns import Record, columns_of
from strandline.codec.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from strandline.codec.messages.delete_topics_response import DeleteTopicsResponse
from strandline.codec.messages.fetch_response import PartitionData
from strandline.ids import TopicPartition

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
PROCESSES = {"kill": 3, "pause": 2, "isolate": 2, "stop": 1}
SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "strandline.remote.store.url": "memory://bucket",
    "remote.log.manager.task.interval.ms": "300",
    "log.retention.check.interval.ms": "500",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
}
TIERED = {
    **ORDERS.configs,
    "remote.storage.enable": "true",
    "internal.segment.bytes": "1500",
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "0",
}
TOPIC = dataclasses.replace(ORDERS, partitions=1, configs=TIERED)
HERE = TopicPartition("orders", 0)


# Short runs


def tiered(seed: int, faults: dict[str, int], *, safety_s: float = 25.0, **users: Any) -> SimOptions:
    """Return what a seed means with tiered topics, and with these faults only."""
    drawn = focused(seed, faults, safety_s=safety_s, **users)
    rng = random.Random(f"tier users {seed}")
    options = with_tiered_topics(drawn, rng, {"orders", "plain", "loose", "brief"})
    return dataclasses.replace(options, nemesis=dataclasses.replace(drawn.nemesis, pause_s=1.5))


def survives(options: SimOptions) -> Result:
    result = run(options)
    print(result, dict(result.fault_kinds))
    assert result.failure is None, result.failure
    assert result.copied > 0
    assert result.store_reads > 0
    return result


@pytest.mark.parametrize("seed", SEEDS)
def test_brokers_that_die_while_they_copy(seed: int) -> None:
    survives(tiered(seed, PROCESSES))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_store_that_is_away_overloaded_and_slow(seed: int) -> None:
    survives(tiered(seed, {"store outage": 2, "store overload": 3, "slow store": 2, "kill": 2}))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_store_that_loses_answers_and_uploads(seed: int) -> None:
    survives(tiered(seed, {"lost store answers": 3, "cut uploads": 3, "expired credentials": 1, "kill": 2}))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_store_that_returns_wrong_bytes(seed: int) -> None:
    survives(tiered(seed, {"wrong ranges": 4, "kill": 1}))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_topics_that_are_created_again_while_lists_are_late(seed: int) -> None:
    faults = {"late lists": 3, "lost store answers": 1, "kill": 1, "pause": 1}
    survives(tiered(seed, faults, every_s=0.7, duties=("recreate",) * 5))


@pytest.mark.parametrize("seed", SEEDS)
def test_replicas_that_begin_behind_the_store(seed: int) -> None:
    survives(tiered(seed, {"replaced disk": 4, "kill": 3, "power cut": 1}, safety_s=40.0))


@pytest.mark.parametrize("seed", SEEDS)
def test_retention_across_the_seam(seed: int) -> None:
    survives(tiered(seed, {"kill": 2, "store overload": 1, "pause": 1, "replaced disk": 1}, cleaning=True))


# Stories


class Reader(SimConsumer):
    """A consumer that notes the batches that it gets: by base offset, last offset and leader epoch."""

    def _records(self, position: Position, told: PartitionData) -> list[Record]:
        self.batches = getattr(self, "batches", {})
        for columns in columns_of(told.records or b""):
            header = columns.header
            self.batches[header.base_offset] = header.last_offset, header.leader_epoch, header.crc
        return super()._records(position, told)


@contextmanager
def tiers(seed: int, *topics: TopicOptions, **settings: str) -> Iterator[Play]:
    """Begin with clients at work, and with segments in the bucket that are nowhere else."""
    with stage(seed, *(topics or (TOPIC,)), settings={**SETTINGS, **settings}, on_all_nodes=True) as play:
        play.work()
        for producer in play.run.producers:
            producer.pause_s = 0.3
        play.until(lambda: local_start(play, play.leader("orders")) > 0, "some records are in the store alone", 60.0)
        yield play
        play.run.nemesis.heal()
        play.run.options = dataclasses.replace(play.run.options, has_tiers=True)


def local_start(play: Play, node: SimNode) -> int:
    found = None if node.node is None else node.node.partition("orders", 0)
    return -1 if found is None else found.log.log_start_offset


def half_copied(play: Play) -> list[str]:
    """Return objects of segments that are not readable."""
    readable = play.run.tier_truth.readable
    return [key for key in play.cluster.bucket.objects if "/seg/" in key and key not in readable]


def wait_copied(play: Play, count: int = 3) -> None:
    wanted = play.run.tier_truth.copied + count
    play.until(lambda: play.run.tier_truth.copied >= wanted, f"{count} more segments are copied", 90.0)


def read_from_start(play: Play, topic: TopicOptions = TOPIC) -> Reader:
    """Read all there is, across the seam."""
    run = play.run
    reader = Reader(
        play.network,
        play.cluster.host(f"reader-{play.loop.events}"),
        run.history,
        play.cluster.bootstrap,
        [TopicPartition(topic.name, 0)],
        is_final=True,
        loses_are_legal=topic.may_lose,
    )
    reader.leads = run._leads
    play.until(lambda: reader.is_at_end, "all is read", 90.0)
    reader.stop()
    return reader


@pytest.mark.parametrize("rest_s", [10.0, pytest.param(STALE_COPY_S + 20.0, marks=pytest.mark.slow)])
def test_a_leader_that_hung_between_upload_and_record_is_fenced(rest_s: float) -> None:
    """It wakes up after another leader was elected, and after that one has deleted what it had begun."""
    with tiers(1) as play:
        play.until(lambda: half_copied(play), "objects are there, and no record makes them readable")
        old, begun = play.leader("orders"), half_copied(play)
        old.pause()
        play.until(lambda: play.image_of("orders").leader != old.node_id, "another node leads", 60.0)
        wait_copied(play)
        play.rest(rest_s)
        old.resume()
        play.rest(5.0)
        assert not set(begun) & set(play.run.tier_truth.readable)
        play.until(lambda: not set(begun) & set(play.cluster.bucket.objects), "they are deleted", 120.0)


def test_an_upload_whose_answer_is_lost_counts_once() -> None:
    with tiers(2) as play:
        for node in play.cluster.nodes.values():
            node.store_faults.lost = 0.7
        wait_copied(play, 2)
        play.rest(10.0)


@pytest.mark.slow
def test_five_minutes_without_the_store_cost_nothing_but_room() -> None:
    """Produces go on, nothing is deleted here that the store lacks, and no restart is needed afterwards."""
    with tiers(3) as play:
        for node in play.cluster.nodes.values():
            node.store_faults.unavailable = 1.0
        for producer in play.run.producers:
            producer.pause_s = 3.0
        play.rest(5.0)
        start, copied = local_start(play, play.leader("orders")), play.run.tier_truth.copied
        play.rest(295.0)
        play.wait(acknowledged=20)
        assert local_start(play, play.leader("orders")) == start
        assert play.run.tier_truth.copied == copied
        lives = {node.name: node.lives for node in play.cluster.nodes.values()}
        for node in play.cluster.nodes.values():
            node.store_faults.unavailable = 0.0
        wait_copied(play)
        assert {node.name: node.lives for node in play.cluster.nodes.values()} == lives


def test_expired_credentials_are_renewed_without_a_restart() -> None:
    with tiers(4) as play:
        leader = play.leader("orders")
        leader.store_faults.denied = 1.0
        play.rest(20.0)
        play.wait(acknowledged=20)
        copied = play.run.tier_truth.copied
        leader.store_faults.denied = 0.0
        play.until(lambda: play.run.tier_truth.copied > copied, "copying goes on", 60.0)


@pytest.mark.slow
def test_reads_of_the_store_keep_their_limit() -> None:
    limit = {"remote.log.manager.fetch.max.bytes.per.second": "1000", "remote.log.manager.fetch.quota.window.num": "2"}
    with tiers(9, **limit) as play:
        wait_copied(play, 20)
        for consumer in play.run.consumers:
            consumer.stop()
        node = play.leader("orders").node
        assert node is not None
        cache, began = node.late.tiering.get().cache, play.loop.now
        before = cache.read_bytes
        read_from_start(play)
        read_bytes, took_s = cache.read_bytes - before, play.loop.now - began
        assert read_bytes > 20_000
        # A window passes at once, and the last segment with its indexes as a whole.
        assert read_bytes <= 1000 * (took_s + 2) + 3000
        play.is_over = True


def test_no_segment_of_a_lost_branch_is_served() -> None:
    """The store keeps what a leader copied alone. An unclean election takes it back, and other records come."""
    config = {**TIERED, "min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    topic = dataclasses.replace(TOPIC, replicas=2, configs=config, may_lose=True, allowed=UNCLEAN)
    with tiers(5, topic) as play:
        old, other = play.leader("orders"), play.followers("orders")[0]
        other.kill()
        wait_copied(play, 4)
        lost_at = max(each.end_offset for each in segments(play))
        old.kill()
        other.start()
        play.until(lambda: play.image_of("orders").leader == other.node_id, "an unclean election", 60.0)
        epoch = play.image_of("orders").leader_epoch
        old.start()
        play.until(
            lambda: any(each.epochs[-1][0] >= epoch for each in segments(play)), "the new branch is copied", 90.0
        )
        assert any(each.epochs[-1][0] < epoch and each.end_offset == lost_at for each in segments(play))
        play.rest(10.0)
        found = read_from_start(play, topic)
        truth = play.run.invariants.partitions[play.topic_id("orders").bytes, 0]
        wrong = {
            at: (each, truth.batches.get(at)) for at, each in found.batches.items() if truth.batches.get(at) != each
        }
        assert not wrong
        assert len(found.batches) > 20


def segments(play: Play) -> list[Any]:
    return [each for state in play.run.tier_truth.fold.states.values() for each in state.readable()]


def test_an_interrupted_deletion_of_a_topic_goes_on() -> None:
    second = dataclasses.replace(TOPIC, name="other")
    with tiers(6, TOPIC, second) as play:
        wait_copied(play, 8)
        topic_id = str(play.topic_id("other"))
        for producer in play.run.producers:
            if producer.topics == ["other"]:
                producer.stop()
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="other")], timeout_ms=5000)
        assert play.ask(play.controller(), request, 6, DeleteTopicsResponse) is not None
        for node in play.cluster.nodes.values():
            node.store_faults.delay_s = 2.0
        play.rest(3.0)
        for node in play.cluster.nodes.values():
            node.kill()
            node.start()
        play.until(
            lambda: not any(topic_id in key for key in play.cluster.bucket.objects), "its objects are deleted", 120.0
        )
        play.is_over = True


@pytest.mark.slow
def test_a_clock_that_is_wrong_by_hours_ends_no_copy_early() -> None:
    """A copy of another node counts as abandoned by a monotonic clock, which no administrator sets."""
    with tiers(7) as play:
        play.until(lambda: half_copied(play), "objects are there, and no record makes them readable")
        old, begun = play.leader("orders"), half_copied(play)
        old.pause()
        play.until(lambda: play.image_of("orders").leader != old.node_id, "another node leads", 60.0)
        wait_copied(play, 1)
        play.rest(STALE_COPY_S / 4)
        for node in play.cluster.nodes.values():
            node.host.jump_clock(2 * HOUR_MS)
        wait_copied(play, 2)
        play.rest(5.0)
        assert set(begun) <= set(play.cluster.bucket.objects)
        for node in play.cluster.nodes.values():
            node.host.jump_clock(-2 * HOUR_MS)
        old.resume()


@pytest.mark.slow
def test_a_follower_that_is_killed_while_it_begins_behind_the_store_knows_all_epochs() -> None:
    """It must find records in the store by their epochs when it leads."""
    with tiers(8) as play:
        for _ in range(3):
            leader, epoch = play.leader("orders"), play.image_of("orders").leader_epoch
            leader.kill()
            play.until(lambda before=epoch: play.image_of("orders").leader_epoch > before, "another node leads", 60.0)
            play.wait(acknowledged=50)
            leader.start()
            play.wait_rejoined()
        follower = play.followers("orders")[0]
        for delay_s in (0.0, 0.0005, 0.001, 0.002, 0.004):
            follower.power_cut()
            follower.replace_disk()
            play.run.invariants.on_disk_replaced(follower)
            follower.start()
            play.until(lambda: local_start(play, follower) > 0, "it begins behind the store", 90.0)
            play.rest(delay_s)
            follower.kill()
            follower.start()
            play.wait_rejoined()
            assert local_start(play, follower) > 0
