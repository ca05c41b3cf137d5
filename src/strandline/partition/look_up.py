"""Drives a search by time on the loop: short parts at once, long ones turn by turn, what would wait in a thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from strandline.log.time_lookup import OPENS, FoundTime, Search
from strandline.partition.turnstile import Turnstile
from strandline.runtime import Runtime

FoundCallback = Callable[[FoundTime | None, BaseException | None], object]


class LookUp:
    """One search under way. Its callback is called once: during `go_on` if the answer was at hand, else later."""

    __slots__ = ("_callback", "_is_inside", "_runtime", "_search", "_turnstile")

    def __init__(self, search: Search, runtime: Runtime, turnstile: Turnstile, callback: FoundCallback) -> None:
        self._search = search
        self._runtime = runtime
        self._turnstile = turnstile
        self._callback = callback
        self._is_inside = False

    def go_on(self, result: Any = None, error: BaseException | None = None) -> None:
        try:
            step = self._search.send(result) if error is None else self._search.throw(error)
        except StopIteration as end:
            self._finish(end.value, None)
        except Exception as fault:
            self._finish(None, fault)
        else:
            if step is None:
                self._runtime.call_soon(self.go_on)
            elif step is not OPENS:
                self._runtime.in_thread(step, self.go_on)
            elif self._is_inside:
                self.go_on()
            else:
                self._is_inside = True
                self._turnstile.enter(self.go_on)

    def _finish(self, found: FoundTime | None, error: BaseException | None) -> None:
        if self._is_inside:
            self._turnstile.leave()
        self._callback(found, error)
