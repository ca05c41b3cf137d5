"""Running a search on the loop: short parts at once, long ones turn by turn, and blocking ones in a thread.

Searches are by time (`log.time_lookup`), or for a number of records (`log.counting`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from strandline.log.partition_log import PartitionLog
from strandline.log.segment.time_lookup import OPENS, FoundTime, Part, search_latest_time, search_time
from strandline.partition.serial_gate import SerialGate
from strandline.runtime.runtime import Runtime

T = TypeVar("T")
FoundCallback = Callable[[FoundTime | None, BaseException | None], object]


def at_hand(search: Part[T]) -> T | None:
    """Return what a search finds at once. If it would wait, end it and return None."""
    try:
        next(search)
    except StopIteration as end:
        found: T = end.value
        return found
    search.close()
    return None


class LookUp(Generic[T]):
    """One search under way. It calls its callback once: during `resume` if nothing blocks, else later."""

    __slots__ = ("_callback", "_is_inside", "_pause_s", "_runtime", "_search", "_serial_gate")

    def __init__(
        self,
        search: Part[T],
        runtime: Runtime,
        serial_gate: SerialGate,
        callback: Callable[[T | None, BaseException | None], object],
        *,
        pause_s: float = 0.0,
    ) -> None:
        """`pause_s` is a pause after each turn, for a search that is not urgent."""
        self._pause_s = pause_s
        self._search = search
        self._runtime = runtime
        self._serial_gate = serial_gate
        self._callback = callback
        self._is_inside = False

    def resume(self, result: Any = None, error: BaseException | None = None) -> None:
        try:
            step = self._search.send(result) if error is None else self._search.throw(error)
        except StopIteration as end:
            self._finish(end.value, None)
        except Exception as fault:
            self._finish(None, fault)
        else:
            if step is None and self._pause_s:
                self._runtime.call_later(self._pause_s, self.resume)
            elif step is None:
                self._runtime.call_soon(self.resume)
            elif step is not OPENS:
                self._runtime.in_thread(step, self.resume)
            elif self._is_inside:
                self.resume()
            else:
                self._is_inside = True
                self._serial_gate.enter(self.resume)

    def _finish(self, found: T | None, error: BaseException | None) -> None:
        if self._is_inside:
            self._serial_gate.leave()
        self._callback(found, error)


def look_up_time(
    log: PartitionLog,
    timestamp_ms: int,
    limit_offset: int,
    runtime: Runtime,
    serial_gate: SerialGate,
    callback: FoundCallback,
) -> None:
    """Find the first record at or after a time, below `limit_offset`."""
    if log.failure is not None:
        raise log.refusal()
    start_offset = log.log_start_offset
    search = search_time(list(log.segments), timestamp_ms, start_offset=start_offset, limit_offset=limit_offset)
    LookUp(search, runtime, serial_gate, callback).resume()


def look_up_latest_time(
    log: PartitionLog, limit_offset: int, runtime: Runtime, serial_gate: SerialGate, callback: FoundCallback
) -> None:
    """Find the first record with the largest timestamp, below `limit_offset`."""
    if log.failure is not None:
        raise log.refusal()
    search = search_latest_time(
        list(log.segments),
        start_offset=log.log_start_offset,
        limit_offset=limit_offset,
        end_offset=log.log_end_offset,
    )
    LookUp(search, runtime, serial_gate, callback).resume()
