"""What all connections of one kind share and count: memory, deadlines, how many there are, and how they end.

The listeners for clients share one of these, so that a limit of the node is one limit, however many listeners it has.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from strandline.broker.network.deadlines import Deadlines
from strandline.broker.network.unsent_answers import UnsentAnswers
from strandline.observability.log_lines import fields

if TYPE_CHECKING:
    from strandline.broker.network.limited_connection import LimitedConnection
    from strandline.runtime.runtime import TimerHandle

REFUSALS_LOGGED_MAX: Final = 10
"""Lines a second about connections that were hung up on: fourteen bytes of a peer are not to cost a line each."""
FAVOUR_S_MAX: Final = 30
"""How long one connection may keep all others from reading while requests fill the memory set aside for them."""
FAVOUR_SILENT_S_MAX: Final = 3
"""How long it may send nothing meanwhile."""
CLOSES_PER_TURN_MAX: Final = 100
"""Connections that are hung up on in one turn of the loop: ten thousand at once would keep it for a tenth second."""

TLS_HELLOS: Final = (0x160300, 0x160301, 0x160302, 0x160303)
"""What the first three bytes of a TLS handshake are, read as those of a size."""

log = logging.getLogger("strandline.broker")


class ConnectionLimits:
    """The limits that the connections of the listeners of one kind share."""

    def __init__(
        self, call_soon: Callable[[Callable[[], object]], object], *, frame_size_max: int, inbox_bytes_max: int
    ) -> None:
        self._call_soon = call_soon
        self.frame_size_max = frame_size_max
        self.inbox_bytes_max = inbox_bytes_max
        self.inbox_bytes = 0
        self.connections: dict[LimitedConnection, None] = {}
        """In the order in which they came: what is done to all of them is done in the same order in every run."""
        self.connections_by_host: dict[str, int] = {}
        self.connections_by_listener: dict[str, int] = {}
        self.connections_by_listener_host: dict[tuple[str, str], int] = {}
        self.deadlines = Deadlines()
        self.unsent = UnsentAnswers(self._shed, call_soon)
        self.accepted = 0
        self.refusals = {"limit": 0, "protocol": 0, "deadline": 0, "memory": 0, "authentication": 0, "rate": 0}
        """Connections that the broker closed, by the kind of reason."""
        self.idle_closed = 0
        self.ticks = 0
        """Seconds since the start, roughly: cheap enough to be noted with every receive."""
        self.is_stopping = False
        """Whether requests that were started are finished, and none is started any more."""
        self.muted: dict[LimitedConnection, TimerHandle] = {}
        """Connections of clients that are above a quota, each with what ends its wait."""
        self.on_closed: dict[LimitedConnection, list[Callable[[], object]]] = {}
        """What is to be called when a connection is closed."""
        self.creation_delay_ms: Callable[[str], int] | None = None
        """How long a connection from an address is held before it is closed, because of a quota; 0 if it is welcome."""
        self._starved: deque[LimitedConnection] = deque()
        self._favoured: LimitedConnection | None = None
        self._favoured_at = 0
        self._logged_at = self._logged = self._unlogged = 0
        self._is_high = False
        self.on_pressure: list[Callable[[bool], None]] = []
        """Called when requests begin to fill more memory than was set aside for them, and when they no longer do."""

    @property
    def refused(self) -> int:
        return sum(self.refusals.values())

    def refuse(self, connection: LimitedConnection, reason: str, *, kind: str = "protocol") -> None:
        """Close the connection of a peer that does not speak the protocol, or not fast enough."""
        self.refusals[kind] += 1
        if self._logged_at != self.ticks:
            if self._unlogged:
                log.info("... and closed %d more", self._unlogged)
            self._logged_at, self._logged, self._unlogged = self.ticks, 0, 0
        if self._logged < REFUSALS_LOGGED_MAX:
            self._logged += 1
            host = connection.transport.peer_host
            log.info(
                "closing the connection from %s: %s", host, reason, extra=fields(host=host, reason=reason, kind=kind)
            )
        else:
            self._unlogged += 1
        connection.close()

    def refuse_frame(self, connection: LimitedConnection, size: int) -> None:
        """Close the connection of a peer that sends a frame of an impossible size."""
        if size >> 8 in TLS_HELLOS:
            self.refuse(connection, "it speaks TLS, and this listener does not: set security.protocol=PLAINTEXT")
        else:
            self.refuse(connection, f"a frame of {size} bytes")

    # Memory for requests that are not complete yet

    def note_inbox(self, connection: LimitedConnection, change: int) -> None:
        """An inbox grew or shrank. Beyond the budget only one connection may go on reading, so that it can finish."""
        self.inbox_bytes += change
        is_high = self.inbox_bytes > self.inbox_bytes_max
        if is_high != self._is_high:
            self._is_high = is_high
            for notify in self.on_pressure:
                notify(is_high)
        if change > 0 and is_high:
            if self._favoured is None or self._favoured.closed:
                self._favoured = connection
                self._favoured_at = self.ticks
            if self._favoured is not connection:
                connection.transport.pause()
                self._starved.append(connection)
        elif change < 0:
            if self._favoured is connection:
                self._favoured = None
            while (
                self._starved
                and not self.is_stopping
                and (self.inbox_bytes <= self.inbox_bytes_max or self._favoured is None)
            ):
                waiting = self._starved.popleft()
                if waiting.closed:
                    continue
                if self.inbox_bytes > self.inbox_bytes_max and waiting.inbox is not None:
                    # Not one that has finished meanwhile: it may stay silent, and all others would wait for it.
                    self._favoured = waiting
                    self._favoured_at = waiting.used_at = self.ticks
                if waiting.inbox is not None:
                    # The time that it had to wait is not its own.
                    self.deadlines.on_request_begun(waiting, self.ticks)
                if not waiting.paused:
                    waiting.transport.resume()

    def _shed(self, connection: LimitedConnection) -> None:
        self.refuse(connection, "it does not take its answers, and memory for answers is short", kind="memory")

    # Connections

    def welcome(self, connection: LimitedConnection) -> None:
        host, listener_name = connection.transport.peer_host, connection.listener_name
        connection.used_at = self.ticks
        self.accepted += 1
        connection.number = self.accepted
        self.connections[connection] = None
        self.deadlines.on_welcome(connection, self.ticks)
        self.connections_by_host[host] = self.connections_by_host.get(host, 0) + 1
        self.connections_by_listener[listener_name] = self.connections_by_listener.get(listener_name, 0) + 1
        place = listener_name, host
        self.connections_by_listener_host[place] = self.connections_by_listener_host.get(place, 0) + 1

    def forget(self, connection: LimitedConnection) -> None:
        host = connection.transport.peer_host
        if self.connections.pop(connection, False) is None:
            place = connection.listener_name, host
            self.connections_by_listener[place[0]] -= 1
            self.connections_by_listener_host[place] -= 1
            if not self.connections_by_listener_host[place]:
                del self.connections_by_listener_host[place]
        self.deadlines.on_closed(connection)
        self.unsent.forget(connection)
        for callback in self.on_closed.pop(connection, ()):
            callback()
        if (timer := self.muted.pop(connection, None)) is not None:
            timer.cancel()
        left = self.connections_by_host.get(host, 0) - 1
        if left > 0:
            self.connections_by_host[host] = left
        else:
            self.connections_by_host.pop(host, None)

    def close_idle(self, *, idle_s: float) -> None:
        """Close the connections that were silent for so long.

        A peer whose request waits here is not idle. But where more requests wait behind that one no turn reads from the
        connection, and it may be long dead.
        """
        self._close_some(
            [
                (connection, "")
                for connection in self.connections
                if self.ticks - connection.used_at > idle_s and (connection.started is None or connection.paused)
            ]
        )

    def close_stalled(self) -> None:
        """Close connections that never sent a request, and those that do not finish one."""
        self._close_some(self.deadlines.expired(self.ticks, lambda: set(self._starved)))
        # Beyond the budget everybody waits for one connection to finish its request: it may not take for ever.
        favoured = self._favoured
        if favoured is None or favoured.closed:
            return
        if (
            self.ticks - self._favoured_at > FAVOUR_S_MAX
            or self.ticks - max(self._favoured_at, favoured.used_at) > FAVOUR_SILENT_S_MAX
        ):
            self.refuse(favoured, "its request is not complete, and memory for requests is short", kind="memory")

    def _close_some(self, others: list[tuple[LimitedConnection, str]]) -> None:
        """Close a turn's share, and the rest on the next turns; a reason that is given is logged."""
        for connection, reason in others[:CLOSES_PER_TURN_MAX]:
            if reason and not connection.closed:
                self.refuse(connection, reason, kind="deadline")
            else:
                self.idle_closed += 1
                connection.close()
        if rest := others[CLOSES_PER_TURN_MAX:]:
            self._call_soon(lambda: self._close_some(rest))
