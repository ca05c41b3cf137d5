"""The faults of a run, drawn from the seed: what happens to whom, when, and for how long.

Half of them aim at a leader, of a partition or of the quorum, because that is where it hurts. Each fault ends after a
while, and several overlap. `safe_to_unplug` keeps power cuts within what is promised: with `flush.mode` other than
`ack`, records that no replica has flushed survive one machine at a time, no more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.simulator.world.cluster import SimCluster, SimNode
from tests.simulator.world.disk import CAPACITY_BYTES
from tests.simulator.world.disk_faults import DiskFaults
from tests.simulator.world.store_faults import BucketFaults

from strandline.errors import DiskFull

HOUR_MS: Final = 3_600_000
UNPLUGS: Final = frozenset({"power cut", "failing sync", "replaced disk"})
ENDS: Final = frozenset(
    {"kill", "absence", "kill all", "stop", "power cut", "power cut of all", "failing sync", "replaced disk"}
)


@dataclass(frozen=True, slots=True)
class NemesisOptions:
    """Drawn from the seed, and printed with it."""

    pause_s: float
    """Between two faults, about."""
    weights: dict[str, int]
    power_cuts_all: bool
    """Whether all machines may lose power at once, which only `flush.mode=ack` survives."""


class Nemesis:
    def __init__(self, cluster: SimCluster, options: NemesisOptions) -> None:
        self.cluster = cluster
        self.loop = cluster.loop
        self.network = cluster.network
        self.random = cluster.loop.derive("nemesis")
        self.options = options
        self.faults: Counter[str] = Counter()
        self.log: list[str] = []
        """What was done when, for the reader of a failure."""
        self.clients: Callable[[], list[str]] = list
        """Names of the clients' machines: a cut may go between them and the brokers, too."""
        self.is_active = False
        self.on_disk_replaced: Callable[[SimNode], object] = lambda node: None
        self._unplugged: SimNode | None = None
        self._is_disk_new = False
        """Whether it has another disk, on which nothing is that it had flushed."""
        self._is_boot_due = False
        """Whether a machine whose disk failed is still to be booted, and to lose what it had not flushed."""
        self._bucket_faults = BucketFaults(self)
        self._kinds: dict[str, Callable[[SimNode], bool]] = {
            "kill": self._kill,
            "absence": self._absent,
            "stop": self._stop,
            "power cut": self._power_cut,
            "power cut of all": self._power_cut_all,
            "kill all": self._kill_all,
            "pause": self._pause,
            "isolate": self._isolate,
            "one way": self._one_way,
            "bridge": self._bridge,
            "cut off clients": self._cut_off_clients,
            "slow link": self._slow_link,
            "resets": self._resets,
            "failing sync": self._failing_sync,
            **DiskFaults(self).kinds,
            **self._bucket_faults.kinds,
            "clock jump": self._clock_jump,
        }

    @property
    def count(self) -> int:
        return sum(self.faults.values())

    def start(self) -> None:
        self.is_active = True
        self.later(self.random.random() * self.options.pause_s, self._strike)

    def later(self, delay_s: float, then: Callable[..., object], *args: object) -> None:
        self.loop.call_in(delay_s, then, *args)

    def note(self, what: str) -> None:
        self.log.append(f"{self.loop.now:10.3f}  {what}")

    def _strike(self) -> None:
        if not self.is_active:
            return
        self.later(self.options.pause_s * (0.3 + 1.4 * self.random.random()), self._strike)
        kinds = list(self.options.weights)
        kind = self.random.choices(kinds, [self.options.weights[each] for each in kinds])[0]
        target = self._target()
        if self._is_spared(kind) or not self._kinds[kind](target):
            return
        if kind in UNPLUGS:
            self._unplugged = target
            self._is_disk_new = kind == "replaced disk"
        self.faults[kind] += 1
        self.note(f"{kind}: {target.name}")

    def _is_spared(self, kind: str) -> bool:
        """After a machine lost what it had not flushed, spare all others until it is in sync again everywhere."""
        if self._unplugged is None or (self.options.power_cuts_all and not self._is_disk_new):
            return False
        if not self._is_boot_due and self.is_whole():
            self._unplugged = None
            return False
        return kind in ENDS

    def is_whole(self) -> bool:
        """Whether all nodes have joined, in the life that they live now, and believe that every replica is in sync."""
        for each in self.cluster.nodes.values():
            if each.node is None or not each.node.is_ready or each.node.lifecycle.is_fenced:
                return False
            for topic in each.node.image.topics.values():
                if any(set(partition.isr) != set(partition.replicas) for partition in topic.partitions):
                    return False
        return True

    def _target(self) -> SimNode:
        leaders = self._leaders()
        if leaders and self.random.random() < 0.5:
            return self.random.choice(leaders)
        return self.random.choice(list(self.cluster.nodes.values()))

    def _leaders(self) -> list[SimNode]:
        """Who leads something now, as any node that is up believes."""
        up = self.cluster.up()
        if not up:
            return []
        node = self.random.choice(up).node
        assert node is not None
        leaders = [each.leader for topic in node.image.topics.values() for each in topic.partitions]
        controller = node.metadata.leader_id
        if controller is not None:
            # As likely as all partitions together.
            leaders += [controller] * max(1, len(leaders))
        return [self.cluster.nodes[each] for each in leaders if each in self.cluster.nodes]

    # Processes and machines

    def restart_later(self, target: SimNode, low_s: float, high_s: float) -> None:
        self.later(self.random.uniform(low_s, high_s), self._restart, target)

    def _restart(self, target: SimNode) -> None:
        if not target.is_up:
            target.start()
            if target.failure:
                self.note(f"{target.name} could not start: {target.failure}")
                self.restart_later(target, 1.0, 5.0)

    def _kill(self, target: SimNode) -> bool:
        if not target.is_up:
            return False
        target.kill()
        self.restart_later(target, 0.05, 15.0)
        return True

    def _absent(self, target: SimNode) -> bool:
        """Keep a node away for longer than a run keeps tombstones and old records."""
        if not target.is_up:
            return False
        target.kill()
        self.restart_later(target, 22.0, 50.0)
        return True

    def _kill_all(self, _: SimNode) -> bool:
        for target in self.cluster.up():
            target.kill()
        for target in self.cluster.nodes.values():
            self.restart_later(target, 0.1, 8.0)
        return True

    def _stop(self, target: SimNode) -> bool:
        if not target.is_up or target.is_stopping or target.is_paused:
            return False
        target.stop(lambda: self.restart_later(target, 0.05, 5.0))
        return True

    def safe_to_unplug(self, target: SimNode) -> bool:
        """Whether every record that was acknowledged would still have a copy that has not lost power lately."""
        if self.options.power_cuts_all:
            return True
        return self.is_whole()

    def _power_cut(self, target: SimNode) -> bool:
        if not target.is_up or not self.safe_to_unplug(target):
            return False
        target.power_cut()
        self.restart_later(target, 0.5, 15.0)
        return True

    def _power_cut_all(self, _: SimNode) -> bool:
        if not self.options.power_cuts_all:
            return False
        for target in self.cluster.nodes.values():
            target.power_cut()
            self.restart_later(target, 0.5, 8.0)
        return True

    def _pause(self, target: SimNode) -> bool:
        if not target.is_up or target.is_paused:
            return False
        target.pause()
        self.later(self.some_time(0.05, 20.0), target.resume)
        return True

    def some_time(self, low_s: float, high_s: float) -> float:
        """Mostly short, sometimes beyond every timeout."""
        return low_s + (high_s - low_s) * self.random.random() ** 2

    # The network

    def _cut(self, ways: list[tuple[str, str]]) -> None:
        for source, target in ways:
            self.network.block(source, target)
        self.later(self.some_time(0.2, 20.0), self._mend, ways)

    def _mend(self, ways: list[tuple[str, str]]) -> None:
        for source, target in ways:
            self.network.unblock(source, target)

    def _others(self, target: SimNode) -> list[str]:
        return [each.name for each in self.cluster.nodes.values() if each is not target]

    def _isolate(self, target: SimNode) -> bool:
        # Its clients sometimes come along, sometimes stay on the other side.
        others = self._others(target) + [each for each in self.clients() if self.random.random() < 0.5]
        self._cut([(target.name, each) for each in others] + [(each, target.name) for each in others])
        return True

    def _one_way(self, target: SimNode) -> bool:
        others = self._others(target)
        if self.random.random() < 0.5:
            self._cut([(target.name, each) for each in others])
        else:
            self._cut([(each, target.name) for each in others])
        return True

    def _bridge(self, target: SimNode) -> bool:
        """Two that do not see each other, and others that see both."""
        others = self._others(target)
        if not others:
            return False
        other = self.random.choice(others)
        self._cut([(target.name, other), (other, target.name)])
        return True

    def _cut_off_clients(self, target: SimNode) -> bool:
        clients = self.clients()
        self._cut([(each, target.name) for each in clients] + [(target.name, each) for each in clients])
        return True

    def _slow_link(self, target: SimNode) -> bool:
        ways = [way for each in self._others(target) for way in ((target.name, each), (each, target.name))]
        delay_s = self.random.choice([0.01, 0.1, 1.0])
        for way in ways:
            self.network.slow[way] = delay_s * self.random.random()
        self.later(self.some_time(0.5, 20.0), self._speed_up, ways)
        return True

    def _speed_up(self, ways: list[tuple[str, str]]) -> None:
        for way in ways:
            self.network.slow.pop(way, None)

    def _resets(self, target: SimNode) -> bool:
        connections = [each for each in self.network.transports.values() if each.own_host == target.name]
        if not connections:
            return False
        for connection in connections:
            if self.random.random() < 0.5:
                self.network.reset(connection)
        return True

    # Disks and clocks

    def _failing_sync(self, target: SimNode) -> bool:
        """Let the disk fail; the process is started again later, as a supervisor would."""
        if not target.is_up or not self.safe_to_unplug(target):
            return False
        target.disk.fail_syncs = 1
        self._is_boot_due = True
        self.later(self.some_time(1.0, 15.0), self._replace_process, target)
        return True

    def _replace_process(self, target: SimNode) -> None:
        self._is_boot_due = False
        target.disk.fail_syncs = 0
        if target.is_up:
            # After a failed sync the page cache shows what the platter never got: only a reboot shows the truth.
            target.power_cut()
        self.restart_later(target, 0.1, 3.0)

    def _clock_jump(self, target: SimNode) -> bool:
        """The wall clock jumps, and some time later back: a leader that lives hours ago refuses records of today."""
        by_ms = self.random.choice([-2 * HOUR_MS, 2 * HOUR_MS, -30_000, 30_000]) + self.random.randint(-5000, 5000)
        target.host.jump_clock(by_ms)
        self.later(self.some_time(0.5, 15.0), target.host.jump_clock, -by_ms)
        return True

    # The end of the faults

    def heal(self) -> None:
        """Everything is mended, and every node runs."""
        self.is_active = False
        self.note("heal")
        self.network.heal()
        self.network.spike_share = 0.0
        self.network.flip_share = 0.0
        self._bucket_faults.heal()
        for target in self.cluster.nodes.values():
            target.host.thread_factor = 1.0
            target.host.stalled_until = 0.0
            target.disk.capacity_bytes = CAPACITY_BYTES
            target.disk.fail_writes = 0
            target.disk.full_share = 0.0
            if target.disk.fail_syncs:
                self._replace_process(target)
            target.resume()
            if target.node is not None and not all(
                isinstance(failure, DiskFull) for failure in target.node.replicas.offline.values()
            ):
                # A log that found no room is opened by the node itself; any other is tried again at the next start.
                target.kill()
            # A node that is stopping is still up: it is started again when it has stopped.
            if not target.is_up:
                self._restart(target)
