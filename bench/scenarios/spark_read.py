"""A batch read through Spark: records per CPU second of the whole session, beside Spark's own Kafka connector."""

from __future__ import annotations

from typing import Any

from bench.brokers import Broker
from bench.figures import Figure
from bench.spark_contest import SparkProcess, expect, format_of, reading_figures
from bench.stage import Stage

NAME = "spark-read"
SUMMARY = "spark.read of 2 M x 100 B and 200 k x 1 KiB: records per CPU-second, beside Spark's own connector"
SIZES = {"100 B": (100, 2_000_000, 20_000, 2.0), "1 KiB": (1024, 200_000, 10_000, 1.2)}
"""As `reading_figures` takes them."""


def run(stage: Stage) -> list[Figure]:
    note = "Spark's CPU: driver, JVM, Python workers; not the broker's"
    return reading_figures(stage, name=NAME, label="batch read", note=note, sizes=SIZES, read=read)


def read(spark: SparkProcess, broker: Broker, topic: str, count: int, value_bytes: int) -> dict[str, Any]:
    got = spark.do("read", format=format_of(broker), bootstrap=broker.bootstrap, topic=topic)
    expect(got, records=count, bytes=count * value_bytes)
    return got
