"""Looks names of other nodes up, each name in a thread of its own that nothing waits for.

A resolver that does not answer keeps its caller for half a minute. In a thread of the pool that would keep flushes
waiting, and a node that stops beside a host that is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any

LookedUp = Callable[[list[tuple[Any, ...]] | None, BaseException | None], object]


class LookUps:
    """Look-ups under way, by name and port."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[tuple[str, int], list[LookedUp]] = {}

    def find(self, host: str, port: int, then: LookedUp) -> None:
        """Call `then(addresses, error)` on the loop. Connections to one name share a look-up that is under way."""
        waiting = self._waiting.setdefault((host, port), [])
        waiting.append(then)
        if len(waiting) == 1:
            threading.Thread(target=self._ask, args=(host, port), name=f"look-up {host}", daemon=True).start()

    def _ask(self, host: str, port: int) -> None:
        found: list[tuple[Any, ...]] | None = None
        error: BaseException | None = None
        try:
            found = list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError, OverflowError) as caught:
            error = caught
        # A loop that was closed meanwhile has no use for the answer.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._tell, host, port, found, error)

    def _tell(self, host: str, port: int, found: list[tuple[Any, ...]] | None, error: BaseException | None) -> None:
        for then in self._waiting.pop((host, port)):
            then(found, error)
