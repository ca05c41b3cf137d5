"""10,000 connections that say two bytes and fall silent: what one-record requests of others take beside them.

Without and with them in turn, on each broker, so that what changes is the crowd and not the hour.
"""

from __future__ import annotations

import resource

from bench.brokers import KAFKA, STRANDLINE, Broker
from bench.client_process import ClientProcess
from bench.figures import Figure, Samples, ratio_at_most
from bench.scenarios.one_record import one_record
from bench.stage import ASYNC_FLUSH, Stage

NAME = "half-open"
SUMMARY = "p99 of one-record requests beside 10,000 half-open connections"
CONNECTIONS = 10_000
SPARE_FILES = 500
PARTITIONS = 32
SETTINGS = {**ASYNC_FLUSH, "connection.first.request.timeout.ms": "300000"}
"""Or some are hung up on before they are counted: to connect ten thousand takes up to half a minute at times."""
ALONE, CROWDED = "alone", "crowded"


def run(stage: Stage) -> list[Figure]:
    connections = stage.scaled(CONNECTIONS, 500)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < connections + SPARE_FILES:
        connections = hard - SPARE_FILES
        stage.remarks.append(f"{NAME}: the limit on open files allows only {connections:,} connections")
    count = stage.scaled(32_000, 3_200)
    figures: list[Figure] = []
    with stage.fresh_pair(settings=SETTINGS, warm=True) as brokers:
        for broker in brokers:
            broker.create_topic(NAME, PARTITIONS)
            samples = Samples()
            for number in range(1 + stage.rounds):
                alone, crowded = measured(broker, count), beside_a_crowd(broker, connections, count)
                stage.say(f"  round {number} {broker.name:10} alone {alone}, crowded {crowded}")
                if number:
                    samples.add(ALONE, alone)
                    samples.add(CROWDED, crowded)
            figures += [
                figure(samples, broker, metric, f"{metric.removesuffix('_ms')} of one-record requests beside the crowd")
                for metric in ("p50_ms", "p99_ms")
            ]
    return figures


def figure(samples: Samples, broker: Broker, metric: str, words: str) -> Figure:
    is_ours = broker.name == STRANDLINE
    return Figure(
        f"{KAFKA}: {words}" if not is_ours else words,
        "ms",
        samples.of(CROWDED, metric),
        samples.of(ALONE, metric),
        beside_name="without them",
        target=ratio_at_most(2.0) if is_ours and metric == "p99_ms" else None,
        note="bare sockets",
    )


def measured(broker: Broker, count: int) -> dict[str, float]:
    return one_record(broker, "one_record_raw", topic=NAME, count=count, idempotent=False)


def beside_a_crowd(broker: Broker, connections: int, count: int) -> dict[str, float]:
    with ClientProcess("half_open", bootstrap=broker.bootstrap, connections=connections) as crowd:
        crowd.wait_ready()
        found = measured(broker, count)
        crowd.tell()
        alive = crowd.result()["alive"]
    if alive != connections:
        raise RuntimeError(f"{broker.name} closed {connections - alive} of {connections} connections too early")
    return found
