"""Share groups in the simulation: members find their partitions whichever coordinators are lost, and no state is reset.

As soon as a member has a partition, a leader reads its state and moves its start offset, as delivery does. A request of
a lost coordinator that arrives late would make the state again, from its beginning.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from tests.simulation.stage import ORDERS, Play, stage

from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.codec.messages.find_coordinator_response import FindCoordinatorResponse
from strandline.codec.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from strandline.codec.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from strandline.coordinators.partitioning import CONSUMER_OFFSETS_TOPIC
from strandline.coordinators.shares.coordinator_key import SHARE_GROUP_STATE_TOPIC
from strandline.coordinators.shares.share_state import ShareState, ShareSummary
from strandline.errors import ErrorCode

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 10))]
TOPIC = dataclasses.replace(ORDERS, partitions=4)
SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "group.share.assignment.interval.ms": "0",
    "share.coordinator.state.topic.num.partitions": "2",
}
GROUP = "workers"
START = 5
"""Where every share partition stands once it is read."""


class Group:
    """The members of one share group, which send their heartbeats one after the other."""

    def __init__(self, play: Play, *member_ids: str) -> None:
        self.play = play
        self.epochs = dict.fromkeys(member_ids, 0)
        self.assigned: dict[str, list[int]] = {member_id: [] for member_id in member_ids}
        self.read: set[int] = set()
        """Partitions whose start offset was moved."""

    def beat(self) -> None:
        for member_id, epoch in self.epochs.items():
            request = ShareGroupHeartbeatRequest(
                group_id=GROUP,
                member_id=member_id,
                member_epoch=epoch,
                subscribed_topic_names=["orders"] if epoch == 0 else None,
            )
            answer = self.play.ask(self.play.leader(CONSUMER_OFFSETS_TOPIC), request, 1, ShareGroupHeartbeatResponse)
            if answer is not None:
                self.hear(member_id, answer)

    def begin(self, pause_s: float) -> None:
        """Send heartbeats until a member has joined."""
        play = self.play
        find = FindCoordinatorRequest(coordinator_keys=[GROUP])
        play.ask(play.cluster.up()[0], find, 4, FindCoordinatorResponse)
        play.until(lambda: CONSUMER_OFFSETS_TOPIC in play.run.invariants.image.topics, "the topic of groups is made")
        for _ in range(30):
            self.beat()
            if any(self.epochs.values()):
                return
            play.rest(pause_s)
        raise AssertionError("no member can join")

    def hear(self, member_id: str, answer: Any) -> None:
        code = ErrorCode(answer.error_code)
        if code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND):
            self.epochs[member_id] = 0
        elif code is ErrorCode.NONE:
            self.epochs[member_id] = answer.member_epoch
            if answer.assignment is not None:
                topics = answer.assignment.topic_partitions
                self.assigned[member_id] = [index for topic in topics for index in topic.partitions]
                for index in self.assigned[member_id]:
                    self.deliver(index)

    def deliver(self, index: int) -> None:
        """Move the start offset of a share partition that was not read yet, as its leader does."""
        if index not in self.read:
            code, state = self.persist("read", index, 0)
            assert (code, isinstance(state, ShareState)) == (ErrorCode.NONE, True), f"assigned without a state: {code}"
            if self.persist("write", index, state.state_epoch, 0, START, 0, []) == (ErrorCode.NONE,):
                self.read.add(index)

    def persist(self, name: str, index: int, *args: Any) -> tuple[Any, ...]:
        """Have the persister of a node do something, until it is done."""
        found: list[tuple[Any, ...]] = []

        def put(*outcome: Any) -> None:
            found.append(outcome)

        home = next(each for each in self.play.cluster.up() if not each.is_paused)
        assert home.runtime is not None
        topic_id = self.play.topic_id("orders")
        home.runtime.call_soon(lambda: getattr(home.node.persister, name)(GROUP, topic_id, index, *args, put))  # type: ignore[union-attr]
        self.play.until(lambda: found, f"{name} is done", 60.0)
        return found[0]

    def settle(self) -> None:
        """Send heartbeats until every partition is assigned, and each member has as many as any other."""
        for _ in range(60):
            self.beat()
            held = sorted(index for indexes in self.assigned.values() for index in indexes)
            if held == [0, 1, 2, 3] and len(set(self.epochs.values())) == 1:
                break
            self.play.rest(1.0)
        sizes = [len(indexes) for indexes in self.assigned.values()]
        assert sorted(index for indexes in self.assigned.values() for index in indexes) == [0, 1, 2, 3]
        assert max(sizes) - min(sizes) <= 1

    def check(self) -> None:
        for index in range(4):
            code, summary = self.persist("summary", index, 0)
            assert code is ErrorCode.NONE
            assert isinstance(summary, ShareSummary)
            assert summary.start_offset == START, f"partition {index} began again"


def start_lost(play: Play) -> None:
    play.network.heal()
    for node in play.cluster.nodes.values():
        node.resume()
        if not node.is_up:
            node.start()
    play.wait_whole()


@pytest.mark.parametrize("topic", [CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC])
@pytest.mark.parametrize("seed", SEEDS)
def test_coordinators_are_killed_while_states_are_made(seed: int, topic: str) -> None:
    with stage(seed, TOPIC, settings=SETTINGS, on_all_nodes=True) as play:
        # What is read and judged there is the work of other clients.
        play.is_over = True
        group = Group(play, "a", "b")
        group.begin(0.2)
        for round_ in range(3):
            play.rest(0.05 * (seed % 5))
            group.beat()
            if topic in play.run.invariants.image.topics:
                play.leader(topic).kill()
            play.rest(5.0)
            group.beat()
            if round_ < 2:
                start_lost(play)
        start_lost(play)
        group.settle()
        group.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_group_coordinator_is_paused_past_an_election(seed: int) -> None:
    with stage(seed, TOPIC, settings=SETTINGS, on_all_nodes=True) as play:
        play.is_over = True
        group = Group(play, "a", "b")
        group.begin(0.2)
        victim = play.leader(CONSUMER_OFFSETS_TOPIC)
        # What it asked of share coordinators is still under way, and goes on when it wakes.
        victim.pause()
        play.rest(8.0)
        group.settle()
        victim.resume()
        play.rest(5.0)
        group.settle()
        group.check()
