"""A windowed aggregate over orders in JSON, as a pipeline runs it, beside the same query on Spark's own connector."""

from __future__ import annotations

import json
from typing import Any

from bench.brokers import Broker
from bench.clients.produce import CHUNK, order_values
from bench.figures import Figure
from bench.spark_contest import SparkProcess, expect, format_of, reading_figures
from bench.stage import Stage

NAME = "pipeline-window"
SUMMARY = "10 M orders of 100 B, summed up by window and city in one AvailableNow run: records per CPU-second"
SIZES = {"100 B": (100, 10_000_000, 20_000, 1.3)}
"""As `reading_figures` takes them."""


def run(stage: Stage) -> list[Figure]:
    note = "a whole query, start-up included; Spark's CPU, not the broker's"
    return reading_figures(
        stage, name=NAME, label="windowed aggregate", note=note, sizes=SIZES, read=read, values="orders"
    )


def read(spark: SparkProcess, broker: Broker, topic: str, count: int, value_bytes: int) -> dict[str, Any]:
    place = {"bootstrap": broker.bootstrap, "topic": topic, "checkpoint": spark.new_directory("windowed")}
    got = spark.do("windowed", format=format_of(broker), **place)
    cents = sum(json.loads(order)["cents"] for order in order_values(value_bytes)) * (count // CHUNK)
    expect(got, records=count, cents=cents)
    return got
