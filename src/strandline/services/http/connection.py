"""One connection of HTTP/1.1. uvicorn speaks the protocol; the deadlines for slow clients are added here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

HEADER_BYTES_MAX: Final = 32 * 1024
"""The first line and the headers of a request together."""
HEADER_S_MAX: Final = 10.0
"""The time in which they must arrive, and a body that no route wants must end."""
TAKEN_S_MAX: Final = 30.0
"""The time in which a client must take the end of an answer."""


class BoundedConnection(H11Protocol):
    """A connection that ends if its client is too slow."""

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any], on_lost: Callable[[], object]
    ) -> None:
        super().__init__(config, server_state, app_state, asyncio.get_running_loop())
        self._on_lost = on_lost
        self._deadline: asyncio.TimerHandle | None = None
        self._closing_since: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base
        super().connection_made(transport)
        self._update_deadline()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._update_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        super().connection_lost(exc)
        self._on_lost()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.trailing_data[0]:
            # The next request has begun already.
            self._update_deadline()
        if self.transport.get_write_buffer_size():
            self.loop.call_later(TAKEN_S_MAX, self._end_if_not_taken, self.cycle)

    def end_if_not_closed(self) -> None:
        """Abort a connection that was closed long ago: it waits for its client to take what was sent before."""
        if not self.transport.is_closing():
            return
        if self._closing_since is None:
            self._closing_since = self.loop.time()
        elif self.loop.time() - self._closing_since > TAKEN_S_MAX:
            self.transport.abort()

    def _update_deadline(self) -> None:
        """Limit the time between requests from the first byte on; while one is served, its own limits hold."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._cancel_deadline()
        elif self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(HEADER_S_MAX, self.transport.abort)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _end_if_not_taken(self, cycle: RequestResponseCycle) -> None:
        if self.cycle is cycle and self.transport.get_write_buffer_size():
            self.transport.abort()
