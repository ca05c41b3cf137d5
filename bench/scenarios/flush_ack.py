"""Nothing is acknowledged before the disk has it: `flush.mode=ack` beside Kafka with `flush.messages=1`.

Throughput with one librdkafka client and 1 KiB records; p99 with 32 connections of one record each, by bare sockets as
in `one-record`: all on one partition, where group commit shows, and each on a partition of its own, where every
request needs a sync of its own file.
"""

from __future__ import annotations

from bench.brokers import KAFKA, Broker
from bench.figures import Figure, Samples, ratio_at_least, ratio_at_most
from bench.scenarios.one_record import CONNECTIONS, one_record
from bench.scenarios.produce_1k import PARTITIONS, produced
from bench.stage import Stage, beside_kafka

NAME = "flush-ack"
SUMMARY = "flush before every ack: MB/s and p99"


def run(stage: Stage) -> list[Figure]:
    records, requests = stage.scaled(250_000, 10_000), stage.scaled(32_000, 640)
    large, single, shared = f"{NAME}-large", f"{NAME}-single", f"{NAME}-shared"
    with stage.fresh_pair(settings={"flush.mode": "ack"}) as brokers:
        for broker in brokers:
            settings = {"flush.messages": "1"} if broker.name == KAFKA or stage.kafka_twice else {}
            broker.create_topic(large, PARTITIONS, settings)
            broker.create_topic(single, CONNECTIONS, settings)
            broker.create_topic(shared, 1, settings)

        def work(broker: Broker) -> dict[str, float]:
            through = produced(broker, topic=large, count=records, value_bytes=1024)
            apart = one_record(broker, "one_record_raw", topic=single, count=requests, idempotent=False)
            together = one_record(
                broker, "one_record_raw", topic=shared, count=requests, idempotent=False, partitions=1
            )
            return {
                "mb_per_s": through["mb_per_s"],
                **{f"{name}, 32 partitions": number for name, number in apart.items()},
                **{f"{name}, 1 partition": number for name, number in together.items()},
            }

        samples = stage.take_turns(brokers, work)
    return [
        beside_kafka(samples, "mb_per_s", "produced, flushed before ack", "MB/s", ratio_at_least(1.0), "librdkafka"),
        *(figure for where in ("1 partition", "32 partitions") for figure in _latency(samples, where)),
    ]


def _latency(samples: Samples, where: str) -> list[Figure]:
    note = f"bare sockets, {where}"
    return [
        beside_kafka(samples, f"p99_ms, {where}", "p99, flushed before ack", "ms", ratio_at_most(1.0), note),
        beside_kafka(samples, f"p50_ms, {where}", "p50, flushed before ack", "ms", None, note),
        beside_kafka(samples, f"per_s, {where}", "one-record requests, flushed before ack", "1/s", None, note),
    ]
