"""Thousands of hours of a metadata quorum's life, from a seed: the Raft core alone, its driver and world simulated.

`run(seed, simulated_s=...)` makes a cluster of 1 to 5 voters and up to 3 observers, lets faults and clients at it,
heals everything, expects life to go on, and does so again until the time is over. Whatever happens, the invariants of
`raft.oracle` are checked after every event. The same seed gives the same run, event by event, on every
machine and with every PYTHONHASHSEED; `Outcome.trace` proves it.

    python -m tests.simulator.raft.simulation --seeds 0-99 --seconds 300
"""

from __future__ import annotations

import argparse
import sys
import traceback
from dataclasses import dataclass
from functools import partial
from itertools import count
from random import Random

from tests.simulator.raft.node import SimulatedReplica
from tests.simulator.raft.oracle import Violation
from tests.simulator.raft.world import RaftWorld

LIVENESS_S = 30.0
"""How long a healed quorum may take until everybody has what is committed; elections that split take a few seconds."""


@dataclass(frozen=True, slots=True)
class Outcome:
    seed: int
    simulated_s: float
    faults: int
    leader_changes: int
    acknowledged: int
    events: int
    trace: int
    options: str
    violation: str | None = None

    def __str__(self) -> str:
        words = (
            f"seed {self.seed}: {self.simulated_s:.0f} simulated s, {self.faults} faults, {self.leader_changes} leader"
            f" changes, {self.acknowledged} acknowledged, {self.events} events, trace {self.trace & (2**64 - 1):016x}"
        )
        return words if self.violation is None else f"{words}\n{self.options}\nVIOLATION at {self.violation}"


