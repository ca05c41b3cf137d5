"""A live bar or count on stderr while something takes long; nothing where nobody watches."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

from strandline.cli.common.output import colours_wanted

_BEGIN_AFTER_S = 0.3
_REDRAW_EVERY_S = 0.1


class Progress:
    """Shown on a terminal only, and only for work that takes longer than a blink. `total` None: a count, no bar."""

    def __init__(
        self, doing: str, *, total: int | None, unit: str, is_bytes: bool = False, wanted: bool = True
    ) -> None:
        self._doing = doing
        self._total = total
        self._unit = unit
        self._is_bytes = is_bytes
        self._done = 0
        self._aside = ""
        self._bar: Any = None
        self._task: Any = None
        self._wanted = wanted and colours_wanted(sys.stderr)
        self._next_s = time.monotonic() + _BEGIN_AFTER_S

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._draw()
            self._bar.stop()

    def advance(self, amount: int) -> None:
        self.reached(self._done + amount)

    def reached(self, done: int, aside: str = "") -> None:
        self._done, self._aside = done, aside
        if not self._wanted:
            return
        now = time.monotonic()
        if now >= self._next_s:
            self._next_s = now + _REDRAW_EVERY_S
            if self._bar is None:
                self._begin()
            self._draw()

    def _begin(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        if self._total is None:
            columns: list[Any] = [TextColumn("{task.description} {task.fields[aside]}")]
        else:
            amount = DownloadColumn(binary_units=True) if self._is_bytes else MofNCompleteColumn()
            columns = [TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn()]
            columns.append(TextColumn("{task.fields[aside]}"))
        self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(self._doing, total=self._total, aside="")
        self._bar.start()

    def _draw(self) -> None:
        self._bar.update(self._task, completed=self._done, aside=self._aside or f"{self._done:,} {self._unit}")
