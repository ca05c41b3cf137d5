"""1, 10 and 100 consumers on one topic: broker CPU per MB fetched must not grow with their number.

Then 1 group and 100 groups that follow a topic while it is written: broker CPU per MB delivered, and what its producer
feels of them.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

from bench.brokers import KAFKA, STRANDLINE, Broker
from bench.client_process import ClientProcess
from bench.figures import Figure, ratio_at_most
from bench.measure import MB, median
from bench.scenarios.fetch_1k import fetched
from bench.scenarios.produce_1k import produced
from bench.stage import Stage, beside_kafka

NAME = "fanout"
SUMMARY = "1, 10 and 100 consumers on one topic: broker CPU per MB; 1 and 100 groups that follow it: CPU, producer p99"
PARTITIONS = 2
FLAT = 1.25
"""What "stays flat" means here: a quarter more per MB, which is above this figure's noise."""

GROUPS = (1, 100)
PROCESSES = 4
RATE_PER_S = 200
VALUE_BYTES = 1024


def run(stage: Stage) -> list[Figure]:
    return [*_reading(stage), *_following(stage)]


def _reading(stage: Stage) -> list[Figure]:
    brokers = stage.shared_pair()
    # All of them read the same records, so that a hundred consumers fetch a hundred times this.
    count = stage.scaled(20_000, 2_000)
    for broker in brokers:
        broker.create_topic(NAME, PARTITIONS)
        produced(broker, topic=NAME, count=count, value_bytes=1024)
    figures: list[Figure] = []
    alone: dict[str, list[float]] = {}
    for consumers in (1, 10, 100):

        def work(broker: Broker, consumers: int = consumers) -> dict[str, float]:
            # One consumer reads the topic too briefly to be measured, so it takes as many turns as ten would.
            turns = max(1, 10 // consumers)
            processes = min(consumers, 4)
            cost = [
                fetched(broker, topic=NAME, count=count, consumers=consumers, processes=processes)["ms_per_mb"]
                for _ in range(turns)
            ]
            return {"ms_per_mb": sum(cost) / turns}

        samples = stage.take_turns(brokers, work, warm_rounds=1)
        figures.append(
            beside_kafka(
                samples, "ms_per_mb", f"CPU per MB fetched, {consumers} consumers", "ms/MB", None, "librdkafka"
            )
        )
        if consumers == 1:
            alone = {name: samples.of(name, "ms_per_mb") for name in (STRANDLINE, KAFKA)}
        else:
            grown = samples.of(STRANDLINE, "ms_per_mb")
            name = f"{consumers} consumers against 1, per MB"
            note = ""
            if alone[KAFKA]:
                note = f"kafka: {median(samples.of(KAFKA, 'ms_per_mb')) / median(alone[KAFKA]):.2f}x"
            figures.append(Figure(name, "ms/MB", grown, alone[STRANDLINE], "1 consumer", ratio_at_most(FLAT), note))
    for broker in brokers:
        broker.delete_topic(NAME)
    return figures


def _following(stage: Stage) -> list[Figure]:
    brokers = stage.shared_pair()
    topic, span_s = f"{NAME}-live", stage.scaled(10, 2)
    for broker in brokers:
        broker.create_topic(topic, PARTITIONS)
    figures: list[Figure] = []
    for groups in GROUPS:

        def work(broker: Broker, groups: int = groups) -> dict[str, float]:
            return followed(broker, topic, groups, span_s)

        samples = stage.take_turns(brokers, work, rounds=min(stage.rounds, 3), warm_rounds=1)
        words = "1 group" if groups == 1 else f"{groups} groups"
        note = f"librdkafka, a group each; bare sockets produce {RATE_PER_S} records of 1 KiB a second"
        cpu, p99 = f"CPU per MB delivered to {words}", f"producer p99 beside {words}"
        figures.append(beside_kafka(samples, "ms_per_mb", cpu, "ms/MB", ratio_at_most(1.0), note))
        figures.append(beside_kafka(samples, "p99_ms", p99, "ms", ratio_at_most(1.0), note))
    for broker in brokers:
        broker.delete_topic(topic)
    return figures


def followed(broker: Broker, topic: str, groups: int, span_s: float) -> dict[str, float]:
    """Produce at a steady rate while so many groups follow the topic; the producer's CPU at the broker is in it."""
    processes = min(groups, PROCESSES)
    place = {"bootstrap": broker.bootstrap, "topic": topic}
    pace = {"partitions": PARTITIONS, "connections": 4, "rate_per_s": RATE_PER_S, "value_bytes": VALUE_BYTES}
    with ExitStack() as stack:
        readers = [
            stack.enter_context(
                ClientProcess("followers", **place, groups=groups // processes, group=f"{topic}-{groups}-{number}")
            )
            for number in range(processes)
        ]
        producer = stack.enter_context(ClientProcess("paced", **place, **pace))
        for client in (*readers, producer):
            client.wait_ready()
        cpu_s = broker.cpu_seconds()
        for client in (*readers, producer):
            client.tell()
        time.sleep(span_s)
        for client in (producer, *readers):
            client.tell()
        felt = producer.result()
        delivered_mb = sum(reader.result()["bytes"] for reader in readers) / MB
        cpu_s = broker.cpu_seconds() - cpu_s
    return {"ms_per_mb": cpu_s * 1e3 / delivered_mb, "p99_ms": felt["p99_ms"]}
