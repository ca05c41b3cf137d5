"""An idle leader writes an empty record now and then, which shows that the log moves.

Without it an idle quorum looks like one that is stuck, and a follower that restarts would wait for the next change
before it knows what is committed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from strandline.codec.messages.no_op_record import NoOpRecord
from strandline.runtime.runtime import Runtime, TimerHandle

if TYPE_CHECKING:
    from strandline.broker.kraft.metadata_loader import Done


class IdleRecords:
    def __init__(self, runtime: Runtime, interval_ms: int, write: Callable[[list[Any], Done], None]) -> None:
        self._runtime = runtime
        self._interval_s = interval_ms / 1000
        self._write = write
        self._end_offset = -1
        self._timer: TimerHandle | None = None

    def begin(self, end_offset: Callable[[], int]) -> None:
        """This node leads; `end_offset()` tells whether the log has grown by itself."""
        self.end()
        if self._interval_s > 0:
            self._end_offset = end_offset()
            self._timer = self._runtime.call_later(self._interval_s, self._on_time, end_offset)

    def _on_time(self, end_offset: Callable[[], int]) -> None:
        if end_offset() == self._end_offset:
            self._write([NoOpRecord()], _nobody_waits)
        if self._timer is not None:
            self.begin(end_offset)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _nobody_waits(error: BaseException | None) -> None:
    """Whether it was written shows in the log."""
