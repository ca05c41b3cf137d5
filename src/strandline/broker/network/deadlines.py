"""Peers that connect and say nothing, or begin a request and do not finish it.

No timer for each: a peer that arrives is noted once, in order, and looked at when its time is over. What a peer does in
time costs nothing but the note. The sweep comes with the node's tick, once a second.

A request may take long over a thin line, so its time is renewed for as long as bytes come faster than
`REQUEST_BYTES_PER_S_MIN`; a byte a minute is no line but a way to hold a connection.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from strandline.broker.network.limited_connection import LimitedConnection

    Noted = dict[LimitedConnection, tuple[int, int]]
    """Since which tick, and how many bytes of a request were there then; in the order of the ticks."""

REQUEST_BYTES_PER_S_MIN: Final = 1024


class Deadlines:
    def __init__(self, *, first_request_timeout_ms: int = 30_000, partial_request_timeout_ms: int = 60_000) -> None:
        self.first_request_timeout_ms = first_request_timeout_ms
        self.partial_request_timeout_ms = partial_request_timeout_ms
        """Both below zero: never."""
        self._newcomers: Noted = {}
        self._partial: Noted = {}

    def on_welcome(self, connection: LimitedConnection, ticks: int) -> None:
        self._newcomers[connection] = (ticks, 0)

    def on_request_begun(self, connection: LimitedConnection, ticks: int) -> None:
        """The inbox holds the beginning of a request, or requests that wait for an earlier one."""
        self._partial.pop(connection, None)
        self._partial[connection] = (ticks, connection.inbox_size)

    def on_inbox_empty(self, connection: LimitedConnection) -> None:
        self._partial.pop(connection, None)

    def on_closed(self, connection: LimitedConnection) -> None:
        self._newcomers.pop(connection, None)
        self._partial.pop(connection, None)

    def expired(
        self, ticks: int, starved: Callable[[], Container[LimitedConnection]]
    ) -> list[tuple[LimitedConnection, str]]:
        """Who has had its time, and why it is to be hung up on. `starved` are those that we do not read from."""
        return [*self._silent(ticks), *self._stalled(ticks, starved)]

    def _silent(self, ticks: int) -> list[tuple[LimitedConnection, str]]:
        if self.first_request_timeout_ms < 0:
            return []
        timeout_s = max(1, self.first_request_timeout_ms // 1000)
        due = _older_than(ticks - timeout_s, self._newcomers)
        for connection in due:
            del self._newcomers[connection]
        return [
            (each, f"no request within {timeout_s} s")
            for each in due
            # One that is in the middle of its first request has the time that any request has, if it sends at all.
            if not each.has_asked and each.inbox_size < timeout_s * REQUEST_BYTES_PER_S_MIN
        ]

    def _stalled(
        self, ticks: int, starved: Callable[[], Container[LimitedConnection]]
    ) -> list[tuple[LimitedConnection, str]]:
        if self.partial_request_timeout_ms < 0:
            return []
        timeout_s = max(1, self.partial_request_timeout_ms // 1000)
        due = _older_than(ticks - timeout_s, self._partial)
        if not due:
            return []
        waiting = starved()
        stalled = []
        for connection in due:
            _, had_bytes = self._partial.pop(connection)
            came_bytes = connection.inbox_size - had_bytes
            if connection.paused or connection in waiting or came_bytes >= timeout_s * REQUEST_BYTES_PER_S_MIN:
                self._partial[connection] = (ticks, connection.inbox_size)
            else:
                stalled.append((connection, f"a request that was not complete after {timeout_s} s"))
        return stalled


def _older_than(tick: int, noted: Noted) -> list[LimitedConnection]:
    """The first ones, up to and with that tick."""
    due = []
    for connection, (since, _) in noted.items():
        if since > tick:
            break
        due.append(connection)
    return due
