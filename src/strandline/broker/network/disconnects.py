"""Notices peers that are gone where the loop does not.

A reset that comes while unread bytes lie in the socket is told to a uvloop reader once, together with those bytes, and
never again; and the loop does not read from a connection that is paused. Either way a dead peer would keep its
descriptor until the idle sweep. So every connection is also in an epoll set of its own that asks for nothing, which
means: errors and hang-ups only. The loop watches the set, for as long as the loop lives.

Where many leave at once, as when a machine with ten thousand clients goes down, each is only noted when the loop tells
of it, and let go of in its turn: the loop hands out all its events before anything else runs.
"""

from __future__ import annotations

import asyncio
import select
from collections import deque
from typing import Protocol

EVENTS_PER_TURN_MAX = 64


class WatchedPeer(Protocol):
    """A connection whose end is to be noticed."""

    def on_hangup(self) -> None: ...

    def let_go(self) -> None: ...


class Disconnects:
    """The connections of a loop, watched by epoll. Without epoll (macOS) only the idle sweep closes dead ones."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._leaving: deque[WatchedPeer] = deque()
        self._watched: dict[int, WatchedPeer] = {}
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        if self._epoll is not None:
            loop.add_reader(self._epoll.fileno(), self._on_events)

    def watch(self, fd: int, peer: WatchedPeer) -> None:
        if self._epoll is not None:
            self._watched[fd] = peer
            self._epoll.register(fd, 0)

    def forget(self, fd: int) -> None:
        """Before the descriptor is closed: its number may be another connection's a moment later."""
        if self._epoll is not None and self._watched.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def _on_events(self) -> None:
        assert self._epoll is not None
        for fd, _ in self._epoll.poll(0, EVENTS_PER_TURN_MAX):
            peer = self._watched.get(fd)
            if peer is not None:
                peer.on_hangup()

    def leave(self, peer: WatchedPeer) -> None:
        """Close a connection soon whose peer has closed its side and that is not read from."""
        if not self._leaving:
            self._loop.call_soon(self._let_some_go)
        self._leaving.append(peer)

    def _let_some_go(self) -> None:
        for _ in range(min(len(self._leaving), EVENTS_PER_TURN_MAX)):
            self._leaving.popleft().let_go()
        if self._leaving:
            self._loop.call_soon(self._let_some_go)
