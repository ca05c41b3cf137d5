"""The TLS handshakes of a loop that are under way: their deadlines, and the threads that compute for them.

A handshake is mostly one signature, up to a millisecond of computing. Its steps run in threads, `STEPS_MAX` at a time,
because OpenSSL releases the GIL. A flood of handshakes waits in a queue, and the loop serves others meanwhile. Those
between nodes go first, because a flood of clients must not keep followers from their leaders.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from itertools import islice
from typing import Final, Protocol

from strandline.broker.network.connection_limits import CLOSES_PER_TURN_MAX
from strandline.runtime.runtime import Runtime, TimerHandle

HANDSHAKE_S_MAX: Final = 10.0
"""How long a handshake may take, from the connection on."""
STEPS_MAX: Final = 2
"""Steps of handshakes that run in threads at one time. All others wait."""
_SWEEP_S: Final = 1.0


class HandshakingPeer(Protocol):
    """A connection whose handshake is under way."""

    closed: bool
    is_between_nodes: bool
    is_stepping: bool
    """Whether a thread uses its socket."""

    def take_step(self) -> str | None:
        """Go on with the handshake, in a thread; return what it waits for, `read` or `write`, None if it is over."""

    def on_step(self, wanted: str | None, error: BaseException | None) -> None:
        """Go on where the thread stopped."""

    def fail(self, reason: str, *, kind: str = "protocol") -> None: ...


class Handshakes:
    """The handshakes of a loop: when each began, and the steps that wait for a thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, runtime: Runtime) -> None:
        self._loop = loop
        self._runtime = runtime
        self._begun: dict[HandshakingPeer, float] = {}
        """When each began, in that order."""
        self._nodes: deque[HandshakingPeer] = deque()
        self._clients: deque[HandshakingPeer] = deque()
        self._running = 0
        self._sweeping: TimerHandle | None = None

    def begin(self, transport: HandshakingPeer) -> None:
        self._begun[transport] = self._runtime.monotonic()
        if self._sweeping is None:
            self._sweeping = self._loop.call_later(_SWEEP_S, self._sweep)

    def end(self, transport: HandshakingPeer) -> None:
        self._begun.pop(transport, None)

    def step(self, transport: HandshakingPeer) -> None:
        """Have a thread take the next step of this handshake, when one is free."""
        (self._nodes if transport.is_between_nodes else self._clients).append(transport)
        self._start_steps()

    def _start_steps(self) -> None:
        while (waiting := self._nodes or self._clients) and self._running < STEPS_MAX:
            transport = waiting.popleft()
            if not transport.closed:
                self._running += 1
                transport.is_stepping = True
                self._runtime.in_thread(transport.take_step, partial(self._on_step, transport))

    def _on_step(self, transport: HandshakingPeer, wanted: str | None, error: BaseException | None) -> None:
        self._running -= 1
        transport.is_stepping = False
        transport.on_step(wanted, error)
        self._start_steps()

    def _sweep(self) -> None:
        self._sweeping = None
        over = self._runtime.monotonic() - HANDSHAKE_S_MAX
        oldest = list(islice(self._begun.items(), CLOSES_PER_TURN_MAX))
        late = [transport for transport, begun_at in oldest if begun_at <= over]
        for transport in late:
            transport.fail(f"no TLS handshake within {HANDSHAKE_S_MAX:.0f} s", kind="deadline")
        if len(late) == CLOSES_PER_TURN_MAX:
            self._sweeping = self._loop.call_later(0.0, self._sweep)
        elif self._begun:
            self._sweeping = self._loop.call_later(_SWEEP_S, self._sweep)
