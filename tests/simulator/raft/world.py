"""The world of simulated replicas: the loop of the whole-broker simulation, with a network of messages.

The network is not that of whole brokers (`world.network`). That one carries streams of bytes, which need connections,
frames and the driver of the real broker. The core alone exchanges requests as objects: that is what makes it fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulator.raft.node import SimulatedReplica
from tests.simulator.raft.oracle import Oracle, Violation
from tests.simulator.world.loop import Actor, SimLoop

from strandline.ids import ZERO_UUID
from strandline.quorum.raft import elections
from strandline.quorum.raft.timing import RaftTiming
from strandline.quorum.raft.voters import Voter, VoterSet

if TYPE_CHECKING:
    from strandline.quorum.raft.effects import SendRequest

PORT = 9093

Answer = Callable[[float, Any], None]
"""Lets an answer, or None for a request that failed, arrive at a time."""


class RaftWorld(SimLoop):
    """`voters` replicas with ids from 0, then `observers`; nothing is started.

    `names_directories`: voters are known by the id of their disk too, not only by configuration.
    Without faults the network delivers everything once, in 1 to 3 ms. `cut` holds links (from, to) that lose all.
    """

    def __init__(self, seed: int, *, voters: int, observers: int = 0, names_directories: bool = True) -> None:
        super().__init__(seed)
        self.timing = RaftTiming()
        self.cut: dict[tuple[int, int], bool] = {}
        self.loss = 0.0
        self.duplication = 0.0
        self.delay_s = 0.002
        self.delay_s_by_link: dict[tuple[int, int], float] = {}
        self.leader_changes = 0
        self.truncations = 0
        self.installed = 0
        self.acknowledged = 0
        self.lost = 0
        self.requests: dict[str, int] = {}
        self.no_voters = VoterSet()
        self.voters = self.no_voters
        self.replicas = [SimulatedReplica(self, at, is_voter=at < voters) for at in range(voters + observers)]
        self.voters = VoterSet(
            Voter(
                replica.node_id,
                _host(replica.node_id),
                PORT,
                replica.key.directory_id if names_directories else ZERO_UUID,
            )
            for replica in self.replicas[:voters]
        )
        self.bootstrap_servers = tuple((voter.host, voter.port) for voter in self.voters)
        self._by_host = {_host(replica.node_id): replica for replica in self.replicas}
        self.oracle = Oracle(self.voters)
        for replica in self.replicas:
            self.oracle.disks[replica.key] = replica.kept
        self.oracle.voter_keys = [replica.key for replica in self.replicas[:voters]]

    # Replicas

    @property
    def alive(self) -> list[SimulatedReplica]:
        return [replica for replica in self.replicas if replica.is_alive]

    @property
    def leader(self) -> SimulatedReplica | None:
        """Who leads the newest epoch, of those that are alive and have committed something in it."""
        leaders = [replica for replica in self.alive if replica.raft.is_leader and replica.is_announced]
        return max(leaders, key=lambda replica: replica.raft.epoch) if leaders else None

    def start_all(self) -> None:
        for replica in self.replicas:
            self.restart(replica)

    def restart(self, replica: SimulatedReplica) -> None:
        if not replica.is_alive:
            replica.start()

    def stand(self, replica: SimulatedReplica) -> None:
        """Let it become a candidate at once, whatever its timers say and without asking for pre-votes."""
        replica.happen(self._let_stand, replica)

    def _let_stand(self, replica: SimulatedReplica) -> None:
        state = replica.raft._state
        if state.fetching.installing is None and not replica.raft.is_leader:
            state.become_candidate(self.now)
            elections.ask(state, self.now)

    def fetch_entries(self) -> int:
        """Return how many entries go into one answer: few, so that a replica that was away needs several."""
        return 64

    def on_new_leader(self, replica: SimulatedReplica) -> None:
        """`replica` has just begun to lead; the others do not know yet."""

    def acknowledge(self, replica: SimulatedReplica, offset: int, value: int) -> None:
        self.acknowledged += 1
        committed = self.oracle.committed
        if offset >= len(committed) or committed[offset].value != value:
            raise Violation(f"acknowledged: {value} at {offset} by {replica}, which is not committed there")

    # The network

    def isolate(self, node_ids: Iterable[int], *, both_ways: bool = True) -> None:
        """Nothing from these replicas reaches the others; with `both_ways`, nothing from the others reaches them."""
        inside = set(node_ids)
        for a in range(len(self.replicas)):
            for b in range(len(self.replicas)):
                if (a in inside) != (b in inside) and (a in inside or both_ways):
                    self.cut[a, b] = True

    def heal(self) -> None:
        self.cut.clear()
        self.loss = self.duplication = 0.0
        self.delay_s = 0.002
        self.delay_s_by_link.clear()

    def transmit(self, sender: SimulatedReplica, send: SendRequest) -> None:
        receiver = self._by_host[send.to.host]
        name = type(send.request).__name__
        self.requests[name] = self.requests.get(name, 0) + 1
        answer = partial(self._answer, sender, sender.actor, send)
        timeout_at = self.now + send.timeout_s
        arrivals = self._arrivals(sender.node_id, receiver.node_id)
        if not arrivals:
            answer(timeout_at, None)
        for delay_s in arrivals:
            self.call_in(delay_s, self._deliver, sender.node_id, receiver, send.request, answer, timeout_at)

    def _arrivals(self, a: int, b: int) -> list[float]:
        """After how long a message comes: not at all, once, or more often."""
        if (a, b) in self.cut:
            return []
        toss = self.random.random
        delay_s = self.delay_s_by_link.get((a, b), self.delay_s)
        if self.loss and toss() < self.loss:
            return []
        arrivals = [delay_s * (0.5 + toss())]
        if self.duplication and toss() < self.duplication:
            arrivals.append(delay_s * (0.5 + 20 * toss()))
        return arrivals

    def _deliver(
        self, sender_id: int, receiver: SimulatedReplica, request: Any, answer: Answer, timeout_at: float
    ) -> None:
        if receiver.is_alive:
            receiver.happen(
                receiver.receive, request, partial(self._reply, sender_id, receiver.node_id, answer, timeout_at)
            )
            return
        # No process listens there; the sender learns so at once, unless the way back is cut.
        for delay_s in self._arrivals(receiver.node_id, sender_id):
            answer(self.now + delay_s, None)

    def _reply(self, sender_id: int, receiver_id: int, answer: Answer, timeout_at: float, response: Any) -> None:
        arrivals = self._arrivals(receiver_id, sender_id)
        if not arrivals:
            answer(max(timeout_at, self.now), None)
        for delay_s in arrivals:
            answer(self.now + delay_s, response)

    def _answer(self, sender: SimulatedReplica, actor: Actor, send: SendRequest, at: float, response: Any) -> None:
        self.call_at(at, actor, sender.take, self._take_answer, sender, send, response)

    def _take_answer(self, sender: SimulatedReplica, send: SendRequest, response: Any) -> None:
        sender.raft.on_answer(send.to, send.request, response, self.now)


def _host(node_id: int) -> str:
    return f"n{node_id}"
