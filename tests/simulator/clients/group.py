"""A group in the simulation: members that come, go, die, hang past their session, and come back under the same name.

When the faults are over the group must settle: every partition has one owner, and all is processed and committed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tests.simulator.clients.classic_member import SimClassicMember
from tests.simulator.clients.client import History
from tests.simulator.clients.consumer_member import SimConsumerMember
from tests.simulator.clients.member import Manners, SimMember
from tests.simulator.truth.group_truth import GroupTruth
from tests.simulator.truth.invariants import Invariants
from tests.simulator.world.cluster import SimCluster

from strandline.ids import TopicPartition
from strandline.testing.history import Committed, Op

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
MEMBERS_MAX: Final = 6


@dataclass(frozen=True, slots=True)
class GroupOptions:
    name: str
    topics: tuple[str, ...]
    protocols: tuple[str, ...] = (CLASSIC,)
    """What members speak, each one of these; with two of them the group moves from one to the other and back."""
    members: int = 3
    statics: int = 0
    """How many seats are kept for members with a name."""
    churn_s: float = 5.0
    """Between two changes of the members, about; 0 for none."""
    manners: Manners = field(default_factory=Manners)


class SimGroup:
    def __init__(
        self,
        cluster: SimCluster,
        history: History,
        invariants: Invariants,
        truth: GroupTruth,
        options: GroupOptions,
        *,
        leads: Callable[[TopicPartition, int], bool],
    ) -> None:
        self.cluster = cluster
        self.history = history
        self.invariants = invariants
        self.truth = truth
        self.options = options
        self.leads = leads
        self.random = cluster.loop.derive(f"group {options.name}")
        self.members: list[SimMember] = []
        self.hosts: list[str] = []
        """Of all who are members: faults of the network meet them, too."""
        self.is_calm = False
        self.changes = 0
        self.commits = 0
        """That members who are gone by now had acknowledged."""
        self._is_finished = False
        self._number = 0

    def start(self) -> None:
        for number in range(self.options.members):
            self.add(f"seat-{number}" if number < self.options.statics else None)
        if self.options.churn_s:
            self._churn_later()

    def add(self, instance_id: str | None = None, protocol: str | None = None) -> SimMember:
        self._number += 1
        name = f"{self.options.name}-{self._number}"
        member = self.new_member(name, protocol or self.random.choice(self.options.protocols), instance_id)
        member.leads = self.leads
        member.on_over = self._on_over
        self.members.append(member)
        self.hosts.append(name)
        return member

    def new_member(self, name: str, protocol: str, instance_id: str | None) -> SimMember:
        kind: type[SimMember] = SimClassicMember if protocol == CLASSIC else SimConsumerMember
        return kind(
            self.cluster.network,
            self.cluster.host(name),
            self.history,
            self.cluster.bootstrap,
            self.truth,
            self.options.name,
            self.options.topics,
            manners=self.options.manners,
            instance_id=instance_id,
        )

    def _on_over(self, member: SimMember) -> None:
        if member in self.members:
            self.members.remove(member)
            self.hosts.remove(member.host.name)
            self.commits += member.commits
            if self.is_calm and not self.members and not self._is_finished:
                # The last one was about to leave when everything became calm.
                self.add()

    def kill(self, member: SimMember) -> None:
        member.stop()
        member.kill()
        self._on_over(member)

    # Coming and going

    def _churn_later(self) -> None:
        self.cluster.loop.call_in(self.options.churn_s * (0.3 + 1.4 * self.random.random()), self._churn)

    def _churn(self) -> None:
        if self.is_calm:
            return
        self._churn_later()
        self.changes += 1
        if not self.members or (len(self.members) < MEMBERS_MAX and self.random.random() < 0.35):
            self.add(self._free_seat())
            return
        member = self.random.choice(self.members)
        self.random.choice([self._leave, self._kill, self._pause, self._pause, self._replace])(member)

    def _free_seat(self) -> str | None:
        taken = {member.instance_id for member in self.members}
        free = [seat for seat in (f"seat-{each}" for each in range(self.options.statics)) if seat not in taken]
        return free[0] if free else None

    def _leave(self, member: SimMember) -> None:
        member.leave()

    def _kill(self, member: SimMember) -> None:
        self.kill(member)

    def _pause(self, member: SimMember) -> None:
        """Mostly shorter than its session, sometimes well beyond: when it goes on it does not know."""
        member.runtime.actor.pause()
        pause_s = 2.5 * self.options.manners.session_timeout_s * self.random.random() ** 2
        self.cluster.loop.call_in(pause_s, member.runtime.actor.resume)

    def _replace(self, member: SimMember) -> None:
        """Another in its place at once; sometimes the old one is still there, and does not know of it."""
        if member.instance_id is None or self.random.random() < 0.5:
            self.kill(member)
        self.add(member.instance_id)

    # The end

    def calm(self) -> None:
        """From now on no member comes, goes or hangs, or holds the seat of another."""
        self.is_calm = True
        seats = {member.instance_id: member for member in self.members if member.instance_id is not None}
        for member in list(self.members):
            member.runtime.actor.resume()
            if member.instance_id is not None and seats[member.instance_id] is not member:
                self.kill(member)
        if not self.members:
            self.add()

    def ends(self) -> dict[TopicPartition, int]:
        """Return where each partition ends, as has been shown to readers."""
        found = {}
        for name in self.options.topics:
            topic = self.invariants.image.topics[name]
            for index in range(len(topic.partitions)):
                truth = self.invariants.partitions.get((topic.id.bytes, index))
                found[TopicPartition(name, index)] = 0 if truth is None else truth.end
        return found

    def position(self, partition: TopicPartition) -> int:
        return self.truth.positions.get((self.options.name, *partition), (0, None))[0]

    def unsettled(self) -> str:
        """Return what is still missing, in words; empty when the group has settled."""
        owners: dict[TopicPartition, list[str]] = {each: [] for each in self.ends()}
        for member in self.members:
            if isinstance(member, SimConsumerMember) and not member.is_reconciled:
                return f"{member.host.name} is not reconciled, in epoch {member.generation}"
            for partition in member.owned:
                owners[partition].append(member.host.name)
        wrong = [f"{each} is owned by {names}" for each, names in owners.items() if len(names) != 1]
        wrong += [
            f"{each} is committed to {self.position(each)} of {end}"
            for each, end in self.ends().items()
            if self.position(each) != end
        ]
        return ", ".join(wrong)

    def finish(self) -> None:
        """Note where the group stands at the end, and stop."""
        self._is_finished = True
        process, now_ns = self.history.new_process(), self.history.now_ns()
        for partition in self.ends():
            mop = Committed(self.options.name, str(partition), self.position(partition))
            op = Op(process, "ok", "read_committed_offset", (mop,), now_ns, now_ns, final=True)
            self.history.ops.append(op)
        for member in self.members:
            self.commits += member.commits
            member.stop()
