"""The part of the story that runs on Spark: paid orders from one topic into another, exactly once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from demo.shop import TOPIC

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAYMENTS = "payments"
GROUP = f"spark.{PAYMENTS}"
ORDERS_PER_BATCH = 2_500
ROWS_BEFORE_THE_FALL = 500
EVENT = "event INT, order STRING, state STRING, customer STRING, total DOUBLE"


def start_spark() -> SparkSession:
    import strandline.spark

    # Four attempts for a task, as on a cluster; by default a local Spark gives up at the first.
    return strandline.spark.session(
        "demo", master="local[2,4]", spark_sql_execution_arrow_maxRecordsPerBatch=ROWS_BEFORE_THE_FALL
    )


def run_pipeline(spark: SparkSession, bootstrap: str, home: Path) -> int:
    """Everything that is new since the checkpoint, in batches; how many there were."""
    import strandline.spark

    events = (
        spark.readStream.format("strandline")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", ORDERS_PER_BATCH)
        .load()
        .selectExpr("key", f"from_json(cast(value AS STRING), '{EVENT}') AS event")
        .where("event.state = 'paid'")
    )
    payments = events.selectExpr(
        "key", "cast(to_json(struct(event.event, event.order, event.total)) AS BINARY) AS value"
    )
    query = (
        payments.mapInArrow(fall_once(home / "fell"), payments.schema)
        .writeStream.format("strandline")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", PAYMENTS)
        .option("checkpointLocation", str(home / "checkpoint"))
        .queryName(PAYMENTS)
        .trigger(availableNow=True)
        .start()
    )
    strandline.spark.follow(query)
    return sum(report["numInputRows"] > 0 for report in query.recentProgress)


def fall_once(mark: Path) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Rows as they are; but the first process of Spark's that has given some away is killed before the next."""

    def fall(batches: Iterable[Any]) -> Iterator[Any]:
        import os
        import signal

        for batch in batches:
            yield batch
            try:
                os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)

    return fall


def payments_of(values: Iterable[bytes]) -> Counter[tuple[int, str, float]]:
    """What was paid, and how often it stands there."""
    paid = (json.loads(value) for value in values)
    return Counter((each["event"], each["order"], each["total"]) for each in paid)
