"""Work that has time, such as a look at all logs or at all positions of groups: in small shares, with pauses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from strandline.runtime.runtime import Runtime

SHARE_S_MAX: Final = 0.001
PAUSE_S: Final = 0.005
"""It takes a thousandth of a second of a turn, and then lets others work."""


def slowly(runtime: Runtime, work: Iterator[None], then: Callable[[], object]) -> None:
    """Run `work` to its end in small shares, with pauses, and call `then`."""

    def go_on() -> None:
        until = runtime.monotonic() + SHARE_S_MAX
        for _ in work:
            if runtime.monotonic() > until:
                runtime.call_later(PAUSE_S, go_on)
                return
        then()

    go_on()
