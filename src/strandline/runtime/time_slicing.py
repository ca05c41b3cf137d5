"""Long work on the loop, cut into slices so that other requests are served in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from strandline.runtime.runtime import Runtime

TURN_S_MAX: Final = 0.005
"""Seconds that one request may take of one turn of the loop."""
BACKGROUND_TURN_S_MAX: Final = 0.001
BACKGROUND_PAUSE_S: Final = 0.005
"""Background work takes a millisecond of a turn, and then pauses."""

T = TypeVar("T")


def gradually(runtime: Runtime, work: Iterator[T], then: Callable[[list[T]], object]) -> None:
    """Call `then` with all that `work` yields: at once if that is quick, else in a later turn."""
    _run_slice(runtime, work, then, [])


def _run_slice(runtime: Runtime, work: Iterator[T], then: Callable[[list[T]], object], found: list[T]) -> None:
    # A function of the module: one that names itself within another is a cycle, and most requests come here.
    until = runtime.monotonic() + TURN_S_MAX
    for each in work:
        found.append(each)
        if runtime.monotonic() > until:
            runtime.call_soon(_run_slice, runtime, work, then, found)
            return
    then(found)


def slowly(runtime: Runtime, work: Iterator[None], then: Callable[[], object]) -> None:
    """Run `work` to its end in short slices with pauses between them, and call `then`."""

    def run_slice() -> None:
        until = runtime.monotonic() + BACKGROUND_TURN_S_MAX
        for _ in work:
            if runtime.monotonic() > until:
                runtime.call_later(BACKGROUND_PAUSE_S, run_slice)
                return
        then()

    run_slice()
