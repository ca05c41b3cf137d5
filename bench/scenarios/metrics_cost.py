"""What counting costs: the same work on a node that counts and times its requests and on one that does not, in turn.

Per piece of work the CPU of the first by that of the second. Nobody scrapes meanwhile.
"""

from __future__ import annotations

from bench.brokers import STRANDLINE, Broker
from bench.figures import Figure, Samples, ratio_at_most
from bench.scenarios.fetch_1k import fetched
from bench.scenarios.one_record import CONNECTIONS, one_record
from bench.scenarios.produce_1k import PARTITIONS, produced
from bench.stage import ASYNC_FLUSH, Stage
from bench.warm_up import warm_up

NAME = "metrics-cost"
SUMMARY = "CPU with metrics on, by CPU with metrics off"
ROUNDS_FACTOR = 4
"""Two percent are less than what one round differs from the next: it takes more of them."""


def run(stage: Stage) -> list[Figure]:
    stage.put_shared_pair_away()
    brokers = {
        words: stage.start(
            STRANDLINE, settings={**ASYNC_FLUSH, "http.listener": "off", "metrics.enable": str(words == "on").lower()}
        )
        for words in ("on", "off")
    }
    try:
        warm_up(list(brokers.values()), rounds=stage.warm_rounds, quick=stage.quick, say=stage.say)
        return _figures(_measure(stage, brokers))
    finally:
        for broker in brokers.values():
            stage.discard(broker)


def _measure(stage: Stage, brokers: dict[str, Broker]) -> Samples:
    records, requests = stage.scaled(100_000, 5_000), stage.scaled(32_000, 1_600)
    single, large = f"{NAME}-single", f"{NAME}-large"
    for broker in brokers.values():
        broker.create_topic(single, CONNECTIONS)
        broker.create_topic(large, PARTITIONS)
    samples = Samples()
    for number in range(stage.warm_rounds + stage.rounds * ROUNDS_FACTOR):
        # Whoever comes second finds the machine as the first has left it: each comes first as often as the other.
        for words in ("on", "off") if number % 2 else ("off", "on"):
            broker = brokers[words]
            measured = {
                "one record": one_record(broker, "one_record_raw", topic=single, count=requests, idempotent=False)[
                    "us"
                ],
                "produce": produced(broker, topic=large, count=records, value_bytes=1024)["ms_per_mb"],
                "fetch": fetched(broker, topic=large, count=records)["ms_per_mb"],
            }
            stage.say(
                f"  round {number + 1} metrics {words:4}" + "  ".join(f"{k} {v:.4g}" for k, v in measured.items())
            )
            if number >= stage.warm_rounds:
                samples.add(words, measured)
    return samples


def _figures(samples: Samples) -> list[Figure]:
    units = {"one record": "us", "produce": "ms/MB", "fetch": "ms/MB"}
    return [
        Figure(
            f"CPU with metrics, {work}",
            unit,
            samples.of("on", work),
            samples.of("off", work),
            beside_name="metrics off",
            target=ratio_at_most(1.02),
            note="bare sockets, 32 connections" if work == "one record" else "librdkafka, 1 KiB",
        )
        for work, unit in units.items()
    ]
