"""One record per request over 32 connections, acks=all, one request in flight each: CPU per request, p50, p99.

Twice with librdkafka as the targets ask (plain and idempotent), and twice with bare sockets. The library shares
the broker's cores and takes a good part of them, so much of its latency is its own; the bare sockets show the broker.
"""

from __future__ import annotations

from bench.brokers import Broker, Server
from bench.client_process import run_measured
from bench.figures import Figure, ratio_at_most
from bench.stage import Stage, beside_kafka

NAME = "one-record"
SUMMARY = "one-record requests over 32 connections: CPU, p50, p99, plain and idempotent"
CONNECTIONS = 32
CLIENTS = {"one_record": "librdkafka", "one_record_raw": "bare sockets"}


def run(stage: Stage) -> list[Figure]:
    brokers = stage.shared_pair()
    for broker in brokers:
        broker.create_topic(NAME, CONNECTIONS)
    figures: list[Figure] = []
    for client, words in CLIENTS.items():
        count = stage.scaled(64_000, 3_200)
        for idempotent in (False, True):

            def work(
                broker: Broker, client: str = client, idempotent: bool = idempotent, count: int = count
            ) -> dict[str, float]:
                return one_record(broker, client, topic=NAME, count=count, idempotent=idempotent)

            samples = stage.take_turns(brokers, work)
            kind = "idempotent" if idempotent else "plain"
            figures += [
                beside_kafka(samples, "us", f"CPU per one-record request, {kind}", "us", ratio_at_most(1.2), words),
                beside_kafka(samples, "p50_ms", f"p50, {kind}", "ms", ratio_at_most(1.3), words),
                beside_kafka(samples, "p99_ms", f"p99, {kind}", "ms", ratio_at_most(1.0), words),
                beside_kafka(samples, "per_s", f"requests, {kind}", "1/s", None, words),
            ]
    for broker in brokers:
        broker.delete_topic(NAME)
    return figures


def one_record(
    broker: Server,
    client: str,
    *,
    topic: str,
    count: int,
    idempotent: bool,
    partitions: int = CONNECTIONS,
    connections: int = CONNECTIONS,
) -> dict[str, float]:
    task = {
        "topic": topic,
        "partitions": partitions,
        "addresses": broker.addresses_of(topic),
        "connections": connections,
        "count": count,
        "idempotent": idempotent,
    }
    cpu_s, _, (result,) = run_measured(broker, [(client, task)])
    return {
        "us": cpu_s * 1e6 / result["requests"],
        "p50_ms": result["p50_ms"],
        "p99_ms": result["p99_ms"],
        "per_s": result["requests"] / result["seconds"],
    }
