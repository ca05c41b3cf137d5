"""One record per request over 32 connections, acks=all, one request in flight each: CPU per request, p50, p99.

Twice with librdkafka as the targets ask (plain and idempotent), and twice with bare sockets. The library shares
the broker's cores and takes a good part of them, so much of its latency is its own; the bare sockets show the broker.
They are measured twice in each round: on a quiet machine, and beside a process that keeps one core busy.
"""

from __future__ import annotations

from bench.brokers import Broker, Server
from bench.client_process import run_measured
from bench.figures import Figure, Samples, ratio_at_most
from bench.neighbour import busy_core
from bench.stage import Stage, beside_kafka

NAME = "one-record"
SUMMARY = "one-record requests over 32 connections: CPU, p50, p99, plain and idempotent, quiet and beside one busy core"
CONNECTIONS = 32
LIBRDKAFKA = "one_record"
BARE = "one_record_raw"
CLIENTS = {LIBRDKAFKA: "librdkafka", BARE: "bare sockets"}
BUSY = "beside one busy core"
TARGETS = {LIBRDKAFKA: (0.8, 1.0), BARE: (0.5, 0.8), BUSY: (0.8, 1.0)}
"""CPU per request and p50, beside Kafka's."""


def run(stage: Stage) -> list[Figure]:
    brokers = stage.shared_pair()
    for broker in brokers:
        broker.create_topic(NAME, CONNECTIONS)
    figures: list[Figure] = []
    for client, words in CLIENTS.items():
        for idempotent in (False, True):
            kind = "idempotent" if idempotent else "plain"
            samples = _turns(stage, brokers, client, idempotent=idempotent)
            figures += _figures(samples, kind, words, *TARGETS[client])
            if client == BARE:
                figures += _figures(samples, kind, f"{words}, {BUSY}", *TARGETS[BUSY], f", {BUSY}")
    for broker in brokers:
        broker.delete_topic(NAME)
    return figures


def _turns(stage: Stage, brokers: list[Broker], client: str, *, idempotent: bool) -> Samples:
    count = stage.scaled(64_000, 3_200)

    def work(broker: Broker) -> dict[str, float]:
        measured = one_record(broker, client, topic=NAME, count=count, idempotent=idempotent)
        if client == BARE:
            with busy_core():
                beside = one_record(broker, client, topic=NAME, count=count, idempotent=idempotent)
            measured |= {f"{metric}, {BUSY}": number for metric, number in beside.items()}
        return measured

    return stage.take_turns(brokers, work)


def _figures(
    samples: Samples, kind: str, note: str, cpu_target: float, p50_target: float, where: str = ""
) -> list[Figure]:
    cpu = f"CPU per one-record request, {kind}"
    return [
        beside_kafka(samples, f"us{where}", cpu, "us", ratio_at_most(cpu_target), note),
        beside_kafka(samples, f"p50_ms{where}", f"p50, {kind}", "ms", ratio_at_most(p50_target), note),
        beside_kafka(samples, f"p99_ms{where}", f"p99, {kind}", "ms", ratio_at_most(1.0), note),
        beside_kafka(samples, f"per_s{where}", f"requests, {kind}", "1/s", None, note),
    ]


def one_record(
    broker: Server,
    client: str,
    *,
    topic: str,
    count: int,
    idempotent: bool,
    partitions: int = CONNECTIONS,
    connections: int = CONNECTIONS,
    **options: object,
) -> dict[str, float]:
    """Measure one-record requests; `options` are further ones of the client."""
    task = {
        "topic": topic,
        "partitions": partitions,
        "addresses": broker.addresses_of(topic),
        "connections": connections,
        "count": count,
        "idempotent": idempotent,
        **options,
    }
    cpu_s, _, (result,) = run_measured(broker, [(client, task)])
    return {
        "us": cpu_s * 1e6 / result["requests"],
        "p50_ms": result["p50_ms"],
        "p99_ms": result["p99_ms"],
        "per_s": result["requests"] / result["seconds"],
    }
