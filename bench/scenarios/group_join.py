"""100 members join a group over 300 partitions, by either protocol; then one of them leaves.

The first rebalance waits for nobody (`group.initial.rebalance.delay.ms=0`), and members say that they live every half
second, on both servers: a member hears of a change with its next heartbeat, and five seconds would hide all else.
"""

from __future__ import annotations

from functools import partial

from bench.brokers import Broker
from bench.client_process import run_measured
from bench.figures import Figure, at_most
from bench.stage import Stage, beside_kafka

NAME = "group-join"
SUMMARY = "100 members over 300 partitions: stable after the last join, and when one leaves"
MEMBERS = 100
PARTITIONS = 300
HEARTBEAT_S = 0.5
STAGGER_S = 0.005
STABLE_S_MAX = 3.0
BOTH = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}
PROTOCOLS = ("classic", "consumer")


def run(stage: Stage) -> list[Figure]:
    members, partitions = stage.scaled(MEMBERS, 10), stage.scaled(PARTITIONS, 30)
    figures: list[Figure] = []
    with stage.fresh_pair(both=BOTH) as brokers:
        for broker in brokers:
            broker.create_topic(NAME, partitions)
        rounds: dict[str, int] = {}

        def work(broker: Broker, protocol: str) -> dict[str, float]:
            rounds[broker.name] = rounds.get(broker.name, 0) + 1
            task = {
                "topic": NAME,
                "group": f"{NAME}-{protocol}-{rounds[broker.name]}",
                "protocol": protocol,
                "members": members,
                "partitions": partitions,
                "heartbeat_s": HEARTBEAT_S,
                "stagger_s": STAGGER_S,
            }
            cpu_s, _, (result,) = run_measured(broker, [("members", task)])
            return {"cpu_s": cpu_s, **result}

        for protocol in PROTOCOLS:
            samples = stage.take_turns(brokers, partial(work, protocol=protocol))
            words = f"{members} members, {partitions} partitions, heartbeats every {HEARTBEAT_S:g} s"
            figures += [
                beside_kafka(
                    samples, "stable_s", f"{protocol}: stable after the last join", "s", at_most(STABLE_S_MAX), words
                ),
                beside_kafka(samples, "again_s", f"{protocol}: stable after one left", "s", None, words),
                beside_kafka(
                    samples,
                    "taken",
                    f"{protocol}: partitions taken from those who stay",
                    "",
                    at_most(0.0) if protocol == "consumer" else None,
                    "eager, so all" if protocol == "classic" else words,
                ),
                beside_kafka(samples, "cpu_s", f"{protocol}: broker CPU of all that", "s", None, words),
            ]
    return figures
