"""One partition per OffsetCommit, 50 groups with a member each: CPU per commit, how many in a second, p50 and p99."""

from __future__ import annotations

from bench.brokers import Broker
from bench.client_process import run_measured
from bench.figures import Figure, ratio_at_least, ratio_at_most
from bench.stage import Stage, beside_kafka

NAME = "commits"
SUMMARY = "OffsetCommit of one partition by 50 groups: CPU per commit, commits/s"
GROUPS = 50
PARTITIONS = 10


def run(stage: Stage) -> list[Figure]:
    brokers = stage.shared_pair()
    for broker in brokers:
        broker.create_topic(NAME, PARTITIONS)
    rounds: dict[str, int] = {}
    count = stage.scaled(60_000, 3_000)

    def work(broker: Broker) -> dict[str, float]:
        # Members of the round before have not left; another name spares everybody their rebalance.
        rounds[broker.name] = rounds.get(broker.name, 0) + 1
        task = {
            "topic": NAME,
            "partitions": PARTITIONS,
            "groups": GROUPS,
            "count": count,
            "prefix": f"{NAME}-{rounds[broker.name]}",
        }
        cpu_s, _, (result,) = run_measured(broker, [("commits", task)])
        return {
            "us": cpu_s * 1e6 / result["requests"],
            "per_s": result["requests"] / result["seconds"],
            "p50_ms": result["p50_ms"],
            "p99_ms": result["p99_ms"],
        }

    samples = stage.take_turns(brokers, work)
    for broker in brokers:
        broker.delete_topic(NAME)
    words = f"bare sockets, {GROUPS} groups"
    return [
        beside_kafka(samples, "us", "CPU per commit", "us", ratio_at_most(1.0), words),
        beside_kafka(samples, "per_s", "commits", "1/s", ratio_at_least(1.0), words),
        beside_kafka(samples, "p50_ms", "p50 of a commit", "ms", None, words),
        beside_kafka(samples, "p99_ms", "p99 of a commit", "ms", None, words),
    ]
