"""Probes of brokers whose heartbeats stopped, long before their session ends.

    connected --the connection closes--> silent --a probe is accepted--> silent, probed again
                                         silent --two probes are refused--> dead
    any --a heartbeat--> connected

A kernel refuses a connection when no process listens. So a dead broker differs from one that is slow, stopped or cut
off: there the kernel accepts, or no answer comes. These keep their session. A new active controller has no connections
yet: all brokers are silent, and most of them get a grace period first.

A refusal may come from a firewall. Brokers fetch from each other, so a node that is a broker can reach all of them. A
controller that is not a broker believes a refusal only from an address that accepted it once.

Pure: `due` returns the brokers to probe, `on_probed` takes the outcome. See docs/decisions/0019.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Final, Protocol

SETTLE_S: Final = 0.05
"""The sockets of a dying process close one after the other; the listening one may be the last."""
CONFIRM_S: Final = 0.2
"""Between a refusal and the probe that confirms it."""
AGAIN_S: Final = 0.5
"""Between probes without a result."""
GRACE_S: Final = 1.0
"""Time for brokers to find a new active controller."""
PROVE_AGAIN_S: Final = 30.0
"""Between probes of a broker that sends heartbeats and whose address refuses connections."""
REFUSALS_OF_THE_DEAD: Final = 2
PROBES_MAX: Final = 100
"""Probes in flight at one time."""


class Link(Protocol):
    """The connection that heartbeats arrive on."""

    @property
    def closed(self) -> bool: ...


class OwnLink:
    """The link between a broker and the controller of the same process."""

    closed: Final = False


OWN_LINK: Final = OwnLink()


class ProbeOutcome(Enum):
    ANSWERED = auto()
    REFUSED = auto()
    UNKNOWN = auto()
    """No answer in time, or no address to connect to."""


class ProbedBroker:
    """A broker since its heartbeats changed connection, or since this controller became active."""

    __slots__ = ("broker_id", "is_probed", "is_proven", "link", "probe_at", "refusals")

    def __init__(self, broker_id: int, link: Link | None, probe_at: float, *, is_proven: bool) -> None:
        self.broker_id = broker_id
        self.link = link
        self.probe_at = probe_at
        self.is_proven = is_proven
        """Whether a refusal from its address counts."""
        self.is_probed = False
        self.refusals = 0


class BrokerLiveness:
    """Which brokers to probe, and which of them are dead."""

    def __init__(self, *, is_proven: bool) -> None:
        """`is_proven`: this node is a broker itself."""
        self._is_proven = is_proven
        self._watched: dict[int, ProbedBroker] = {}

    def reset(self, broker_ids: Iterable[int], now: float, *, suspect: int | None = None) -> None:
        """Start over as the active controller; the `suspect` is the broker whose silence led to its election."""
        self._watched = {
            broker_id: ProbedBroker(
                broker_id, None, now if broker_id == suspect else now + GRACE_S, is_proven=self._is_proven
            )
            for broker_id in sorted(broker_ids)
        }

    def on_heartbeat(self, broker_id: int, link: Link) -> None:
        """Note a heartbeat of the registered incarnation."""
        watched = self._watched.get(broker_id)
        if watched is None or watched.link is not link:
            # A new connection: the outcome of a probe in flight no longer counts.
            is_proven = self._is_proven or (watched is not None and watched.is_proven)
            self._watched[broker_id] = ProbedBroker(broker_id, link, 0.0, is_proven=is_proven)

    def forget(self, broker_id: int) -> None:
        self._watched.pop(broker_id, None)

    def due(self, now: float, counts: Callable[[int], bool]) -> list[ProbedBroker]:
        """Return the brokers to probe among those that `counts`. Each needs its `on_probed`, however late."""
        room = PROBES_MAX - sum(watched.is_probed for watched in self._watched.values())
        due: list[ProbedBroker] = []
        for watched in self._watched.values():
            if watched.link is not None and watched.link.closed:
                watched.link = None
                watched.probe_at = now + SETTLE_S
            if watched.is_probed or now < watched.probe_at or (watched.link is not None and watched.is_proven):
                continue
            if len(due) < room and counts(watched.broker_id):
                watched.is_probed = True
                due.append(watched)
        return due

    def on_probed(self, watched: ProbedBroker, outcome: ProbeOutcome, now: float) -> bool:
        """Return whether the broker is dead."""
        watched.is_probed = False
        if self._watched.get(watched.broker_id) is not watched:
            return False
        watched.probe_at = now + AGAIN_S
        if outcome is not ProbeOutcome.REFUSED:
            watched.is_proven = watched.is_proven or outcome is ProbeOutcome.ANSWERED
            watched.refusals = 0
            return False
        if watched.link is not None:
            # It sends heartbeats and cannot be reached, so its refusals do not count.
            watched.probe_at = now + PROVE_AGAIN_S
            return False
        watched.refusals += 1
        if watched.refusals < REFUSALS_OF_THE_DEAD:
            watched.probe_at = now + CONFIRM_S
            return False
        return watched.is_proven
