"""A node at rest with one topic: the share of a core it burns, and its memory."""

from __future__ import annotations

import time

from bench.brokers import Broker
from bench.figures import Figure, at_most
from bench.scenarios.produce_1k import produced
from bench.stage import Stage, beside_kafka

NAME = "idle"
SUMMARY = "CPU and memory of a node at rest"


def run(stage: Stage) -> list[Figure]:
    span_s = stage.scaled(20, 3)
    with stage.fresh_pair() as brokers:
        for broker in brokers:
            broker.create_topic(NAME, 4)
            produced(broker, topic=NAME, count=1_000, value_bytes=100)
        time.sleep(span_s / 2)  # What a start and a topic leave behind has to settle before rest can be measured.

        def work(broker: Broker) -> dict[str, float]:
            return at_rest(broker, span_s)

        samples = stage.take_turns(brokers, work, rounds=min(stage.rounds, 2), warm_rounds=0)
    return [
        beside_kafka(samples, "percent", "CPU of an idle node", "% of a core", at_most(2.0)),
        beside_kafka(samples, "rss_mb", "memory of an idle node (RSS)", "MB", at_most(100.0)),
    ]


def at_rest(broker: Broker, span_s: float) -> dict[str, float]:
    """Leave the broker alone for a while; return what it used meanwhile."""
    cpu, start = broker.cpu_seconds(), time.perf_counter()
    time.sleep(span_s)
    used = broker.cpu_seconds() - cpu
    return {"percent": used / (time.perf_counter() - start) * 100, "rss_mb": broker.resident_mb()}
