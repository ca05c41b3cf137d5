"""The state of share partitions in the simulation: what the persister called stored is there, whichever node is lost.

Each broker acknowledges records of a share partition of its own, as the leader of a partition would, through its
persister. Coordinators are killed, cut off and paused; brokers that write are killed. In the end the next leader reads:
everything that was acknowledged is in the state, nothing else is, and the leader before it is fenced.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.simulation.stage import ORDERS, Play, stage
from tests.simulator.world.cluster import SimNode

from strandline.coordinators.shares.coordinator_key import SHARE_GROUP_STATE_TOPIC
from strandline.coordinators.shares.share_state import DeliveryState, ShareState, ShareSummary, StateBatch
from strandline.errors import ErrorCode

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 12))]
TOPIC = dataclasses.replace(ORDERS, partitions=1)
SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "share.coordinator.state.topic.num.partitions": "3",
    "share.coordinator.snapshot.update.records.per.snapshot": "20",
    "share.coordinator.state.topic.prune.interval.ms": "1500",
    "share.coordinator.cold.partition.snapshot.interval.ms": "4000",
}
PAUSE_S = 0.02
WINDOW = 50
"""Records that may be acknowledged before the start offset moves over them."""


class Writer:
    """The share partition of one group, written by the persister of whatever node it is on."""

    def __init__(self, play: Play, group: str, home: SimNode, *, moves_start: bool) -> None:
        self.play = play
        self.group = group
        self.home = home
        self.leader_epoch = 0
        self.sent = 0
        self.stored: set[int] = set()
        """Offsets whose acknowledgement was stored."""
        self.moves_start = moves_start
        """Whether the start offset follows. It hides what is lost below it."""
        self.start = 0
        self.start_stored = 0
        self.is_writing = False

    # ---- one operation at a time

    def ask(self, name: str, *args: Any) -> tuple[Any, ...]:
        """Have the persister of the node do something, until it is done."""
        found: list[tuple[Any, ...]] = []

        def put(*outcome: Any) -> None:
            found.append(outcome)

        runtime, node = self.home.runtime, self.home.node
        assert runtime is not None
        assert node is not None
        place = self.group, self.play.topic_id("orders"), 0
        runtime.call_soon(lambda: getattr(node.persister, name)(*place, *args, put))
        self.play.until(lambda: found, f"{name} is done", 60.0)
        return found[0]

    def read(self) -> ShareState:
        code, state = self.ask("read", self.leader_epoch)
        assert code is ErrorCode.NONE, code.name
        assert isinstance(state, ShareState)
        return state

    # ---- many writes at once

    def work(self) -> None:
        self.is_writing = True
        self._write_soon()

    def _write_soon(self) -> None:
        runtime = self.home.runtime
        if self.is_writing and self.home.is_up and runtime is not None:
            # Writes are not awaited: the next ones wait in the persister, and are merged there.
            runtime.call_later(PAUSE_S, self._write)

    def _write(self) -> None:
        node = self.home.node
        if not self.is_writing or node is None:
            return
        offset = self.sent
        self.sent += 1
        if self.moves_start and offset % WINDOW == WINDOW - 1:
            while self.start in self.stored:
                self.start += 1
        start = self.start

        def done(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                self.stored.add(offset)
                self.start_stored = max(self.start_stored, start)

        batch = StateBatch(offset, offset, DeliveryState.ACKNOWLEDGED, 1)
        topic_id = self.play.topic_id("orders")
        node.persister.write(self.group, topic_id, 0, 1, self.leader_epoch, start, 0, [batch], done)
        self._write_soon()

    def move(self, home: SimNode) -> None:
        """Have another node lead: it reads, and then writes in its own epoch."""
        self.is_writing = False
        self.home = home
        self.leader_epoch += 1
        self.check(self.read())

    def check(self, state: ShareState) -> None:
        assert self.start_stored <= state.start_offset <= self.start
        known = set(range(state.start_offset))
        for batch in state.batches:
            assert batch.state == DeliveryState.ACKNOWLEDGED
            known.update(range(batch.first_offset, batch.last_offset + 1))
        assert self.stored <= known, "an acknowledgement was lost"
        assert known <= set(range(self.sent)), "an acknowledgement came from nowhere"


@contextmanager
def writers(seed: int) -> Iterator[tuple[Play, list[Writer]]]:
    """A writer on each node. On leaving all is mended, and the next leader of each finds everything."""
    with stage(seed, TOPIC, settings=SETTINGS, on_all_nodes=True) as play:
        # What is read and judged there is the work of other clients.
        play.is_over = True
        found = [
            Writer(play, f"workers-{node.node_id}", node, moves_start=node.node_id == 1)
            for node in play.cluster.nodes.values()
        ]
        for writer in found:
            assert writer.ask("initialize", 1, 0) == (ErrorCode.NONE,)
            assert writer.ask("summary", 0) == (ErrorCode.NONE, ShareSummary(1, 0, 0, 0))
            assert writer.read() == ShareState(1, 0, ())
            writer.work()
        play.rest(2.0)
        yield play, found
        play.network.heal()
        for node in play.cluster.nodes.values():
            node.resume()
            if not node.is_up:
                node.start()
        play.wait_whole()
        for number, writer in enumerate(found):
            before = len(writer.stored)
            assert before, "nothing was stored"
            old = writer.leader_epoch
            writer.move(found[(number + 1) % len(found)].home)
            batch = StateBatch(writer.sent, writer.sent, DeliveryState.ARCHIVED, 9)
            assert writer.ask("write", 1, old, -1, 0, [batch]) == (ErrorCode.FENCED_LEADER_EPOCH,)
            assert writer.ask("write", 0, writer.leader_epoch, -1, 0, [batch]) == (ErrorCode.FENCED_STATE_EPOCH,)
            assert writer.ask("delete") == (ErrorCode.NONE,)
            assert writer.ask("read", writer.leader_epoch) == (ErrorCode.INVALID_REQUEST, None)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_coordinators_are_killed(seed: int) -> None:
    with writers(seed) as (play, found):
        for index in range(3):
            victim = play.leader(SHARE_GROUP_STATE_TOPIC, index)
            for writer in found:
                if writer.home is victim:
                    writer.is_writing = False
            victim.kill()
            play.rest(5.0)
            victim.start()
            play.wait_rejoined()
            for writer in found:
                if writer.home is victim:
                    writer.move(victim)
                    writer.work()
            play.rest(1.0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_coordinators_are_cut_off_and_do_not_know(seed: int) -> None:
    with writers(seed) as (play, _):
        victim = play.leader(SHARE_GROUP_STATE_TOPIC, 0)
        play.network.split([victim.name], [node.name for node in play.cluster.nodes.values() if node is not victim])
        play.rest(12.0)
        play.network.heal()
        play.rest(5.0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_coordinators_are_paused_past_an_election(seed: int) -> None:
    with writers(seed) as (play, found):
        victim = play.leader(SHARE_GROUP_STATE_TOPIC, 1)
        victim.pause()
        play.rest(8.0)
        # While it does not know, another node leads what it led.
        for writer in found:
            if writer.home is victim:
                writer.move(next(node for node in play.cluster.up() if node is not victim))
                writer.work()
        play.rest(2.0)
        victim.resume()
        play.rest(5.0)
