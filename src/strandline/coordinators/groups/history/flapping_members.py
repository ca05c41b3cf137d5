"""Clients that join a group and leave soon after, again and again, each time with a rebalance."""

from __future__ import annotations

from collections.abc import Container

from strandline.coordinators.groups.history.assignment_diff import MemberRef

FLAP_WINDOW_MS = 600_000
SHORT_LIFE_MS = 300_000
FLAPS_MIN = 3
"""Short memberships within the window from which on a client counts as flapping."""
FLAPPERS_MAX = 1_000
"""Clients of one group that are remembered."""
LIVES_MAX = 100
"""Short memberships of one client that are counted."""


class FlappingMembers:
    """When the members of one group joined, and how soon they left."""

    __slots__ = ("_joined_ms", "_short")

    def __init__(self) -> None:
        self._joined_ms: dict[str, int] = {}
        """By instance id, or else by member id."""
        self._short: dict[tuple[str, str], list[int]] = {}
        """The ends of short memberships, by client."""

    def __bool__(self) -> bool:
        return bool(self._joined_ms)

    def begin(self, who: MemberRef, now_ms: int) -> None:
        # The death of a static member shows only when another process takes its instance id.
        self.end(who, now_ms)
        self._joined_ms[_seat(who)] = now_ms

    def end(self, who: MemberRef, now_ms: int) -> None:
        joined_ms = self._joined_ms.pop(_seat(who), None)
        if joined_ms is None or now_ms - joined_ms >= SHORT_LIFE_MS:
            return
        client = _client(who)
        if client not in self._short and len(self._short) >= FLAPPERS_MAX:
            del self._short[next(iter(self._short))]
        ends_ms = self._short.setdefault(client, [])
        ends_ms.append(now_ms)
        del ends_ms[:-LIVES_MAX]

    def leave(self, who: MemberRef) -> None:
        """Forget a member that left on purpose: its membership does not count, however short it was."""
        self._joined_ms.pop(_seat(who), None)

    def flaps(self, who: MemberRef, now_ms: int) -> int:
        """Return the number of recent short memberships of the client; 0 below `FLAPS_MIN`."""
        client = _client(who)
        lately = [at_ms for at_ms in self._short.get(client, ()) if at_ms > now_ms - FLAP_WINDOW_MS]
        if lately:
            self._short[client] = lately
        else:
            self._short.pop(client, None)
        return len(lately) if len(lately) >= FLAPS_MIN else 0

    def forget_all_but(self, *seats: Container[str]) -> None:
        """Drop members absent from every `seats` set."""
        self._joined_ms = {
            seat: at_ms for seat, at_ms in self._joined_ms.items() if any(seat in known for known in seats)
        }

    def forget_joins(self) -> None:
        """Forget when the present members joined, because that is no longer known."""
        self._joined_ms.clear()


def _seat(who: MemberRef) -> str:
    return who.instance_id or who.member_id


def _client(who: MemberRef) -> tuple[str, str]:
    # Clients of one service often share a client id, and each restart gives a new member id: so the host counts too.
    return ("", who.instance_id) if who.instance_id is not None else (who.client_id, who.client_host)
