"""What `pipeline run` shows while queries run: lines in place on a terminal, else a line now and then."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TextIO

from strandline.pipelines.run.stages import Stage, Stages
from strandline.spark.display import Display, LiveDisplay
from strandline.spark.query_view import QueryView, rows_in_words

LINE_EVERY_S = 10.0
QUIET_S = 5.0
"""When all queries wait for so long, there is nothing to be read yet."""


class RunDisplay(Display):
    """Until the first batch the start is what is shown; then the queries."""

    def __init__(self, stages: Stages, stream: TextIO) -> None:
        self._stages = stages
        self._stream = stream
        self._began_s = time.monotonic()
        self._seen: set[str] = set()
        self._printed_s: dict[str, float] = {}
        self._live: LiveDisplay | None = None
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
            if self._stream.isatty():
                self._live = self._live or LiveDisplay(self._stream)
                self._live.show(views, batch_of)
            if batch_of is not None:
                self._line(batch_of)

    def close(self, views: Sequence[QueryView]) -> None:
        with self._lock:
            if self._waiting is not None:
                # Stopped, failed or nothing there: what each query says below tells which.
                self._stages.drop(self._waiting)
                self._stages.close()
            if self._live is not None:
                self._live.close(views)
            for view in views:
                self._say(view.line(time.monotonic()))

    def _first(self, view: QueryView) -> None:
        self._seen.add(view.name)
        rows = f"{view.name}: {rows_in_words(view.rows)}"
        if self._waiting is not None:
            self._end_wait(f"{rows}, {self._stages.elapsed_s:.1f} s after the start")
        elif self._live is None:
            self._stages.say(f"  {'':<12}         {rows}, {self._stages.elapsed_s:.1f} s after the start")
        self._printed_s[view.name] = time.monotonic()

    def _end_wait(self, detail: str) -> None:
        if self._waiting is not None:
            self._waiting.detail = detail
            self._stages.end(self._waiting)
            self._stages.close()
            self._waiting = None

    def _line(self, view: QueryView) -> None:
        now_s = time.monotonic()
        if now_s - self._printed_s.get(view.name, -LINE_EVERY_S) >= LINE_EVERY_S:
            self._printed_s[view.name] = now_s
            self._say(view.line(now_s))

    def _say(self, words: str) -> None:
        """Print a line; where lines change in place, write it to the run's log alone."""
        self._stages.say(words) if self._live is None else self._stages.note(words)
