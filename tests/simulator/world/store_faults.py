"""What happens to the object store of a run: it is away, overloaded, slow, forgets to answer, or refuses a node."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tests.simulator.world.bucket import mend
from tests.tiers.store.faulty_store import StoreFaults

if TYPE_CHECKING:
    from tests.simulator.world.cluster import SimNode
    from tests.simulator.world.nemesis import Nemesis


class BucketFaults:
    """Each fault has fields of `StoreFaults` of its own, and resets them when it ends."""

    def __init__(self, nemesis: Nemesis) -> None:
        self._nemesis = nemesis
        self._random = nemesis.random
        self.kinds: dict[str, Callable[[SimNode], bool]] = {
            "store outage": self._outage,
            "store overload": self._overload,
            "slow store": self._slow,
            "lost store answers": self._lose,
            "cut uploads": self._cut,
            "late lists": self._list_late,
            "expired credentials": self._deny,
            "wrong ranges": self._misread,
        }

    def heal(self) -> None:
        for node in self._all():
            mend(node.store_faults)

    def _all(self) -> Iterable[SimNode]:
        return self._nemesis.cluster.nodes.values()

    def _some(self, target: SimNode) -> Iterable[SimNode]:
        """Return one node or all: the way of one to the store may be bad, or the store itself."""
        return [target] if self._random.random() < 0.5 else self._all()

    def _spoil(self, nodes: Iterable[SimNode], for_s: float, **values: float) -> bool:
        for node in nodes:
            vars(node.store_faults).update(values)
            self._nemesis.later(for_s, self._end, node.store_faults, list(values))
        return True

    def _end(self, faults: StoreFaults, names: list[str]) -> None:
        for name in names:
            setattr(faults, name, getattr(StoreFaults(), name))

    def _outage(self, target: SimNode) -> bool:
        """Answer 503 to everything, for minutes at the longest."""
        return self._spoil(self._some(target), self._nemesis.some_time(1.0, 150.0), unavailable=1.0)

    def _overload(self, target: SimNode) -> bool:
        share = self._random.choice([0.1, 0.5])
        return self._spoil(self._some(target), self._nemesis.some_time(1.0, 60.0), unavailable=share)

    def _slow(self, target: SimNode) -> bool:
        delay_s = self._random.choice([0.5, 5.0, 40.0])
        return self._spoil(self._some(target), self._nemesis.some_time(1.0, 60.0), delay_s=delay_s)

    def _lose(self, target: SimNode) -> bool:
        """Do the work and lose the answer; to creates, say 409 as well."""
        share = self._random.choice([0.1, 0.5])
        for_s = self._nemesis.some_time(1.0, 60.0)
        return self._spoil(self._some(target), for_s, lost=share, conflict=share / 2)

    def _cut(self, target: SimNode) -> bool:
        share = self._random.choice([0.2, 0.8])
        return self._spoil(self._some(target), self._nemesis.some_time(1.0, 60.0), cut=share)

    def _list_late(self, _: SimNode) -> bool:
        for_s = self._nemesis.some_time(5.0, 60.0)
        return self._spoil(self._all(), for_s, late_list_s=self._random.choice([1.0, 10.0]), listed_twice=0.3)

    def _deny(self, target: SimNode) -> bool:
        return self._spoil(self._some(target), self._nemesis.some_time(1.0, 60.0), denied=1.0)

    def _misread(self, target: SimNode) -> bool:
        """Return too few bytes of a range, or bytes that were never written."""
        share = self._random.choice([0.1, 0.5])
        for_s = self._nemesis.some_time(1.0, 30.0)
        return self._spoil([target], for_s, short_range=share, wrong_range=share)
