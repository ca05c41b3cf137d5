"""Runs a small stream from log to log, in a Java with these options (`python -m` this module, then the options).

What it needs of Spark is what most pipelines need when they start: our source and sink, JSON, a window with a
watermark, state, a join with a small table, SQL.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from pyspark import SparkContext
from pyspark.sql import functions as f

from strandline.local.embedded import embedded
from strandline.spark.error_translation import SparkFailed, plainly
from strandline.spark.sessions import session
from strandline.spark.sink.update_mode import write_updates

ROWS = 200
_END_S = 120.0


def main() -> None:
    with plainly(), embedded() as broker, tempfile.TemporaryDirectory(prefix="strandline-training-") as home:
        broker.create_topic("orders", partitions=2)
        broker.create_topic("totals", partitions=2)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(ROWS):
            order = {"customer": f"c{number % 7}", "amount": number, "at": 1_700_000_000 + number}
            producer.produce("orders", key=f"{number}", value=json.dumps(order))
        producer.flush(30)
        _stream(broker.bootstrap, Path(home))
    # Java ends when its input does, and writes its archive then.
    gateway = SparkContext._gateway
    assert gateway is not None, "a session was started"
    gateway.proc.stdin.close()
    gateway.proc.wait(_END_S)


def _stream(bootstrap: str, home: Path) -> None:
    settings: dict[str, Any] = {
        "spark.driver.extraJavaOptions": sys.argv[1],
        "spark.local.dir": str(home / "local"),
        "spark.sql.warehouse.dir": str(home / "warehouse"),
    }
    spark = session("training", master="local[2]", **settings)
    names = spark.createDataFrame(
        [(f"c{number}", f"customer {number}") for number in range(7)], "customer STRING, name STRING"
    )
    orders = (
        spark.readStream.format("strandline")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
        .select(f.from_json(f.col("value").cast("string"), "customer STRING, amount BIGINT, at BIGINT").alias("order"))
        .select("order.*", f.timestamp_seconds("order.at").alias("time"))
        .withWatermark("time", "1 minute")
        .join(f.broadcast(names), "customer")
    )
    totals = (
        orders.groupBy(f.window("time", "1 minute"), "customer", "name")
        .agg(f.sum("amount").alias("total"), f.count("*").alias("orders"))
        .select(f.col("customer").alias("key"), f.to_json(f.struct("window", "name", "total", "orders")).alias("value"))
    )
    options = {"kafka.bootstrap.servers": bootstrap, "topic": "totals", "checkpointLocation": str(home / "checkpoint")}
    query = write_updates(totals.writeStream.outputMode("update").trigger(availableNow=True), options).start()
    query.awaitTermination()
    written = (
        spark.read.format("strandline")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "totals")
        .load()
    )
    written.createOrReplaceTempView("written")
    [row] = spark.sql("select count(*) as rows, count(distinct key) as keys from written").collect()
    assert row["keys"] == 7, row
    spark.stop()


if __name__ == "__main__":
    try:
        main()
    except SparkFailed as error:
        sys.exit(str(error))
