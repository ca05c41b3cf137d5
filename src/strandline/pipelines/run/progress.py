"""How far the queries of a run are, from what Spark reports of each batch.

Rows and late rows are counted over all runs of a version: a run begins with what the one before had counted. Spark
tells of a batch once, after it was committed, so a process that is killed takes the counts of its last seconds with it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from strandline.pipelines.versions.state import FAILED, RUNNING, STOPPED, QueryProgress
from strandline.spark.display import Display
from strandline.spark.query_view import QueryView, lag_of, rows_in_words

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )
    from pyspark.sql.streaming.query import StreamingQuery


def taken(before: QueryProgress, report: Mapping[str, Any]) -> QueryProgress:
    """Return the progress after a report of a batch that was not counted yet (pure)."""
    rate = float(report["processedRowsPerSecond"])
    return replace(
        before,
        state=RUNNING,
        batch_id=int(report["batchId"]),
        rows=before.rows + int(report["numInputRows"]),
        written_rows=_sum(before.written_rows if before.batch_id >= 0 else 0, written_rows_of(report)),
        late_rows=before.late_rows + late_rows_of(report),
        rows_per_second=rate if rate == rate else 0.0,
        lag=lag_of(report),
        watermark=report.get("eventTime", {}).get("watermark") or before.watermark,
        batch_ms=None if (took := report.get("batchDuration")) is None else int(took),
    )


def written_rows_of(report: Mapping[str, Any]) -> int | None:
    """Return the rows that a batch wrote; None if its sink does not count them, as that of tables."""
    written = report.get("sink", {}).get("numOutputRows")
    return None if written is None or written < 0 else int(written)


def late_rows_of(report: Mapping[str, Any]) -> int:
    """Rows that were too late for the watermark, in all stateful operators of the query."""
    return sum(int(each["numRowsDroppedByWatermark"]) for each in report.get("stateOperators", ()))


@dataclass
class RunView(QueryView):
    """A view that also counts rows written: a query of dead letters reads all rows and writes few."""

    written: int | None = 0
    """None: not known."""

    def take(self, progress: Mapping[str, Any]) -> bool:
        is_new = super().take(progress)
        if is_new:
            self.written = _sum(self.written, written_rows_of(progress))
        return is_new

    def line(self, now_s: float) -> str:
        line = super().line(now_s)
        return f"{line}, {rows_in_words(self.written)} written" if self.batches and self.written is not None else line

    def rows_in_words(self) -> str:
        """Return what it read and, if known, what it wrote."""
        read = f"read {rows_in_words(self.rows)}"
        return read if self.written is None else f"{read}, wrote {self.written:,}"


def _sum(before: int | None, more: int | None) -> int | None:
    """Return the sum of two counts; None if one is not known."""
    return None if before is None or more is None else before + more


@dataclass
class _Followed:
    query: StreamingQuery
    name: str
    view: RunView
    progress: QueryProgress


class RunProgress(StreamingQueryListener):
    """A listener that follows the queries of a run. Spark reports from a thread of its own."""

    def __init__(self, display: Display, counted: Mapping[str, QueryProgress]) -> None:
        self.display = display
        self._counted = counted
        self._lock = threading.Lock()
        self._by_run: dict[str, _Followed] = {}

    def follow(self, query: StreamingQuery, name: str) -> None:
        """Follow a query, with the batches that Spark keeps of it. Counts of the dataset go on."""
        with self._lock:
            earlier = {run: each for run, each in self._by_run.items() if each.name == name}
            for run in earlier:
                del self._by_run[run]
            counted = [each.progress for each in earlier.values()]
            before = counted[0] if counted else self._counted.get(name, QueryProgress())
            followed = _Followed(query, name, RunView(name, time.monotonic()), replace(before, state=RUNNING))
            self._by_run[str(query.runId)] = followed
            self._catch_up(followed)

    @property
    def views(self) -> Sequence[QueryView]:
        return [each.view for each in self._by_run.values()]

    def progress(self) -> dict[str, QueryProgress]:
        """Return how far each dataset is."""
        with self._lock:
            return {each.name: each.progress for each in self._by_run.values()}

    def ran(self) -> set[str]:
        """Return the datasets that had a batch in this run."""
        with self._lock:
            return {each.name for each in self._by_run.values() if each.view.batches}

    def look(self) -> None:
        """Ask Spark what the queries are doing, and which have ended."""
        for each in list(self._by_run.values()):
            if each.view.ended_s is not None:
                continue
            is_active = each.query.isActive
            words = str(each.query.status["message"]) if is_active else ""
            with self._lock:
                each.view.doing = f"{words[:1].lower()}{words[1:]}" or each.view.doing
                if not is_active:
                    self._catch_up(each)
                    self._end(each, failed=each.query.exception() is not None)
                elif not each.view.batches:
                    # Its first report may be seconds behind the batch, and until it is here it looks idle.
                    self._catch_up(each)
        with self._lock:
            self.display.show(self.views, None)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: a query is followed when its start has returned."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        with self._lock:
            followed = self._by_run.get(str(event.progress.runId))
            if followed is not None:
                self._take(followed, event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: what is shown stays true."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._lock:
            followed = self._by_run.get(str(event.runId))
            if followed is not None:
                self._end(followed, failed=event.exception is not None)

    def _catch_up(self, followed: _Followed) -> None:
        for report in followed.query.recentProgress:
            self._take(followed, report)

    def _take(self, followed: _Followed, report: Mapping[str, Any]) -> None:
        if followed.view.take(report):
            followed.progress = taken(followed.progress, report)
            self.display.show(self.views, followed.view)
        else:
            followed.progress = replace(followed.progress, lag=followed.view.lag)

    def _end(self, followed: _Followed, *, failed: bool) -> None:
        if followed.view.ended_s is None:
            followed.view.ended_s, followed.view.failed = time.monotonic(), failed
            followed.progress = replace(followed.progress, state=FAILED if failed else STOPPED)
            self.display.show(self.views, None)
