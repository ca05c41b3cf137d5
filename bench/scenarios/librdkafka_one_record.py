"""One record per request through librdkafka, as an application writes: produce, then wait for the ack.

One producer alone, without lingering; and 32 of them, each with a partition of its own, where every record is flushed
before its ack. `one-record` has 32 of them without a flush.
"""

from __future__ import annotations

from bench.brokers import KAFKA, Broker
from bench.figures import Figure, ratio_at_most
from bench.scenarios.one_record import CONNECTIONS, LIBRDKAFKA, one_record
from bench.stage import Stage, beside_kafka

NAME = "librdkafka-one-record"
SUMMARY = "one record after the other through librdkafka: p50 of one writer; p99 of 32 with a flush before every ack"


def run(stage: Stage) -> list[Figure]:
    return [*_one_writer(stage), *_flushed(stage)]


def _one_writer(stage: Stage) -> list[Figure]:
    brokers = stage.shared_pair()
    for broker in brokers:
        broker.create_topic(NAME, 1)
    count = stage.scaled(10_000, 500)

    def work(broker: Broker) -> dict[str, float]:
        one = {"partitions": 1, "connections": 1}
        return one_record(broker, LIBRDKAFKA, topic=NAME, count=count, idempotent=False, **one)

    samples = stage.take_turns(brokers, work)
    for broker in brokers:
        broker.delete_topic(NAME)
    note = "librdkafka, linger 0, one writer"
    return [
        beside_kafka(samples, "p50_ms", "p50, one record at a time", "ms", ratio_at_most(1.0), note),
        beside_kafka(samples, "p99_ms", "p99, one record at a time", "ms", None, note),
        beside_kafka(samples, "us", "CPU per request, one record at a time", "us", None, note),
    ]


def _flushed(stage: Stage) -> list[Figure]:
    count = stage.scaled(16_000, 640)
    with stage.fresh_pair(settings={"flush.mode": "ack"}) as brokers:
        for broker in brokers:
            is_kafka = broker.name == KAFKA or stage.kafka_twice
            broker.create_topic(NAME, CONNECTIONS, {"flush.messages": "1"} if is_kafka else {})

        def work(broker: Broker) -> dict[str, float]:
            return one_record(broker, LIBRDKAFKA, topic=NAME, count=count, idempotent=False)

        samples = stage.take_turns(brokers, work)
    note = f"librdkafka, linger 0, {CONNECTIONS} writers, each with its own partition"
    return [
        beside_kafka(samples, "p99_ms", "p99, flushed before ack", "ms", ratio_at_most(1.0), note),
        beside_kafka(samples, "p50_ms", "p50, flushed before ack", "ms", None, note),
        beside_kafka(samples, "per_s", "requests, flushed before ack", "1/s", None, note),
    ]
