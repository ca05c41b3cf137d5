"""What `pipeline run` shows while queries run: lines in place on a terminal, else a line now and then."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from strandline.pipelines.run.stages import Stage, Stages
from strandline.spark.display import Display
from strandline.spark.query_view import QueryView

LINE_EVERY_S = 10.0
QUIET_S = 5.0
"""When all queries wait for so long, there is nothing to be read yet."""


class RunDisplay(Display):
    """The start until the first batch, then the queries. The run's log gets the same lines on a terminal, too."""

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self._began_s = time.monotonic()
        self._seen: set[str] = set()
        self._printed_s: dict[str, float] = {}
        self._views: Sequence[QueryView] = ()
        self._lock = threading.Lock()
        self._waiting: Stage | None = stages.begin("first batch")

    def show(self, views: Sequence[QueryView], batch_of: QueryView | None) -> None:
        with self._lock:
            if batch_of is not None and batch_of.rows and batch_of.name not in self._seen:
                self._first(batch_of)
            is_quiet = bool(views) and all(view.doing.startswith("waiting") for view in views)
            if is_quiet and time.monotonic() - self._began_s > QUIET_S:
                self._end_wait("it runs; nothing to read yet")
            if self._waiting is not None:
                return
            self._views = views
            self._stages.below = self._lines
            if batch_of is not None:
                self._line(batch_of)

    def close(self, views: Sequence[QueryView]) -> None:
        with self._lock:
            if self._waiting is not None:
                # Stopped, failed or nothing there: what each query says below tells which.
                self._stages.drop(self._waiting)
            self._stages.close()
            for view in views:
                self._stages.say(view.line(time.monotonic()))

    def _first(self, view: QueryView) -> None:
        self._seen.add(view.name)
        rows = f"{view.name}: {view.rows_in_words()}"
        if self._waiting is not None:
            self._end_wait(f"{rows}, {self._stages.elapsed_s:.1f} s after the start")
        else:
            self._say(f"  {'':<12}         {rows}, {self._stages.elapsed_s:.1f} s after the start")
        self._printed_s[view.name] = time.monotonic()

    def _end_wait(self, detail: str) -> None:
        if self._waiting is not None:
            self._waiting.detail = detail
            self._stages.end(self._waiting)
            self._waiting = None

    def _line(self, view: QueryView) -> None:
        now_s = time.monotonic()
        if now_s - self._printed_s.get(view.name, -LINE_EVERY_S) >= LINE_EVERY_S:
            self._printed_s[view.name] = now_s
            self._say(view.line(now_s))

    def _say(self, words: str) -> None:
        """Print a line; where the terminal shows it in place, write it to the run's log alone."""
        self._stages.note(words) if self._stages.is_terminal else self._stages.say(words)

    def _lines(self) -> list[str]:
        now_s = time.monotonic()
        return [view.line(now_s) for view in self._views]
