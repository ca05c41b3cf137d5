"""How far a version is that is being built: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from strandline.cli.common.progress import Progress
from strandline.spark.display import Display
from strandline.spark.query_view import QueryView

LINE_EVERY_S = 10.0


class BuildDisplay(Display):
    """All queries of a run together. `expected` is what they have to read, as far as that is known before they run."""

    def __init__(self, doing: str, expected: int, say: Callable[[str], None], *, is_terminal: bool) -> None:
        self._doing = doing
        self._expected = expected
        self._say = say
        self._began_s = time.monotonic()
        self._said_s = self._began_s
        self._bar = Progress(f"  {doing}", total=expected, unit="records") if is_terminal else None

    def show(self, views: Sequence[QueryView], batch_of: QueryView | None) -> None:
        done, total = progress_of(views, self._expected)
        aside = ", ".join(each.name for each in views if each.ended_s is None)
        if self._bar is not None:
            self._bar.reached(done, aside, total)
        elif time.monotonic() - self._said_s >= LINE_EVERY_S:
            self._said_s = time.monotonic()
            self._say(self.line(done, total, aside))

    def close(self, views: Sequence[QueryView]) -> None:
        if self._bar is not None:
            self._bar.close()
        done, _ = progress_of(views, 0)
        self._say(f"  {self._doing}: {done:,} records in {time.monotonic() - self._began_s:.1f} s")

    def line(self, done: int, total: int, aside: str) -> str:
        spent_s = time.monotonic() - self._began_s
        left = f", about {spent_s * (total - done) / done:.0f} s to go" if 0 < done < total else ""
        return f"  {self._doing}: {done:,} of {total:,} records{left} ({aside})"


def progress_of(views: Sequence[QueryView], expected: int) -> tuple[int, int]:
    """Records read, and those plus what is left: at least what was expected while queries have not begun."""
    done = sum(each.rows for each in views)
    left = sum(each.lag or 0 for each in views if each.ended_s is None)
    is_all_over = bool(views) and all(each.ended_s is not None for each in views)
    return done, done if is_all_over else max(done + left, expected)
