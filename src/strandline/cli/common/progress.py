"""A live bar or count on stderr while something takes long; nothing where stderr is no terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from strandline.cli.common.output import colours_wanted
from strandline.cli.common.plain_words import size
from strandline.runtime.live_lines import LiveLines

_BEGIN_AFTER_S = 0.3
_BAR_WIDTH = 20


class Progress:
    """A bar on a terminal, for work that takes longer than a blink. `total` None: a count, no bar."""

    def __init__(
        self, doing: str, *, total: int | None, unit: str, is_bytes: bool = False, wanted: bool = True
    ) -> None:
        self._doing = doing
        self._total = total
        self._unit = unit
        self._is_bytes = is_bytes
        self._done = 0
        self._aside = ""
        self._live: LiveLines | None = None
        self._wanted = wanted and colours_wanted(sys.stderr)
        self._began_s = time.monotonic()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        if self._live is not None:
            self._live.close()

    def advance(self, amount: int) -> None:
        self.reached(self._done + amount)

    def reached(self, done: int, aside: str = "", total: int | None = None) -> None:
        self._done, self._aside, self._total = done, aside, total or self._total
        if self._wanted and self._live is None and time.monotonic() - self._began_s >= _BEGIN_AFTER_S:
            self._live = LiveLines(sys.stderr, lambda: [self._line()])

    def _line(self) -> str:
        aside = self._aside or f"{self._done:,} {self._unit}"
        if not self._total:
            return f"{self._doing} {aside}"
        filled = _BAR_WIDTH * min(self._done, self._total) // self._total
        bar = "━" * filled + "─" * (_BAR_WIDTH - filled)
        done, total = (size(each) if self._is_bytes else f"{each:,}" for each in (self._done, self._total))
        return f"{self._doing} {bar} {done} of {total} {self._left()} {aside}"

    def _left(self) -> str:
        """The time that the rest takes at the pace so far."""
        if not self._done or not self._total:
            return "-:--"
        left_s = (time.monotonic() - self._began_s) * max(0, self._total - self._done) / self._done
        return f"{int(left_s) // 60}:{int(left_s) % 60:02}"
