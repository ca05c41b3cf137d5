"""Replicas of a compacted topic that stay away until tombstones, and the markers of transactions, are removed.

A replica that missed a tombstone would hold the deleted value for ever, and serve it as a leader. So it begins again at
the start of its leader's log. `Table.check` folds every replica and compares it with a plain dictionary.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st
from tests.simulation.stage import Play, TopicOptions, stage
from tests.simulation.test_compaction_model import CONFIGS, KEYS, SETTINGS, TABLE, WRITES, Table, come_back, model, tell
from tests.simulator.truth.partition_truth import batches_between, data_offsets
from tests.simulator.world.cluster import SimNode

from strandline.codec.messages.scrub_partitions_request import ScrubPartitionsRequest, ScrubTopic
from strandline.codec.messages.scrub_partitions_response import ScrubPartitionsResponse
from strandline.codec.record_batch import parse_header
from strandline.partition.partition import Partition

THREE = TopicOptions("table", 1, 3, CONFIGS)
ALONE = TopicOptions("table", 1, 3, CONFIGS | {"min.insync.replicas": "1"})
SEEDS = (1, 2)
STORIES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), WRITES),
        st.tuples(st.just("put"), st.lists(st.tuples(KEYS, st.none()), min_size=1, max_size=3)),
        st.tuples(st.just("commit"), WRITES),
        st.tuples(st.just("abort"), WRITES),
        st.tuples(st.just("leave"), st.integers(1, 3)),
        st.tuples(st.just("return"), st.none()),
        st.tuples(st.just("wait"), st.none()),
        st.tuples(st.just("elect"), st.none()),
        st.tuples(st.just("power cut"), st.integers(1, 3)),
    ),
    min_size=6,
    max_size=20,
)


def replica(node: SimNode) -> Partition:
    assert node.node is not None
    partition = node.node.partition(*TABLE)
    assert partition is not None
    return partition


def is_held(node: SimNode, offset: int) -> bool:
    """Whether a node's log has a record, or a marker, at an offset."""
    log = replica(node).log
    return offset in data_offsets(batches_between(log, log.log_start_offset, log.log_end_offset))


def up(play: Play) -> list[SimNode]:
    return [each for each in map(play.node, play.image_of("table").replicas) if each.is_up]


def outlast(table: Table, offset: int, nodes: list[SimNode] | None = None) -> None:
    """Write and rest until none of the nodes, or of all that are up, holds the record at `offset`."""
    play = table.play
    for number in range(40):
        if not any(is_held(each, offset) for each in nodes or up(play)):
            return
        table.put([("filler", str(number))])
        play.rest(4.0)
    raise AssertionError(f"offset {offset} is never removed")


def delete_while_away(table: Table, away: list[SimNode]) -> int:
    """Stop nodes, delete a key, and wait until its tombstone is removed; the offset of the tombstone."""
    play = table.play
    table.put([("a", "1"), ("b", "1")])
    table.put([("c", "1")])
    play.wait_whole()
    for each in away:
        each.kill()
    play.until(lambda: len(play.image_of("table").isr) == 3 - len(away), "they are out of sync", 60.0)
    table.put([("b", None)])
    tombstone = play.run._records_of(TABLE).history[b"b"][-1]
    outlast(table, tombstone)
    return tombstone


def lead(play: Play, node: SimNode) -> None:
    """Have a node lead, by stopping others."""
    while play.leader("table") is not node:
        other = play.leader("table")
        other.kill()
        play.until(lambda other=other: play.image_of("table").leader not in (-1, other.node_id), "another one leads")  # type: ignore[misc]
        other.start()
        come_back(play)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_deleted_key_does_not_come_back_with_a_replica_that_was_away(seed: int) -> None:
    with stage(seed, THREE, settings=SETTINGS) as play:
        play.is_over = True
        table = Table(play)
        away = play.followers("table")[0]
        delete_while_away(table, [away])
        away.start()
        come_back(play)
        table.check()
        lead(play, away)
        table.check()
        assert replica(away).log.tombstone_horizon > 0


