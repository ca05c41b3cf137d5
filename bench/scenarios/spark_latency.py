"""A stream of micro-batches from one topic into another at 1,000 records a second: from append to visible.

Ours is exactly once, Spark's own sink at least once. A record counts from the moment it was due until a consumer that
reads only what is committed has it.
"""

from __future__ import annotations

from bench.brokers import Broker
from bench.figures import Figure, ratio_at_most
from bench.scenarios.end_to_end import PARTITIONS, under_way
from bench.spark_contest import format_of, spark_session
from bench.stage import Stage, beside_kafka

NAME = "spark-latency"
SUMMARY = "Spark micro-batches from log to log at 1,000 records/s: p50 and p99 from append to visible"
RATE_PER_S = 1_000


def run(stage: Stage) -> list[Figure]:
    brokers = stage.shared_pair()
    seconds, skip_s = stage.scaled(30, 6), stage.scaled(10, 2)
    turns = 0
    with spark_session(stage) as spark:

        def work(broker: Broker) -> dict[str, float]:
            nonlocal turns
            turns += 1
            into, out_of = f"{NAME}-in-{turns}", f"{NAME}-out-{turns}"
            for topic in (into, out_of):
                broker.create_topic(topic, PARTITIONS)
            place = {"format": format_of(broker), "bootstrap": broker.bootstrap}
            spark.do("copy_start", **place, topic=into, out=out_of, checkpoint=spark.new_directory("copy"))
            measured = under_way(broker, into, out_of, seconds=seconds, skip_s=skip_s, rate_per_s=RATE_PER_S)
            batches = spark.do("copy_stop")["batches"]
            for topic in (into, out_of):
                broker.delete_topic(topic)
            return {**measured, "batches": batches}

        samples = stage.take_turns(brokers, work, rounds=min(stage.rounds, 3), warm_rounds=1)
    note = f"exactly once beside at least once; {RATE_PER_S:,} records/s of 100 B; the first {skip_s} s do not count"
    return [
        beside_kafka(samples, "p50_ms", "append to visible through Spark, p50", "ms", ratio_at_most(1.0), note),
        beside_kafka(samples, "p99_ms", "append to visible through Spark, p99", "ms", ratio_at_most(1.0), note),
        beside_kafka(samples, "batches", f"batches in {seconds} s", "batches", None),
    ]
