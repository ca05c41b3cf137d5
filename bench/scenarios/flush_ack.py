"""Nothing is acknowledged before the disk has it: `flush.mode=ack` beside Kafka with `flush.messages=1`.

Throughput with one librdkafka client and 1 KiB records; p99 with 32 connections of one record each, where group commit
shows, by bare sockets as in `one-record`.
"""

from __future__ import annotations

from bench.brokers import KAFKA, Broker
from bench.figures import Figure, ratio_at_least, ratio_at_most
from bench.scenarios.one_record import CONNECTIONS, one_record
from bench.scenarios.produce_1k import PARTITIONS, produced
from bench.stage import Stage, beside_kafka

NAME = "flush-ack"
SUMMARY = "flush before every ack: MB/s and p99"


def run(stage: Stage) -> list[Figure]:
    records, requests = stage.scaled(250_000, 10_000), stage.scaled(32_000, 640)
    large, single = f"{NAME}-large", f"{NAME}-single"
    with stage.fresh_pair(settings={"flush.mode": "ack"}) as brokers:
        for broker in brokers:
            settings = {"flush.messages": "1"} if broker.name == KAFKA or stage.kafka_twice else {}
            broker.create_topic(large, PARTITIONS, settings)
            broker.create_topic(single, CONNECTIONS, settings)

        def work(broker: Broker) -> dict[str, float]:
            through = produced(broker, topic=large, count=records, value_bytes=1024)
            latency = one_record(broker, "one_record_raw", topic=single, count=requests, idempotent=False)
            return {"mb_per_s": through["mb_per_s"], **latency}

        samples = stage.take_turns(brokers, work)
    return [
        beside_kafka(samples, "mb_per_s", "produced, flushed before ack", "MB/s", ratio_at_least(1.0), "librdkafka"),
        beside_kafka(samples, "p99_ms", "p99, flushed before ack", "ms", ratio_at_most(1.0), "bare sockets"),
        beside_kafka(samples, "p50_ms", "p50, flushed before ack", "ms", None, "bare sockets"),
        beside_kafka(samples, "per_s", "one-record requests, flushed before ack", "1/s", None, "bare sockets"),
    ]