def test_what_was_removed_is_known_after_a_restart() -> None:
    with stage(3, THREE, settings=SETTINGS) as play:
        play.is_over = True
        table = Table(play)
        away = play.followers("table")[0]
        delete_while_away(table, [away])
        for each in play.cluster.up():
            each.power_cut()
        for each in play.cluster.nodes.values():
            each.start()
        come_back(play)
        table.check()


def test_a_copy_knows_what_was_removed_from_the_log_that_it_was_made_of() -> None:
    """The first one that returns has removed nothing itself, and leads when the second one returns."""
    with stage(4, ALONE, nodes=5, controllers=5, settings=SETTINGS) as play:
        play.is_over = True
        table = Table(play)
        first, second = play.followers("table")
        delete_while_away(table, [first, second])
        leader = play.leader("table")
        first.start()
        play.until(lambda: first.node_id in play.image_of("table").isr, "the first is in sync", 60.0)
        leader.kill()
        play.until(lambda: play.image_of("table").leader == first.node_id, "the first leads", 60.0)
        second.start()
        play.until(lambda: second.node_id in play.image_of("table").isr, "the second is in sync", 60.0)
        leader.start()
        come_back(play)
        table.check()


@pytest.mark.parametrize("after_s", [0.0, 0.002, 0.01, 0.05])
def test_the_power_fails_while_a_replica_begins_again(after_s: float) -> None:
    with stage(5, THREE, settings=SETTINGS) as play:
        play.is_over = True
        table = Table(play)
        away = play.followers("table")[0]
        delete_while_away(table, [away])
        old_end = replica(play.leader("table")).log_end_offset
        away.start()
        play.until(
            lambda: away.node is not None and (each := away.node.partition(*TABLE)) is not None and each.leader_id >= 0,
            "it follows",
        )
        play.until(
            lambda: replica(away).log.cut_offset is not None or replica(away).log_end_offset >= old_end,
            "it begins again",
        )
        play.rest(after_s)
        away.power_cut()
        away.start()
        come_back(play)
        table.check()


def test_a_replica_that_missed_a_marker_does_not_wait_for_it() -> None:
    """It would hold the first records of a transaction whose end it never sees."""
    with stage(6, THREE, settings=SETTINGS) as play:
        play.is_over = True
        table = Table(play)
        away = play.followers("table")[0]
        table.put([("a", "1")])
        play.wait_whole()
        table.open([("b", "1")])
        end = replica(play.leader("table")).log_end_offset
        play.until(lambda: replica(away).log.flushed_offset >= end, "the record is on its disk")
        away.kill()
        play.until(lambda: len(play.image_of("table").isr) == 2, "it is out of sync", 60.0)
        table.end(commits=True)
        marker = max(play.run._records_of(TABLE).markers)
        table.put([("b", "2")])
        for number in range(40):
            if all(replica(each).log.tombstone_horizon > marker for each in up(play)):
                break
            table.put([("filler", str(number))])
            play.rest(4.0)
        away.start()
        come_back(play)
        table.check()
        lead(play, away)
        table.put([("c", "1")])
        assert replica(away).last_stable_offset > end


def stop_cleaning(node: SimNode) -> None:
    """A cleaner that is slow, or whose disk is full: for as long as this process lives."""
    assert node.node is not None
    node.node.cleaner.hold(replica(node), lambda: None)


def damage(play: Play, node: SimNode, offset: int) -> None:
    """Flip a bit of the batch at an offset, or of the next one that is there, while the node is down."""
    log = replica(node).log
    segment = log.segments[max(0, bisect_right(log.base_offsets, offset) - 1)]
    path, size = segment.path, segment.size_bytes
    node.stop()
    play.until(lambda: not node.is_up, "it has stopped")
    content, place = node.disk.read_whole(path), 0
    while (header := parse_header(content, place)).last_offset < offset:
        place += header.size_bytes
        assert place < size, f"there is nothing from {offset} on"
    node.disk.damage(path, place + 63)
    node.start()


