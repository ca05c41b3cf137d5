"""The heart of the simulation: a heap of events, a clock that only they move, and one source of chance.

Nothing here waits. The clock jumps to the next event, so an hour of a quiet cluster takes seconds. What happens when,
and in which order things happen that fall on one instant, follows from the seed alone; `trace` is a running checksum of
all of it, and two runs of one seed must end with the same.

Events belong to an `Actor`, one life of one process. A stopped actor's events wait until it goes on (SIGSTOP), a dead
one's are dropped (SIGKILL), and those of one actor that were asked for "soon" keep their order, as on a real loop.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from heapq import heappop, heappush
from struct import Struct
from typing import Any, Final
from zlib import crc32

EVENT_S: Final = 2e-6
"""What every event takes of simulated time: code that spins without an end moves the clock and is found out."""
_MARK = Struct(">dI")


class SimTimer:
    """An event that is due; `cancel` drops it."""

    __slots__ = ("actor", "args", "callback")

    def __init__(self, actor: Actor, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.actor = actor
        self.callback: Callable[..., object] | None = callback
        self.args = args

    def cancel(self) -> None:
        self.callback = None
        self.args = ()


class Actor:
    """One life of one simulated process."""

    def __init__(self, loop: SimLoop, name: str) -> None:
        self.loop = loop
        self.name = name
        self.number = loop.new_number()
        self.is_dead = False
        self.is_paused = False
        self.held: list[SimTimer] = []
        """What fell due while the process was stopped, in order."""

    def pause(self) -> None:
        """SIGSTOP: nothing of this process happens until `resume`."""
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        held, self.held = self.held, []
        for timer in held:
            self.loop.schedule(self.loop.now, timer)

    def kill(self) -> None:
        """SIGKILL: nothing of this process happens any more."""
        self.is_dead = True
        self.held = []


class SimLoop:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        """For the world itself: ties, delays, faults. Each process draws from a source of its own."""
        self.now = 0.0
        self.events = 0
        self.trace = 0
        self.after_event: Callable[[Actor], object] | None = None
        """Called after every event with the actor whose it was: the place of the invariants."""
        self._numbers = 0
        self._sequence = 0
        self._heap: list[tuple[float, int, SimTimer]] = []
        self.world = Actor(self, "world")

    def new_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def derive(self, name: str) -> random.Random:
        """Return a source of chance for one part, so that what it draws does not change what others draw."""
        return random.Random(f"{self.seed}/{name}")

    # Scheduling

    def schedule(self, at: float, timer: SimTimer) -> SimTimer:
        self._sequence += 1
        heappush(self._heap, (at, self._sequence, timer))
        return timer

    def call_at(self, at: float, actor: Actor, callback: Callable[..., object], *args: Any) -> SimTimer:
        # As `schedule`, without a call: most events come this way.
        self._sequence += 1
        timer = SimTimer(actor, callback, args)
        heappush(self._heap, (at, self._sequence, timer))
        return timer

    def call_in(self, delay_s: float, callback: Callable[..., object], *args: Any) -> SimTimer:
        """Schedule an event of the world itself: a fault, a check."""
        return self.schedule(self.now + delay_s, SimTimer(self.world, callback, args))

    # Running

    def run_until(self, at: float) -> None:
        """Let everything happen that falls before `at`."""
        heap = self._heap
        while heap and heap[0][0] <= at:
            self._step()
        self.now = max(self.now, at)

    def run_while(self, wanted: Callable[[], bool], *, within_s: float) -> bool:
        """Let time pass while `wanted` holds, at most so long; whether it has stopped holding."""
        until = self.now + within_s
        heap = self._heap
        while wanted():
            if not heap or heap[0][0] > until:
                self.now = max(self.now, until)
                return not wanted()
            self._step()
        return True

    def _step(self) -> None:
        at, _, timer = heappop(self._heap)
        callback = timer.callback
        actor = timer.actor
        if callback is None or actor.is_dead:
            return
        if actor.is_paused:
            actor.held.append(timer)
            return
        if at > self.now:
            self.now = at
        self.events += 1
        self.trace = crc32(_MARK.pack(self.now, actor.number), self.trace)
        callback(*timer.args)
        self.now += EVENT_S
        if self.after_event is not None:
            self.after_event(actor)

    def note(self, data: bytes | bytearray | memoryview) -> None:
        """Make something that happened part of the trace."""
        self.trace = crc32(data, self.trace)
