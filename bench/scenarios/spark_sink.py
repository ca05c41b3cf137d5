"""A stream into a topic: ours exactly once beside Spark's own at least once, and what a commit adds to a batch."""

from __future__ import annotations

from pathlib import Path

from bench.brokers import Broker
from bench.figures import Figure, Samples, at_most, ratio_at_least
from bench.measure import median
from bench.spark_contest import PARTITIONS, SparkProcess, expect, format_of, spark_session
from bench.stage import Stage, beside_kafka

NAME = "spark-sink"
SUMMARY = "writeStream, exactly once, beside Spark's own sink, at least once; the commit of a batch with 8 tasks"
BATCHES = 6
SIZES = {"100 B": (100, 2_400_000, 12_000), "1 KiB": (1024, 480_000, 6_000)}
"""Bytes of a value, records of all batches, and those with --quick."""
KEPT_MIN = 0.8
COMMIT_TASKS = 8
COMMIT_RECORDS = 8_000
COMMIT_MS_MAX = 150.0


def run(stage: Stage) -> list[Figure]:
    brokers = stage.shared_pair()
    figures = []
    with spark_session(stage) as spark:
        for size, (value_bytes, full, quick) in SIZES.items():
            count = stage.scaled(full, quick)
            samples = _turns(stage, brokers, spark, count=count, value_bytes=value_bytes, tasks=2)
            note = "exactly once beside at least once; all batches but the first"
            target = ratio_at_least(KEPT_MIN)
            figures.append(beside_kafka(samples, "per_s", f"written by a stream, {size}", "rec/s", target, note))
            figures.append(beside_kafka(samples, "per_cpu_s", f"written by a stream, {size}", "rec/CPU-s", None))
        samples = _turns(stage, brokers, spark, count=COMMIT_RECORDS, value_bytes=100, tasks=COMMIT_TASKS)
        note = f"from the end of the last of {COMMIT_TASKS} tasks to the end of the batch's commit"
        figures.append(beside_kafka(samples, "commit_ms", "commit of a batch", "ms", at_most(COMMIT_MS_MAX), note))
    return figures


def _turns(
    stage: Stage, brokers: list[Broker], spark: SparkProcess, *, count: int, value_bytes: int, tasks: int
) -> Samples:
    rows = str(Path(spark.new_directory("rows")) / "parquet")
    written = spark.do("make_rows", path=rows, count=count, value_bytes=value_bytes, files=BATCHES)
    rounds = 0

    def work(broker: Broker) -> dict[str, float]:
        nonlocal rounds
        rounds += 1
        topic = f"{NAME}-{value_bytes}-{tasks}-{rounds}"
        broker.create_topic(topic, PARTITIONS)
        place = {"bootstrap": broker.bootstrap, "topic": topic}
        got = spark.do(
            "write",
            format=format_of(broker),
            path=rows,
            tasks=tasks,
            checkpoint=spark.new_directory("sink"),
            **place,
        )
        found = spark.do("check", format=format_of(broker), **place)
        expect(found, records=written["records"], bytes=written["bytes"], crc=written["crc"])
        broker.delete_topic(topic)
        return {
            "per_s": got["records"] / got["batch_s"],
            "per_cpu_s": count / got["cpu_s"],
            "commit_ms": median(got["commit_ms"]),
        }

    return stage.take_turns(brokers, work)
