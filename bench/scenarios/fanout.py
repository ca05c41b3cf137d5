"""1, 10 and 100 consumers on one topic: broker CPU per MB fetched must not grow with their number."""

from __future__ import annotations

from bench.brokers import KAFKA, STRANDLINE, Broker
from bench.figures import Figure, ratio_at_most
from bench.measure import median
from bench.scenarios.fetch_1k import fetched
from bench.scenarios.produce_1k import produced
from bench.stage import Stage, beside_kafka

NAME = "fanout"
SUMMARY = "broker CPU per MB fetched with 1, 10 and 100 consumers on one topic"
PARTITIONS = 2
FLAT = 1.25
"""What "stays flat" means here: a quarter more per MB, which is above this figure's noise."""


def run(stage: Stage) -> list[Figure]:
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
