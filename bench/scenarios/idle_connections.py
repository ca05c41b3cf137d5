"""10,000 connections that said ApiVersions and then fell silent: memory, and whether the node still serves others."""

from __future__ import annotations

import resource

from bench.brokers import Broker
from bench.client_process import ClientProcess
from bench.figures import Figure, Samples, at_most
from bench.scenarios.produce_1k import produced
from bench.stage import Stage, beside_kafka

NAME = "idle-connections"
SUMMARY = "memory with 10,000 idle connections"
CONNECTIONS = 10_000
SPARE_FILES = 500


def run(stage: Stage) -> list[Figure]:
    connections = stage.scaled(CONNECTIONS, 500)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < connections + SPARE_FILES:
        connections = hard - SPARE_FILES
        stage.remarks.append(f"{NAME}: the limit on open files allows only {connections:,} connections")
    samples = Samples()
    with stage.fresh_pair() as brokers:
        for broker in brokers:
            measured = held(broker, connections)
            stage.say(f"  {broker.name:10} {measured}")
            samples.add(broker.name, measured)
    words = f"with {connections:,} idle connections"
    return [
        beside_kafka(samples, "rss_mb", f"memory (RSS) {words}", "MB", at_most(150.0)),
        beside_kafka(samples, "kib_each", "memory per idle connection", "KiB", None),
        beside_kafka(samples, "mb_per_s", f"produced by one client {words}", "MB/s", None),
    ]


def held(broker: Broker, connections: int) -> dict[str, float]:
    before_mb = broker.resident_mb()
    broker.create_topic(NAME)
    with ClientProcess("connections", bootstrap=broker.bootstrap, connections=connections) as client:
        client.wait_ready()
        rss_mb = broker.resident_mb()
        # Others must not notice them: a producer gets through while they are open.
        bystander = produced(broker, topic=NAME, count=5_000, value_bytes=1024)
        client.tell()
        alive = client.result()["alive"]
    if alive != connections:
        raise RuntimeError(f"{broker.name} closed {connections - alive} of {connections} idle connections")
    return {
        "rss_mb": rss_mb,
        "kib_each": (rss_mb - before_mb) * 1e6 / 1024 / connections,
        "mb_per_s": bystander["mb_per_s"],
    }
