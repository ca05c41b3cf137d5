"""What local topics cost since there are others: CPU of the broker beside two earlier commits, in turn in one run.

One of them is from before tiered topics, the other from before object topics. No node here has a store.
"""

from __future__ import annotations

from typing import Final

from bench.brokers import STRANDLINE, Broker
from bench.earlier import source_of
from bench.figures import Figure, Samples, ratio_at_most
from bench.scenarios.fetch_1k import fetched
from bench.scenarios.one_record import BARE, CONNECTIONS, one_record
from bench.scenarios.produce_1k import PARTITIONS, produced
from bench.stage import ASYNC_FLUSH, Stage

NAME = "local-topics"
SUMMARY = "CPU of local topics per MB and per small request, beside commits from before tiered and before object topics"
EARLIER: Final = {"before tiers": "b3484f0e", "before objects": "08bd6698"}
ROUNDS_FACTOR: Final = 3
"""Two percent are less than what one round differs from the next: it takes more of them."""
UNITS: Final = {"one record": "us", "produce": "ms/MB", "fetch": "ms/MB"}


def run(stage: Stage) -> list[Figure]:
    stage.put_shared_pair_away()
    sources = {name: source_of(commit) for name, commit in EARLIER.items()}
    brokers = {STRANDLINE: stage.start(STRANDLINE, settings={**ASYNC_FLUSH, "http.listener": "off"})}
    try:
        for name, source in sources.items():
            brokers[name] = stage.start_at(name, source, settings={**ASYNC_FLUSH, "http.listener": "off"})
        samples = _measure(stage, brokers)
    finally:
        for broker in brokers.values():
            stage.discard(broker)
    return [
        Figure(
            f"CPU of a local topic, {work}",
            unit,
            samples.of(STRANDLINE, work),
            samples.of(name, work),
            name,
            ratio_at_most(1.02),
            f"{EARLIER[name]}; {'bare sockets, 32 connections' if work == 'one record' else 'librdkafka, 1 KiB'}",
        )
        for work, unit in UNITS.items()
        for name in EARLIER
    ]


def _measure(stage: Stage, brokers: dict[str, Broker]) -> Samples:
    records, requests = stage.scaled(40_000, 5_000), stage.scaled(16_000, 1_600)
    single, large = f"{NAME}-single", f"{NAME}-large"
    for broker in brokers.values():
        broker.create_topic(single, CONNECTIONS)
        broker.create_topic(large, PARTITIONS)
    samples, names = Samples(), list(brokers)
    for number in range(2 + stage.rounds * ROUNDS_FACTOR):
        # Each comes first, second and last as often as the others.
        turn = number % len(names)
        for name in (*names[turn:], *names[:turn]):
            broker = brokers[name]
            measured = {
                "one record": one_record(broker, BARE, topic=single, count=requests, idempotent=False)["us"],
                "produce": produced(broker, topic=large, count=records, value_bytes=1024)["ms_per_mb"],
                "fetch": fetched(broker, topic=large, count=records)["ms_per_mb"],
            }
            stage.say(f"  round {number + 1} {name:15}" + "  ".join(f"{k} {v:.4g}" for k, v in measured.items()))
            if number > 1:
                samples.add(name, measured)
    return samples