class RaftSimulation(RaftWorld):
    """A world with clients and faults in it."""

    def __init__(self, seed: int) -> None:
        options = _Options(seed)
        super().__init__(
            seed, voters=options.voters, observers=options.observers, names_directories=options.names_directories
        )
        self.options = options
        self.faults = 0
        self.is_stormy = False
        self._values = count(1)
        self._few_until = 0.0

    def run(self, simulated_s: float) -> None:
        toss = self.random
        self.start_all()
        self.call_in(0, self._work)
        self.call_in(1, self._snapshot)
        while self.now < simulated_s:
            self.is_stormy = True
            self.call_in(toss.uniform(0.5, 4), self._fault)
            self.run_until(self.now + toss.uniform(20, 60))
            self.is_stormy = False
            self._heal_all()
            self._expect_life()

    # Clients

    def _work(self) -> None:
        """Append some operations at each replica that thinks it leads, old leaders too; each value is unique."""
        for replica in self.alive:
            if replica.raft.is_leader:
                values = [next(self._values) for _ in range(self.random.randint(1, self.options.burst))]
                replica.happen(replica.append, values)
        self.call_in(self.random.expovariate(1 / self.options.pause_s), self._work)

    def _snapshot(self) -> None:
        alive = self.alive
        if alive and self.options.snapshots:
            replica = self.random.choice(alive)
            clean = self.random.random() < 0.7
            replica.happen(partial(replica.take_snapshot, clean=clean))
        self.call_in(self.random.expovariate(1 / 2.0), self._snapshot)

    # Faults

    def _fault(self) -> None:
        if not self.is_stormy:
            return
        kinds = _KINDS if self.options.voters > 1 else _KINDS_ALONE
        self.faults += self.random.choice(kinds)(self, self._victim())
        self.call_in(self.random.expovariate(1 / self.options.fault_s), self._fault)

    def _victim(self) -> SimulatedReplica:
        """Choose a replica, in half of the cases the leader."""
        if self.random.random() < 0.5:
            leader = self.leader
            if leader is not None:
                return leader
        return self.random.choice(self.replicas)

    def _kill(self, victim: SimulatedReplica) -> bool:
        was_alive = victim.is_alive
        victim.kill()
        self.call_in(self._one_of(0.05, 0.5, 3.0, 8.0), self.restart, victim)
        return was_alive

    def _strike(self, victim: SimulatedReplica) -> None:
        if self.is_stormy:
            victim.kill()

    def _kill_between_effects(self, victim: SimulatedReplica) -> bool:
        if victim.is_alive:
            victim.dies_in = self.random.randint(0, 6)
            victim.revives_in_s = self._one_of(0.005, 0.1, 0.5)
        return victim.is_alive

    def _kill_all(self, victim: SimulatedReplica) -> bool:
        for replica in self.replicas:
            replica.kill()
            self.call_in(self.random.uniform(0.1, 3), self.restart, replica)
        return True

    def _pause(self, victim: SimulatedReplica) -> bool:
        if victim.is_alive:
            victim.pause(self.now + self._one_of(0.3, 2.0, 6.0))
        return victim.is_alive

    def _isolate(self, victim: SimulatedReplica) -> bool:
        self.isolate([victim.node_id], both_ways=self.random.random() < 0.5)
        return self._heal_later()

    def _split(self, victim: SimulatedReplica) -> bool:
        side = [replica.node_id for replica in self.replicas if self.random.random() < 0.5]
        self.isolate(side, both_ways=self.random.random() < 0.7)
        return self._heal_later() and 0 < len(side) < len(self.replicas)

    def _cut_one_link(self, victim: SimulatedReplica) -> bool:
        other = self.random.choice(self.replicas)
        self.cut[victim.node_id, other.node_id] = True
        return self._heal_later() and other is not victim

    def _flaky(self, victim: SimulatedReplica) -> bool:
        self.loss = self.random.choice((0.0, 0.05, 0.3))
        self.duplication = self.random.choice((0.0, 0.1, 0.5))
        self.delay_s = self.random.choice((0.002, 0.05, 0.4))
        return self._heal_later()

    def _slow_link(self, victim: SimulatedReplica) -> bool:
        for other in self.replicas:
            self.delay_s_by_link[victim.node_id, other.node_id] = self.random.choice((0.05, 0.5, 1.5))
        return self._heal_later()

    def _slow_disk(self, victim: SimulatedReplica) -> bool:
        victim.flush_s = self.random.choice((0.05, 0.4, 3.0))
        self.call_in(self.random.uniform(1, 8), self._quick_disk, victim)
        return True

    def _quick_disk(self, victim: SimulatedReplica) -> None:
        victim.flush_s = 0.001

    def _resign(self, victim: SimulatedReplica) -> bool:
        if not victim.is_alive or not victim.raft.is_leader:
            return False
        victim.happen(self._let_resign, victim)
        return True

    def _let_resign(self, victim: SimulatedReplica) -> None:
        victim.raft.resign(self.now)

    def _stand(self, victim: SimulatedReplica) -> bool:
        """Let a replica stand without pre-votes, because safety must not depend on them."""
        if victim.is_alive and victim.raft.is_voter and not victim.raft.is_leader:
            self.stand(victim)
            return True
        return False

    def _duel(self, victim: SimulatedReplica) -> bool:
        """Two stand at the same moment; the third dies when it has answered one, and is back when the other asks."""
        if self.options.voters < 3:
            return False
        first, second, third = self.random.sample(self.replicas[: self.options.voters], 3)
        self.delay_s_by_link[second.node_id, third.node_id] = 0.02
        stood = [self._stand(first), self._stand(second)]
        self.call_in(self.random.uniform(0.001, 0.005), self._strike, third)
        self.call_in(0.008, self.restart, third)
        self._heal_later()
        return all(stood)

    def on_new_leader(self, replica: SimulatedReplica) -> None:
        """The relay: one leader after another is cut off as soon as it leads, alone or with one follower, and the ones
        before it are let in again. So logs fork time and again, and old entries spread under new leaders."""
        if self.is_stormy and self.options.is_relay and self.random.random() < 0.7:
            self._few_until = self.now + 0.4
            self.call_in(self._one_of(0.001, 0.01, 0.05, 0.3), self._pass_on, replica)

    def _pass_on(self, leader: SimulatedReplica) -> None:
        if not self.is_stormy:
            return
        self.heal()
        others = [replica for replica in self.replicas[: self.options.voters] if replica is not leader]
        company = [self.random.choice(others).node_id] if others and self.random.random() < 0.4 else []
        self.isolate([leader.node_id, *company])
        self.faults += 1
        if others:
            # Often a replica with a fork of its own: the newest epoch wins, however few have it.
            newest = max(others, key=lambda replica: (replica.log.last_epoch, replica.log.end_offset))
            next_one = newest if self.random.random() < 0.5 else self.random.choice(others)
            self.call_in(self._one_of(0.05, 0.4), self._stand, next_one)
        if self.random.random() < 0.3:
            self.call_in(self._one_of(0.05, 0.4), self._strike, leader)
            self.call_in(2, self.restart, leader)
        self._heal_later()

    def fetch_entries(self) -> int:
        return self.random.choice((1, 1, 5)) if self.now < self._few_until else 64

    def _wipe(self, victim: SimulatedReplica) -> bool:
        """Replace the disk by an empty one, on which the replica is no voter. A majority keeps its disks."""
        is_voter = victim.is_controller and self.voters.holds(victim.key)
        if is_voter and not self.options.names_directories:
            return False  # No replica could know that the votes and entries on it are gone.
        if is_voter and len(self.oracle.wiped) >= (self.options.voters - 1) // 2:
            return False
        victim.kill()
        if is_voter:
            self.oracle.wiped.add(victim.key)
        else:
            del self.oracle.disks[victim.key]
        victim.new_disk()
        self.oracle.disks[victim.key] = victim.kept
        self.oracle.check_durable()
        self.call_in(self.random.uniform(0.5, 5), self.restart, victim)
        return True

    def _one_of(self, *durations_s: float) -> float:
        return self.random.choice(durations_s) * (0.5 + self.random.random())

    def _heal_later(self) -> bool:
        self.call_in(self._one_of(0.5, 3.0, 10.0), self.heal)
        return True

    # Healing

    def _heal_all(self) -> None:
        self.heal()
        for replica in self.replicas:
            replica.flush_s = 0.001
            replica.dies_in = None
            self.restart(replica)
            replica.resume()

    def _expect_life(self) -> None:
        acknowledged = self.acknowledged
        count_then = len(self.oracle.committed)

        def is_behind() -> bool:
            if self.acknowledged == acknowledged:
                return True
            return any(not one.is_alive or one.raft.high_watermark <= count_then for one in self.replicas)

        if not self.run_while(is_behind, within_s=LIVENESS_S):
            raise Violation(f"liveness: {[(r.node_id, r.raft.role, r.raft.high_watermark) for r in self.alive]}")
        for replica in self.replicas:
            self.oracle.check_whole(replica)
        self.oracle.check_durable()


