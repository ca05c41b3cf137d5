"""Baskets that were left: a reminder when half an hour after the last basket nothing was bought.

    clicks  ->  reminders

State and timers of our own, with `transformWithState`. A timer is set half an hour after each time that something went
into a basket, and rings when the watermark has passed it: then every click up to that time is known, in whatever order
the clicks came.
"""

from collections.abc import Iterator
from datetime import UTC, datetime

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues

from strandline import pipeline

PATIENCE_MS = 30 * 60 * 1000

clicks = pipeline.source(
    "clicks",
    schema="click STRING, customer STRING, article STRING, action STRING, at TIMESTAMP",
    watermark=("at", "30 minutes"),
    options={"maxOffsetsPerTrigger": "550"},
)


class Baskets(StatefulProcessor):
    """Of one customer: what went into the basket or was bought lately."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._steps = handle.getListState("steps", "at_ms BIGINT, action STRING, article STRING")

    def handleInputRows(self, key: tuple[str], rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        for row in rows:
            at_ms = row.at_ms
            self._steps.appendValue((at_ms, row.action, row.article))
            if row.action == "basket":
                self._handle.registerTimer(at_ms + PATIENCE_MS)
        return iter(())

    def handleExpiredTimer(
        self, key: tuple[str], timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        rings_ms = expiredTimerInfo.getExpiryTimeInMs()
        left_ms = rings_ms - PATIENCE_MS
        steps = sorted(tuple(step) for step in self._steps.get())
        happened_since = any(left_ms < at_ms <= rings_ms for at_ms, _, _ in steps)
        for at_ms, action, article in steps:
            if at_ms == left_ms and action == "basket" and not happened_since:
                yield Row(customer=key[0], article=article, left_at=datetime.fromtimestamp(left_ms / 1000, UTC))
        # Timers ring in the order of their time, so none will ask for what lies before this one.
        self._keep([step for step in steps if step[0] > left_ms])

    def _keep(self, steps: list[tuple[int, str, str]]) -> None:
        if steps:
            self._steps.put(steps)
        else:
            self._steps.clear()


@pipeline.stream
def reminders(clicks: DataFrame) -> DataFrame:
    steps = clicks.where("action IN ('basket', 'checkout')").selectExpr("*", "unix_millis(at) AS at_ms")
    return steps.groupBy("customer").transformWithState(
        statefulProcessor=Baskets(),
        outputStructType="customer STRING, article STRING, left_at TIMESTAMP",
        outputMode="append",
        timeMode="eventTime",
    )
