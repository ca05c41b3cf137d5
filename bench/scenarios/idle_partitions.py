"""A node at rest with 4,000 partitions, each with a record: the share of a core it burns, and its memory."""

from __future__ import annotations

import time

from bench.brokers import Broker
from bench.client_process import run_measured
from bench.figures import Figure, ratio_at_most
from bench.scenarios.idle import at_rest
from bench.stage import Stage, beside_kafka

NAME = "idle-partitions"
SUMMARY = "CPU and memory of a node at rest with 4,000 partitions"
PARTITIONS = 4_000


def run(stage: Stage) -> list[Figure]:
    partitions, span_s = stage.scaled(PARTITIONS, 200), stage.scaled(20, 3)
    with stage.fresh_pair() as brokers:
        for broker in brokers:
            broker.create_topic(NAME, partitions)
            run_measured(broker, [("every_partition", {"topic": NAME, "partitions": partitions})])
        time.sleep(span_s)  # What thousands of new logs leave behind has to settle before rest can be measured.

        def work(broker: Broker) -> dict[str, float]:
            return at_rest(broker, span_s)

        samples = stage.take_turns(brokers, work, rounds=min(stage.rounds, 3), warm_rounds=0)
    words = f"with {partitions:,} partitions"
    return [
        beside_kafka(samples, "percent", f"CPU of an idle node {words}", "% of a core", ratio_at_most(0.5)),
        beside_kafka(samples, "rss_mb", f"memory of an idle node {words} (RSS)", "MB", ratio_at_most(0.3)),
    ]
