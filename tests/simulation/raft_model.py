"""All orders of events of a small quorum, to a bounded depth: what random faults may miss, this cannot.

Three voters stand, answer, flush, die and come back, in every order; time stands still, so no timer decides anything. A
state is the whole world, pickled: that copies it, and two orders that lead to the same world are looked at once. To
keep the number of worlds small, a request and its answer are one event, or the request alone if its answer is lost.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tests.simulator.raft.log import Kept, SimulatedLog
from tests.simulator.raft.oracle import Oracle, Violation

from strandline.codec.messages.fetch_request import FetchRequest
from strandline.codec.messages.vote_request import VoteRequest
from strandline.quorum.raft import elections
from strandline.quorum.raft.effects import Flush, HighWatermark, Inconsistent, Save, SendRequest
from strandline.quorum.raft.messages import fetch_response, replica_fetch
from strandline.quorum.raft.raft import Raft, RaftTiming
from strandline.quorum.raft.state_files import QuorumState
from strandline.quorum.raft.voters import ReplicaKey, Voter, VoterSet

TIMING = RaftTiming(1e9, 1e9, 1e9, 1e9, 0.0, 1e9)
VOTERS = VoterSet(Voter(node_id, f"n{node_id}", 9093, UUID(int=node_id + 1)) for node_id in range(3))


class NoChance:
    """Time stands still, so it does not matter when something would have happened."""

    def random(self) -> float:
        return 0.5

    def randrange(self, stop: int) -> int:
        return 0

    def choice(self, things: list[Any]) -> Any:
        return things[0]


class Member:
    """One voter; the oracle looks at it as at a replica of the simulation."""

    def __init__(self, world: World, node_id: int) -> None:
        self.world = world
        self.node_id = node_id
        self.key = ReplicaKey(node_id, UUID(int=node_id + 1))
        self.kept = Kept()
        self.is_catching_up = False
        self.start()

    def __repr__(self) -> str:
        return f"voter {self.node_id}"

    def start(self) -> None:
        self.log = SimulatedLog(self.kept)
        self.raft = Raft(
            node_id=self.node_id,
            directory_id=self.key.directory_id,
            cluster_id=None,
            voters=VOTERS,
            state=self.kept.quorum_state,
            log=self.log,
            timing=TIMING,
            random=NoChance(),  # type: ignore[arg-type]
        )
        self.high_watermark_seen = self.applied = self.raft.high_watermark
        self.leading: tuple[int, int] | None = None
        self.heard: dict[int, float] = {}
        self.is_dirty = False
        self.raft.start(0.0)
        self.settle()

    def settle(self) -> None:
        for effect in self.raft.take_effects():
            if isinstance(effect, Save):
                self.kept.quorum_state = effect.state
                self._note_own_vote(effect.state)
            elif isinstance(effect, SendRequest):
                if not (isinstance(effect.request, FetchRequest) and self.raft.leader_id < 0):
                    self.world.under_way.append((self.node_id, effect, False))
            elif isinstance(effect, Flush):
                self.is_dirty = True
            elif isinstance(effect, HighWatermark):
                self.world.oracle.note_committed(self, self.applied, effect.offset)  # type: ignore[arg-type]
                self.applied = effect.offset
            elif isinstance(effect, Inconsistent):
                raise Violation(f"refused: {self}: {effect.reason}")
        self.world.oracle.check(self)  # type: ignore[arg-type]

    def _note_own_vote(self, state: QuorumState) -> None:
        if state.voted_id == self.node_id:
            self.world.oracle.note_vote(self.key, state.leader_epoch, self.key)


@dataclass(frozen=True)
class Budget:
    """What is left to happen: candidates that stand, appends of a leader, crashes, answers that are lost."""

    stands: int
    appends: int
    crashes: int
    losses: int


class World:
    now = 0.0

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.under_way: list[tuple[int, SendRequest, bool]] = []
        """(sender, request, whether it waits at a leader that has counted it already)"""
        self.oracle = Oracle(VOTERS)
        self.members: list[Member] = []
        for node_id in range(3):
            self.members.append(Member(self, node_id))
        self.oracle.disks = {member.key: member.kept for member in self.members}
        self.oracle.voter_keys = [member.key for member in self.members]

    def on_new_leader(self, member: Any) -> None:
        """Tell the voters at once, as its timer would."""
        member.raft.on_time(0.0)

    # What may happen

    def events(self) -> Iterator[tuple[str, int]]:
        for at, (_, send, is_waiting) in enumerate(self.under_way):
            receiver = self.members[send.to.node_id]
            if is_waiting:
                fetch = replica_fetch(send.request)  # type: ignore[arg-type]
                assert fetch is not None
                if receiver.raft.answer_fetch(fetch).may_wait:
                    continue
            yield "exchange", at
            if self.budget.losses and not is_waiting:
                yield "lose the answer", at
        for member in self.members:
            if self.budget.stands and not member.raft.is_leader:
                yield "stand", member.node_id
            if self.budget.appends and member.raft.is_leader:
                yield "append", member.node_id
            if self.budget.crashes:
                yield "crash", member.node_id
            if member.is_dirty:
                yield "flush", member.node_id

    def happen(self, what: str, at: int) -> None:
        budget = self.budget
        if what in ("exchange", "lose the answer"):
            self._exchange(at, is_lost=what != "exchange")
            return
        member = self.members[at]
        if what == "stand":
            self.budget = Budget(budget.stands - 1, budget.appends, budget.crashes, budget.losses)
            state = member.raft._state
            state.become_candidate(0.0)
            elections.ask(state, 0.0)
        elif what == "append":
            self.budget = Budget(budget.stands, budget.appends - 1, budget.crashes, budget.losses)
            member.raft.append([100 + budget.appends], 0.0)
        elif what == "crash":
            self.budget = Budget(budget.stands, budget.appends, budget.crashes - 1, budget.losses)
            self.under_way = [message for message in self.under_way if message[0] != at]
            self.oracle.check_durable()
            member.start()
        else:
            member.is_dirty = False
            member.log.end_flush(*member.log.begin_flush())
            member.raft.on_flushed(0.0)
        member.settle()

    def _exchange(self, at: int, *, is_lost: bool) -> None:
        sender_id, send, is_waiting = self.under_way.pop(at)
        sender, receiver = self.members[sender_id], self.members[send.to.node_id]
        request = send.request
        response: Any
        if isinstance(request, FetchRequest):
            fetch = replica_fetch(request)
            assert fetch is not None
            answer = receiver.raft.answer_fetch(fetch) if is_waiting else receiver.raft.on_fetch(fetch, 0.0)
            receiver.settle()
            if answer.may_wait:
                self.under_way.append((sender_id, send, True))
                return
            answer = receiver.raft.answer_fetch(fetch)
            # One entry at a time: an answer may end anywhere.
            records = receiver.log.read(fetch.fetch_offset, 1) if answer.has_records else None
            response = fetch_response(answer, receiver.raft.leader, records if records and records[1] else None)
        else:
            response = receiver.raft.on_request(request, 0.0)
            receiver.settle()
            if isinstance(request, VoteRequest):
                asked, answered = request.topics[0].partitions[0], response.topics[0].partitions[0]
                if answered.vote_granted and not asked.pre_vote:
                    candidate = ReplicaKey(asked.replica_id, asked.replica_directory_id)
                    self.oracle.note_vote(receiver.key, asked.replica_epoch, candidate)
        if is_lost:
            budget = self.budget
            self.budget = Budget(budget.stands, budget.appends, budget.crashes, budget.losses - 1)
            response = None
        sender.raft.on_answer(send.to, request, response, 0.0)
        sender.settle()


def explore(budget: Budget, *, depth: int, worlds_max: int) -> tuple[int, int]:
    """Every order of events up to `depth`; (how many worlds there are, how deep all were looked at).

    Raises Violation with the events that lead to it.
    """
    first = World(budget)
    first.happen("stand", 0)  # One has to; which one makes no difference.
    frontier = [(pickle.dumps(first, 5), ())]
    seen = {_key(first)}
    story: tuple[tuple[str, int], ...]
    for level in range(depth):
        following: list[tuple[bytes, Any]] = []
        for frozen, story in frontier:
            for event in list(_thaw(frozen).events()):
                world = _thaw(frozen)
                try:
                    world.happen(*event)
                except (Violation, AssertionError) as error:
                    raise Violation(f"{error!r} after {[*story, event]}") from error
                key = _key(world)
                if key not in seen:
                    seen.add(key)
                    following.append((pickle.dumps(world, 5), (*story, event)))
                    if len(seen) >= worlds_max:
                        return len(seen), level
        frontier = following
    return len(seen), depth


def _thaw(frozen: bytes) -> World:
    world: World = pickle.loads(frozen)  # noqa: S301  (we wrote it ourselves)
    return world


def _key(world: World) -> int:
    """The same for two worlds that differ only in the order of what is under way."""
    members = tuple(
        (
            member.raft.role,
            member.raft.epoch,
            member.raft.high_watermark,
            member.raft.leader_id,
            member.raft._state.voted,
            tuple(member.log.entries),
            tuple(member.kept.entries),
            member.log.flushed_end,
            member.is_dirty,
            pickle.dumps(member.raft._state.role),
        )
        for member in world.members
    )
    messages = tuple(
        sorted((sender, send.to.node_id, pickle.dumps(send.request), waits) for sender, send, waits in world.under_way)
    )
    return hash((members, messages, world.budget, len(world.oracle.committed)))
