"""A stream that reads all there is and ends: records per CPU second from start to end, beside Spark's own connector."""

from __future__ import annotations

from typing import Any

from bench.brokers import Broker
from bench.figures import Figure
from bench.spark_contest import SparkProcess, expect, format_of, reading_figures
from bench.stage import Stage

NAME = "spark-available-now"
SUMMARY = "readStream with AvailableNow of 10 M x 100 B and 2 M x 1 KiB: records per CPU-second, start-up included"
SIZES = {"100 B": (100, 10_000_000, 20_000, 1.7), "1 KiB": (1024, 2_000_000, 10_000, 1.2)}
"""As `reading_figures` takes them."""


def run(stage: Stage) -> list[Figure]:
    note = "a whole query to the noop sink; Spark's CPU, not the broker's"
    return reading_figures(stage, name=NAME, label="AvailableNow", note=note, sizes=SIZES, read=read)


def read(spark: SparkProcess, broker: Broker, topic: str, count: int, value_bytes: int) -> dict[str, Any]:
    place = {"bootstrap": broker.bootstrap, "topic": topic, "checkpoint": spark.new_directory("stream")}
    got = spark.do("available_now", format=format_of(broker), **place)
    expect(got, records=count)
    return got
