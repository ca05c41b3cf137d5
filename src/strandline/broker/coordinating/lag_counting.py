"""Counts records for requests about the lag of a group: what is at hand at once, the rest in the background.

What was counted stays with the segments, so it is at hand the next time. One search at a time walks over a log or opens
a large batch, and it pauses between its turns; a few others wait for it, and of more nothing is begun.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, TypeVar

from strandline.errors import StrandlineError
from strandline.log.segment.time_lookup import Part
from strandline.partition.counting import Counted, count_unread, unread_if_plain
from strandline.partition.look_up import LookUp, at_hand
from strandline.partition.partition import Partition
from strandline.partition.serial_gate import SerialGate
from strandline.runtime.runtime import Runtime

log = logging.getLogger("strandline.groups")

SEARCHES_MAX: Final = 32
"""Searches of one node that are under way or wait for one another."""
PAUSE_S: Final = 0.002

T = TypeVar("T")


class LagCounting:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._serial_gate = SerialGate()
        self._open = 0

    def at_hand(self, partition: Partition, offset: int) -> Counted | None:
        """What a reader gets from `offset` on, if that is known without waiting."""
        try:
            return unread_if_plain(partition, offset) or at_hand(count_unread(partition, offset))
        except (StrandlineError, OSError) as error:
            log.debug("the records of %r cannot be counted: %s", partition, error)
            return None

    def begin(self, partition: Partition, offset: int, on_counted: Callable[[Counted], object]) -> bool:
        """Count, however long it takes; whether that was begun. `on_counted` is not called if it cannot be done."""

        def on_done(counted: Counted | None, error: BaseException | None) -> None:
            if counted is not None:
                on_counted(counted)

        return self.run(self.counted(partition, offset), on_done)

    def counted(self, partition: Partition, offset: int) -> Part[Counted | None]:
        """The search itself, which finds None where the log, or the disk, does not allow it."""
        try:
            return (yield from count_unread(partition, offset))
        except (StrandlineError, OSError) as error:
            log.debug("the records of %r cannot be counted: %s", partition, error)
            return None

    def run(self, search: Part[T], on_done: Callable[[T | None, BaseException | None], object]) -> bool:
        """Run a search of any length; whether it was begun."""
        if self._open >= SEARCHES_MAX:
            search.close()
            return False
        self._open += 1

        def on_found(found: T | None, error: BaseException | None) -> None:
            self._open -= 1
            if error is not None:
                log.error("records could not be counted", exc_info=error)
            on_done(found, error)

        look_up: LookUp[Any] = LookUp(search, self._runtime, self._serial_gate, on_found, pause_s=PAUSE_S)
        look_up.resume()
        return True
