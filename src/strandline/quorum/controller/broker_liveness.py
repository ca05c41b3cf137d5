"""Whether brokers are still there: those whose heartbeats stop are knocked at, long before their session ends.

    heartbeats come by a connection --it closes--> silent --knocked at: somebody answers--> silent, knocked at again
                                                   silent --refused, and refused again--> dead
    any --a heartbeat--> heartbeats come by a connection

A kernel refuses a connection when no process listens: a broker that died is told apart from one that is slow, stopped
or cut off, whose kernel answers or whose answer never comes. Those are left to their session. An active controller that
is new has no connections yet: for it all brokers are silent, save that most of them are given a moment first.

A refusal may be a firewall's. Brokers fetch from each other, so who is a broker itself can reach all of them, or the
cluster would not work. A controller that is none believes refusals only of an address where somebody has answered it.

Pure: `due` says whom to knock at, `on_knocked` takes what came of it. See docs/decisions/0019.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Final, Protocol

SETTLE_S: Final = 0.05
"""A process that dies loses one socket after the other: the one it listened at may be the last."""
CONFIRM_S: Final = 0.2
"""Between a refusal and the one that confirms it."""
AGAIN_S: Final = 0.5
"""Between knocks that did not settle it."""
GRACE_S: Final = 1.0
"""How long brokers have to find a new active controller."""
PROVE_AGAIN_S: Final = 30.0
"""Between attempts to reach a broker that lives and whose address refuses us."""
REFUSALS_OF_THE_DEAD: Final = 2
KNOCKS_MAX: Final = 100
"""Under way at one time."""


class Link(Protocol):
    """What heartbeats come by."""

    @property
    def closed(self) -> bool: ...


class OwnLink:
    """Between a broker and the controller of the same process."""

    closed: Final = False


OWN_LINK: Final = OwnLink()


class Knocked(Enum):
    ANSWERED = auto()
    REFUSED = auto()
    UNKNOWN = auto()
    """No answer in time, or nobody could be asked."""


class Watched:
    """A broker since it was last heard by another connection, or since this controller became active."""

    __slots__ = ("broker_id", "is_knocked_at", "is_proven", "knock_at", "link", "refusals")

    def __init__(self, broker_id: int, link: Link | None, knock_at: float, *, is_proven: bool) -> None:
        self.broker_id = broker_id
        self.link = link
        self.knock_at = knock_at
        self.is_proven = is_proven
        """Whether a refusal of its address means something."""
        self.is_knocked_at = False
        self.refusals = 0


class BrokerPresence:
    def __init__(self, *, is_proven: bool) -> None:
        """`is_proven`: this node is a broker itself."""
        self._is_proven = is_proven
        self._watched: dict[int, Watched] = {}

    def reset(self, broker_ids: Iterable[int], now: float, *, suspect: int | None = None) -> None:
        """This controller is active from now on; the `suspect` is a broker that gave cause to elect it."""
        self._watched = {
            broker_id: Watched(
                broker_id, None, now if broker_id == suspect else now + GRACE_S, is_proven=self._is_proven
            )
            for broker_id in sorted(broker_ids)
        }

    def heard(self, broker_id: int, link: Link) -> None:
        """A heartbeat of the registered incarnation came."""
        watched = self._watched.get(broker_id)
        if watched is None or watched.link is not link:
            # A new one: whatever is under way about the old one no longer counts.
            is_proven = self._is_proven or (watched is not None and watched.is_proven)
            self._watched[broker_id] = Watched(broker_id, link, 0.0, is_proven=is_proven)

    def forget(self, broker_id: int) -> None:
        self._watched.pop(broker_id, None)

    def due(self, now: float, counts: Callable[[int], bool]) -> list[Watched]:
        """Whom to knock at, of those that `counts` is true for. Each is to be told by `on_knocked`, however late."""
        room = KNOCKS_MAX - sum(watched.is_knocked_at for watched in self._watched.values())
        due: list[Watched] = []
        for watched in self._watched.values():
            if watched.link is not None and watched.link.closed:
                watched.link = None
                watched.knock_at = now + SETTLE_S
            if watched.is_knocked_at or now < watched.knock_at or (watched.link is not None and watched.is_proven):
                continue
            if len(due) < room and counts(watched.broker_id):
                watched.is_knocked_at = True
                due.append(watched)
        return due

    def on_knocked(self, watched: Watched, outcome: Knocked, now: float) -> bool:
        """Whether the broker is dead."""
        watched.is_knocked_at = False
        if self._watched.get(watched.broker_id) is not watched:
            return False
        watched.knock_at = now + AGAIN_S
        if outcome is not Knocked.REFUSED:
            watched.is_proven = watched.is_proven or outcome is Knocked.ANSWERED
            watched.refusals = 0
            return False
        if watched.link is not None:
            # It lives, and we cannot reach it: its refusals mean nothing.
            watched.knock_at = now + PROVE_AGAIN_S
            return False
        watched.refusals += 1
        if watched.refusals < REFUSALS_OF_THE_DEAD:
            watched.knock_at = now + CONFIRM_S
            return False
        return watched.is_proven
