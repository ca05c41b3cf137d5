"""A stream that reads all there is and ends: records per CPU second from start to end, beside Spark's own connector."""

from __future__ import annotations

from bench.brokers import Broker
from bench.figures import Figure, ratio_at_least
from bench.spark_contest import expect, filled, format_of, spark_session
from bench.stage import Stage, beside_kafka

NAME = "spark-available-now"
SUMMARY = "readStream with AvailableNow of 10 M x 100 B and 2 M x 1 KiB: records per CPU-second, start-up included"
SIZES = {"100 B": (100, 10_000_000, 20_000, 1.7), "1 KiB": (1024, 2_000_000, 10_000, 1.2)}
"""Bytes of a value, records, records with --quick, and how many times as many records per CPU second it takes."""


def run(stage: Stage) -> list[Figure]:
    brokers = stage.shared_pair()
    figures = []
    with spark_session(stage) as spark:
        for size, (value_bytes, full, quick, bound) in SIZES.items():
            count, topic = stage.scaled(full, quick), f"{NAME}-{value_bytes}"
            for broker in brokers:
                filled(spark, broker, topic, count=count, value_bytes=value_bytes)

            def work(broker: Broker, topic: str = topic, count: int = count) -> dict[str, float]:
                place = {"bootstrap": broker.bootstrap, "topic": topic, "checkpoint": spark.new_directory("stream")}
                got = spark.do("available_now", format=format_of(broker), **place)
                expect(got, records=count)
                return {"per_cpu_s": count / got["cpu_s"], "per_s": count / got["seconds"]}

            samples = stage.take_turns(brokers, work)
            for broker in brokers:
                broker.delete_topic(topic)
            note = "a whole query to the noop sink; Spark's CPU, not the broker's"
            target = ratio_at_least(bound)
            figures.append(beside_kafka(samples, "per_cpu_s", f"AvailableNow, {size}", "rec/CPU-s", target, note))
            figures.append(beside_kafka(samples, "per_s", f"AvailableNow, {size}", "rec/s", None))
    return figures
