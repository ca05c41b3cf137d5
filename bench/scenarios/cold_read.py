"""A bystander's produce p99 while a consumer reads 2 GB that the page cache no longer holds.

In every round the consumer reads the topic twice: warm, with all of it in the page cache, and cold, after fsync and
POSIX_FADV_DONTNEED. The bystander sends one-record requests at a steady rate the whole time.
"""

from __future__ import annotations

from pathlib import Path

from bench.brokers import KAFKA, STRANDLINE, Broker
from bench.client_process import ClientProcess
from bench.figures import Figure, ratio_at_most
from bench.measure import MB, evict_from_page_cache, resident_fraction
from bench.scenarios.produce_1k import PARTITIONS, produced
from bench.stage import Stage, beside_kafka

NAME = "cold-read"
SUMMARY = "produce p99 while another consumer reads 2 GB of evicted data"
VALUE_BYTES = 1024
BYSTANDER = "bystander"
RATE_PER_S = 1_000
RESIDENT_MAX = 0.05
"""More of the topic than this still in the page cache, and the read was not a cold one."""


def run(stage: Stage) -> list[Figure]:
    count = stage.scaled(2_000_000, 50_000)
    rounds = min(stage.rounds, 3)
    with stage.fresh_pair(warm=True) as brokers:
        for broker in brokers:
            broker.create_topic(NAME, PARTITIONS)
            broker.create_topic(BYSTANDER, 1)
            produced(broker, topic=NAME, count=count, value_bytes=VALUE_BYTES)

        def work(broker: Broker) -> dict[str, float]:
            warm = disturbed(broker, count)
            for directory in topic_directories(broker):
                evict_from_page_cache(directory)
            left = max(resident_fraction(directory) for directory in topic_directories(broker))
            if left > RESIDENT_MAX:
                stage.remarks.append(f"{NAME}: {left:.0%} of a partition of {broker.name} stayed in the page cache")
            cold = disturbed(broker, count)
            return {
                f"{kind}_{key}": number for kind, run in (("warm", warm), ("cold", cold)) for key, number in run.items()
            }

        samples = stage.take_turns(brokers, work, rounds=rounds, warm_rounds=1)
    warm_p99, cold_p99 = samples.of(STRANDLINE, "warm_p99_ms"), samples.of(STRANDLINE, "cold_p99_ms")
    own = "produce p99 during a cold read, against a warm one"
    theirs = Figure(own, "ms", samples.of(KAFKA, "cold_p99_ms"), samples.of(KAFKA, "warm_p99_ms"))
    note = f"kafka: {theirs.ratio:.2f}x" if theirs.samples else ""
    return [
        Figure(own, "ms", cold_p99, warm_p99, "warm read", ratio_at_most(3.0), note),
        beside_kafka(samples, "cold_p99_ms", "produce p99 during a cold read", "ms", None, "bare socket, 1,000/s"),
        beside_kafka(samples, "cold_p50_ms", "produce p50 during a cold read", "ms", None),
        beside_kafka(samples, "cold_max_ms", "slowest produce during a cold read", "ms", None),
        beside_kafka(samples, "warm_p99_ms", "produce p99 during a warm read", "ms", None),
        beside_kafka(samples, "cold_mb_per_s", "cold read", "MB/s", None, "librdkafka"),
    ]


def topic_directories(broker: Broker) -> list[Path]:
    return sorted(broker.data.glob(f"{NAME}-*"))


def disturbed(broker: Broker, count: int) -> dict[str, float]:
    """Read the whole topic with one consumer; return what the bystander felt during that time."""
    bystander = ClientProcess(
        "paced", bootstrap=broker.bootstrap, topic=BYSTANDER, partitions=1, connections=4, rate_per_s=RATE_PER_S
    )
    reader = ClientProcess("consume", bootstrap=broker.bootstrap, topic=NAME, count=count)
    with bystander, reader:
        bystander.wait_ready()
        reader.wait_ready()
        bystander.tell()
        reader.tell()
        read = reader.result()
        bystander.tell()
        felt = bystander.result()
    return {
        "p50_ms": felt["p50_ms"],
        "p99_ms": felt["p99_ms"],
        "max_ms": felt["max_ms"],
        "mb_per_s": read["bytes"] / MB / read["seconds"],
    }