def mend(play: Play, node: SimNode) -> None:
    """Have the damage found, and wait until there is none."""
    come_back(play)
    request = ScrubPartitionsRequest(topics=[ScrubTopic("table", [0])])
    play.ask(node, request, 0, ScrubPartitionsResponse)

    def is_whole() -> bool:
        return (
            node.node is not None and not len(node.node.scrubber.corruption) and node.node.scrubber.corruption.found > 0
        )

    play.until(is_whole, "it is mended", 90.0)


def begin_with_values(table: Table) -> tuple[int, SimNode, SimNode]:
    """Write keys of which one is to be deleted: the offset of its value, the leader and a follower."""
    table.put([("a", "1"), ("b", "1")])
    # Large enough that what follows is in another segment, and stays there.
    for key in ("c", "d"):
        table.put([(key, key * 1500)])
    table.play.wait_whole()
    value = table.play.run._records_of(TABLE).history[b"b"][-1]
    return value, table.play.leader("table"), table.play.followers("table")[0]


def test_a_replica_is_not_mended_with_what_its_leader_removed() -> None:
    """The follower is not cleaned, and its tombstone is damaged; the leader has removed that tombstone."""
    with stage(8, THREE, settings=SETTINGS) as play:
        play.is_over = True
        table = Table(play)
        _, leader, follower = begin_with_values(table)
        stop_cleaning(follower)
        table.put([("b", None)])
        tombstone = play.run._records_of(TABLE).history[b"b"][-1]
        outlast(table, tombstone, [leader])
        damage(play, follower, tombstone)
        mend(play, follower)
        table.check()


def test_a_replica_is_not_mended_with_what_it_had_removed_itself() -> None:
    """The leader is not cleaned, and has the value still; the follower has removed its tombstone."""
    with stage(9, THREE, settings=SETTINGS) as play:
        play.is_over = True
        table = Table(play)
        value, leader, follower = begin_with_values(table)
        stop_cleaning(leader)
        table.put([("b", None)])
        tombstone = play.run._records_of(TABLE).history[b"b"][-1]
        outlast(table, tombstone, [follower])
        damage(play, follower, value)
        mend(play, follower)
        assert play.leader("table") is leader
        table.check()


def test_what_was_mended_is_cleaned_again() -> None:
    """The value comes back with the damaged batch, and its tombstone lies in the clean part."""
    with stage(10, THREE, settings=SETTINGS) as play:
        play.is_over = True
        table = Table(play)
        value, leader, follower = begin_with_values(table)
        stop_cleaning(leader)
        table.put([("b", None)])
        tombstone = play.run._records_of(TABLE).history[b"b"][-1]
        table.put([("filler", "0")])
        play.rest(6.0)
        assert not is_held(follower, value)
        assert is_held(follower, tombstone)
        damage(play, follower, value)
        mend(play, follower)
        assert play.leader("table") is leader
        outlast(table, tombstone, [follower])
        table.check()


def tell_story(story: list[tuple[str, Any]]) -> None:
    with stage(7, THREE, settings=SETTINGS) as play:
        play.is_over = True
        table = Table(play)
        away: list[SimNode] = []

        def come_home() -> None:
            for each in away:
                each.start()
            away.clear()
            come_back(play)

        for verb, what in story:
            match verb:
                case "leave" if not away:
                    away.append(play.node(what))
                    play.node(what).kill()
                    play.until(lambda: len(play.image_of("table").isr) == 2, "it is out of sync", 60.0)
                case "leave":
                    pass
                case "return":
                    come_home()
                    table.check()
                case "wait":
                    for number in range(4):
                        play.rest(6.0)
                        table.put([("filler", str(number))])
                case "elect" | "power cut":
                    come_home()
                    tell(table, verb, what)
                case _:
                    tell(table, verb, what)
        come_home()
        table.check()
        assert not play.run.history.surprises


@model(4)
@given(STORIES)
def test_every_replica_is_the_last_value_of_each_key_however_long_it_was_away(story: list[tuple[str, Any]]) -> None:
    note(f"{story}")
    tell_story(story)


@pytest.mark.slow
@model(100)
@given(STORIES)
def test_every_replica_is_the_last_value_of_each_key_in_many_stories(story: list[tuple[str, Any]]) -> None:
    note(f"{story}")
    tell_story(story)
