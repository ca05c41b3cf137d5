"""What a person wants to know of a running query, from the progress that Spark reports (pure)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strandline.spark.source.offset_json import TOPIC_IDS


@dataclass
class QueryView:
    """One run of one query, as its reports come in."""

    name: str
    began_s: float
    batch_id: int = -1
    batches: int = 0
    rows: int = 0
    rows_per_second: float = 0.0
    lag: int | None = None
    """Records between the end of the last batch and the end of the log when it was planned; None if not known."""
    late_rows: int = 0
    """Rows that came after the watermark had passed, and were dropped."""
    doing: str = "starting"
    ended_s: float | None = None
    failed: bool = False

    def take(self, progress: Mapping[str, Any]) -> bool:
        """A report of Spark's; False for one that was taken before, or that only says that nothing came."""
        batch_id, rows = int(progress["batchId"]), int(progress["numInputRows"])
        if batch_id >= self.batch_id:
            # Spark's listener may tell of a batch when those after it were asked for and taken already.
            self.lag = lag_of(progress)
        # An idle query reports the batch that it would run next, again and again, until it does.
        if batch_id <= self.batch_id or not progress.get("durationMs", {}).get("addBatch"):
            return False
        self.batch_id = batch_id
        self.batches += 1
        self.rows += rows
        self.late_rows += sum(int(each["numRowsDroppedByWatermark"]) for each in progress.get("stateOperators", ()))
        rate = float(progress["processedRowsPerSecond"])
        # Before its first full batch Spark has nothing to divide by.
        self.rows_per_second = rate if rate == rate else 0.0
        return True

    def line(self, now_s: float) -> str:
        """The query in one line."""
        if self.ended_s is not None:
            return self._epitaph()
        if not self.batches:
            return f"{self.name}: {self.doing}, {_duration(now_s - self.began_s)}"
        parts = [f"batch {self.batch_id:,}", rows_in_words(self.rows), f"{self.rows_per_second:,.0f} rows/s"]
        if self.lag is not None:
            parts.append(self._lag())
        if self.late_rows:
            parts.append(f"{self.late_rows:,} late")
        return f"{self.name}: {', '.join(parts)}"

    def rows_in_words(self) -> str:
        """Return how many rows it has taken."""
        return rows_in_words(self.rows)

    def _lag(self) -> str:
        if not self.lag:
            return "caught up"
        left = f", about {_duration(self.lag / self.rows_per_second)}" if self.rows_per_second >= 1 else ""
        return f"{self.lag:,} behind{left}"

    def _epitaph(self) -> str:
        assert self.ended_s is not None
        what = "failed" if self.failed else "ended"
        lag = "" if self.lag is None else f", {self.lag:,} behind" if self.lag else ", caught up"
        took = _duration(self.ended_s - self.began_s)
        late = f", {self.late_rows:,} late" if self.late_rows else ""
        batches = _count(self.batches, "batch", "batches")
        return f"{self.name}: {what} after {batches}, {rows_in_words(self.rows)}, {took}{lag}{late}"


def lag_of(progress: Mapping[str, Any]) -> int | None:
    """How many offsets the sources have that the query has not read; None if no source says so."""
    known = [lag for source in progress.get("sources", ()) if (lag := _source_lag(source)) is not None]
    return sum(known) if known else None


def _source_lag(source: Mapping[str, Any]) -> int | None:
    end, latest = (_positions(source.get(name)) for name in ("endOffset", "latestOffset"))
    if end is None or latest is None:
        return None
    # A partition that this batch does not know yet is unread from its start.
    return sum(max(0, offset - end.get(partition, 0)) for partition, offset in latest.items())


def _positions(offsets: object) -> dict[tuple[str, str], int] | None:
    """{topic: {partition: offset}}, as Spark's Kafka source and ours write them; None for what other sources write."""
    if isinstance(offsets, str):
        try:
            offsets = json.loads(offsets)
        except ValueError:
            return None
    if not isinstance(offsets, dict):
        return None
    found = {}
    for topic, partitions in offsets.items():
        if topic == TOPIC_IDS:
            continue
        if not isinstance(partitions, dict):
            return None
        for partition, offset in partitions.items():
            if not isinstance(offset, int):
                return None
            found[topic, partition] = offset
    return found


def rows_in_words(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


def _duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.0f} h"


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