class _Options:
    """What a seed decides before anything happens; printed with a violation."""

    def __init__(self, seed: int) -> None:
        toss = Random(seed * 2 + 1)
        self.voters = toss.choice((1, 2, 3, 3, 3, 4, 5, 5))
        self.observers = toss.choice((0, 0, 1, 1, 2, 3))
        self.burst = toss.choice((20, 40, 60))
        self.pause_s = toss.choice((0.1, 0.25))
        self.fault_s = toss.choice((2.0, 4.0, 8.0))
        self.snapshots = toss.random() < 0.7
        self.names_directories = toss.random() < 0.7
        self.is_relay = toss.random() < 0.4

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in vars(self).items())


_KINDS = (
    RaftSimulation._kill,
    RaftSimulation._kill,
    RaftSimulation._kill,
    RaftSimulation._kill_between_effects,
    RaftSimulation._kill_between_effects,
    RaftSimulation._kill_all,
    RaftSimulation._pause,
    RaftSimulation._pause,
    RaftSimulation._isolate,
    RaftSimulation._isolate,
    RaftSimulation._split,
    RaftSimulation._cut_one_link,
    RaftSimulation._flaky,
    RaftSimulation._slow_link,
    RaftSimulation._slow_disk,
    RaftSimulation._resign,
    RaftSimulation._stand,
    RaftSimulation._duel,
    RaftSimulation._duel,
    RaftSimulation._wipe,
)
_KINDS_ALONE = (
    RaftSimulation._kill,
    RaftSimulation._kill_between_effects,
    RaftSimulation._kill_all,
    RaftSimulation._pause,
    RaftSimulation._slow_disk,
    RaftSimulation._flaky,
)


def run(seed: int, *, simulated_s: float) -> Outcome:
    """One cluster's life from `seed`; a violation is reported with the time it happened at, never raised."""
    simulation = RaftSimulation(seed)
    violation = None
    try:
        simulation.run(simulated_s)
    except Exception as error:
        # Whatever a replica stumbles over is a violation too, and has to be reported with its seed.
        place = traceback.extract_tb(error.__traceback__)[-1]
        violation = f"{simulation.now:.6f} s, event {simulation.events}: {error!r} ({place.name}:{place.lineno})"
    return Outcome(
        seed,
        simulation.now,
        simulation.faults,
        simulation.leader_changes,
        simulation.acknowledged,
        simulation.events,
        simulation.trace,
        str(simulation.options),
        violation,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="simulate the Raft core alone")
    parser.add_argument("--seeds", default="0-9", help="one seed, or first-last")
    parser.add_argument("--seconds", type=float, default=300.0, help="simulated seconds of each seed")
    chosen = parser.parse_args()
    first, _, last = chosen.seeds.partition("-")
    for seed in range(int(first), int(last or first) + 1):
        outcome = run(seed, simulated_s=chosen.seconds)
        print(outcome, flush=True)
        if outcome.violation is not None:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
