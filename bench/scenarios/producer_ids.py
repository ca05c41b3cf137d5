"""10,000 producers that have each written a record to one partition: memory, and what it costs others to append."""

from __future__ import annotations

import time

from bench.brokers import STRANDLINE, Broker
from bench.figures import Figure, Samples, at_most, ratio_at_most
from bench.measure import proportional_mb
from bench.scenarios.one_record import one_record
from bench.stage import Stage, beside_kafka
from bench.wire import Connection, OneRecordProduce, ServerRefused

NAME = "producer-ids"
SUMMARY = "10,000 producer ids on a partition: memory, CPU per append"
PRODUCERS = 10_000
MB_MAX = 20.0
SLOWER_MAX = 1.05
"""Nothing may be slower; this much is the noise between two topics of one broker."""
SETTLE_S = 2.0
CONNECTIONS = 8
CROWDED, QUIET = f"{NAME}-crowded", f"{NAME}-quiet"


def run(stage: Stage) -> list[Figure]:
    producers, requests = stage.scaled(PRODUCERS, 500), stage.scaled(16_000, 800)
    memory = Samples()
    with stage.fresh_pair(warm=True) as brokers:
        for broker in brokers:
            measured = {"mb": grown_mb(broker, producers)}
            stage.say(f"  {broker.name:10} {measured}")
            memory.add(broker.name, measured)

        def work(broker: Broker) -> dict[str, float]:
            return {
                f"us, {topic}": one_record(
                    broker,
                    "one_record_raw",
                    topic=topic,
                    count=requests,
                    idempotent=True,
                    partitions=1,
                    connections=CONNECTIONS,
                )["us"]
                for topic in (QUIET, CROWDED)
            }

        samples = stage.take_turns(brokers, work)
    slower = Figure(
        f"CPU per append beside {producers:,} producer ids",
        "us",
        samples.of(STRANDLINE, f"us, {CROWDED}"),
        samples.of(STRANDLINE, f"us, {QUIET}"),
        beside_name="without",
        target=ratio_at_most(SLOWER_MAX),
        note="bare sockets",
    )
    words = "a heap that is fixed beforehand hides Kafka's"
    return [
        beside_kafka(memory, "mb", f"memory (PSS) of {producers:,} producer ids", "MB", at_most(MB_MAX), words),
        slower,
        beside_kafka(samples, f"us, {CROWDED}", f"CPU per append beside {producers:,} producer ids", "us", None),
    ]


def grown_mb(broker: Broker, producers: int) -> float:
    for topic in (QUIET, CROWDED):
        broker.create_topic(topic, 1)
    with Connection("127.0.0.1", broker.port) as connection:
        # As many requests as below, from one producer: what any load leaves behind is not that of the ids.
        one = OneRecordProduce(QUIET, 0, b"x" * 100, connection.init_producer_id())
        for _ in range(producers):
            connection.init_producer_id()
            append(connection, one)
        time.sleep(SETTLE_S)
        before_mb = proportional_mb(broker.pid)
        for _ in range(producers):
            append(connection, OneRecordProduce(CROWDED, 0, b"x" * 100, connection.init_producer_id()))
        time.sleep(SETTLE_S)
        return proportional_mb(broker.pid) - before_mb


def append(connection: Connection, produce: OneRecordProduce) -> None:
    error = produce.error_of(connection.exchange(produce.request))
    if error:
        raise ServerRefused(f"Produce: error code {error}")
    produce.advance()
