"""A batch read through Spark: records per CPU second of the whole session, beside Spark's own Kafka connector."""

from __future__ import annotations

from bench.brokers import Broker
from bench.figures import Figure, ratio_at_least
from bench.spark_contest import expect, filled, format_of, spark_session
from bench.stage import Stage, beside_kafka

NAME = "spark-read"
SUMMARY = "spark.read of 2 M x 100 B and 200 k x 1 KiB: records per CPU-second, beside Spark's own connector"
SIZES = {"100 B": (100, 2_000_000, 20_000, 2.0), "1 KiB": (1024, 200_000, 10_000, 1.2)}
"""Bytes of a value, records, records with --quick, and how many times as many records per CPU second it takes."""


def run(stage: Stage) -> list[Figure]:
    brokers = stage.shared_pair()
    figures = []
    with spark_session(stage) as spark:
        for size, (value_bytes, full, quick, bound) in SIZES.items():
            count, topic = stage.scaled(full, quick), f"{NAME}-{value_bytes}"
            for broker in brokers:
                filled(spark, broker, topic, count=count, value_bytes=value_bytes)

            def work(
                broker: Broker, topic: str = topic, count: int = count, value_bytes: int = value_bytes
            ) -> dict[str, float]:
                got = spark.do("read", format=format_of(broker), bootstrap=broker.bootstrap, topic=topic)
                expect(got, records=count, bytes=count * value_bytes)
                return {"per_cpu_s": count / got["cpu_s"], "per_s": count / got["seconds"]}

            samples = stage.take_turns(brokers, work)
            for broker in brokers:
                broker.delete_topic(topic)
            note = "Spark's CPU: driver, JVM, Python workers; not the broker's"
            target = ratio_at_least(bound)
            figures.append(beside_kafka(samples, "per_cpu_s", f"batch read, {size}", "rec/CPU-s", target, note))
            figures.append(beside_kafka(samples, "per_s", f"batch read, {size}", "rec/s", None))
    return figures
