"""Shows on a terminal what streaming queries do: batches, rows, rows per second, and how far behind they are.

    query = df.writeStream.format("strandline")....start()
    strandline.spark.follow(query)          waits for its end; Ctrl-C stops the query

Spark tells a listener in this process of each batch when it is done. Until the first one the line says what Spark is
doing, so that a batch of minutes does not look like a standstill.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from strandline.spark.display import Display, LineDisplay, LiveDisplay
from strandline.spark.error_translation import await_end, plainly
from strandline.spark.query_view import QueryView

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )
    from pyspark.sql.streaming.query import StreamingQuery, StreamingQueryManager

LOOK_EVERY_S: Final = 1.0


def follow(*queries: StreamingQuery, lines: bool = False, verbose: bool = False) -> None:
    """Wait until `queries` end, and show what they do where standard error is a terminal.

    `lines=True` prints a line per batch instead, also into a file. A query that fails is raised as `SparkFailed` with
    a sentence, or with everything that Spark says if `verbose`. Ctrl-C stops the queries and returns.
    """
    display = LineDisplay(sys.stderr) if lines else LiveDisplay(sys.stderr) if sys.stderr.isatty() else Display()
    listener = QueryListener(queries, display)
    streams = SparkSession.active().streams
    try:
        listener.listen(streams, queries)
        _wait(queries, listener)
    except KeyboardInterrupt:
        for query in queries:
            query.stop()
        listener.catch_up(queries)
    finally:
        streams.removeListener(listener)
        display.close(listener.views)
    for query in queries:
        await_end(query, verbose=verbose)


def _wait(queries: Sequence[StreamingQuery], listener: QueryListener) -> None:
    # The wait is here and not in Java: Ctrl-C within a call to Java leaves its answer behind for the next call.
    while not listener.ended.wait(LOOK_EVERY_S):
        with plainly():
            doing = [query.status["message"] if query.isActive else "" for query in queries]
        listener.say(doing)
        if not any(doing):
            # Spark's last report comes from another thread, and on a busy machine seconds later.
            listener.catch_up(queries)


class QueryListener(StreamingQueryListener):
    """Keeps a view of each query by Spark's reports, which come from a thread of Spark's."""

    def __init__(self, queries: Sequence[StreamingQuery], display: Display) -> None:
        self.ended = threading.Event()
        self._display = display
        self._lock = threading.Lock()
        now_s = time.monotonic()
        self._by_run = {
            str(query.runId): QueryView(query.name or f"query {str(query.id)[:8]}", now_s) for query in queries
        }

    @property
    def views(self) -> list[QueryView]:
        return list(self._by_run.values())

    def listen(self, streams: StreamingQueryManager, queries: Sequence[StreamingQuery]) -> None:
        # Reports wait until those from before anybody listened are taken: a batch counts once, and in its order.
        with self._lock:
            streams.addListener(self)
            self._catch_up(queries)

    def catch_up(self, queries: Sequence[StreamingQuery]) -> None:
        """Take what Spark keeps of its last reports, instead of waiting for those that are under way."""
        with self._lock:
            self._catch_up(queries)

    def _catch_up(self, queries: Sequence[StreamingQuery]) -> None:
        for query, view in zip(queries, self.views, strict=True):
            # Asked first: a query that has ended has no report to come that is not kept.
            was_active = query.isActive
            for progress in query.recentProgress:
                view.take(progress)
            if not was_active:
                self._end(view, failed=query.exception() is not None)

    def say(self, doing: Sequence[str]) -> None:
        with self._lock:
            for view, words in zip(self.views, doing, strict=True):
                view.doing = f"{words[:1].lower()}{words[1:]}" or view.doing
            self._display.show(self.views, None)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """It was started before it was followed."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        view = self._by_run.get(str(event.progress.runId))
        if view is not None:
            with self._lock:
                is_new = view.take(event.progress)
                self._display.show(self.views, view if is_new else None)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """What is shown stays true."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        view = self._by_run.get(str(event.runId))
        if view is not None:
            with self._lock:
                self._end(view, failed=event.exception is not None)

    def _end(self, view: QueryView, *, failed: bool) -> None:
        if view.ended_s is None:
            view.ended_s, view.failed = time.monotonic(), failed
        self._display.show(self.views, None)
        if all(each.ended_s is not None for each in self.views):
            self.ended.set()
