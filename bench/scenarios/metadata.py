"""Metadata of 1,000 partitions, asked again and again: broker CPU per request, which bounds the time on its loop.

Once as one topic of 1,000 partitions and once as 100 topics of 10, asked for by a null list, as a client's refresh of
everything does. The request is librdkafka's version, sent over a bare socket, because the client decodes for far longer
than the broker answers.
"""

from __future__ import annotations

import time

from bench.brokers import Broker
from bench.figures import Figure, at_most
from bench.measure import percentile
from bench.stage import Stage, beside_kafka
from bench.wire import metadata_request

NAME = "metadata"
SUMMARY = "Metadata of 1,000 partitions: broker CPU per request when cached"
LOOP_MS_MAX = 1.0


def run(stage: Stage) -> list[Figure]:
    requests = stage.scaled(2_000, 100)
    figures: list[Figure] = []
    for topics, partitions in ((1, 1_000), (100, 10)):
        # Metadata of all topics must hold these and nothing else, so the brokers are fresh ones.
        with stage.fresh_pair() as brokers:
            for broker in brokers:
                for number in range(topics):
                    broker.create_topic(f"{NAME}-{number}", partitions)

            def work(broker: Broker) -> dict[str, float]:
                return asked(broker, requests=requests)

            samples = stage.take_turns(brokers, work)
        shape = f"{topics} x {partitions:,} partitions"
        note = f"{samples.of(brokers[0].name, 'answer_kb')[-1]:.0f} kB per answer; bare socket"
        figures += [
            beside_kafka(samples, "cpu_ms", f"CPU per Metadata, {shape}", "ms", at_most(LOOP_MS_MAX), note),
            beside_kafka(samples, "p50_ms", f"p50 of Metadata, {shape}", "ms", None),
            beside_kafka(samples, "p99_ms", f"p99 of Metadata, {shape}", "ms", None),
        ]
    return figures


def asked(broker: Broker, *, requests: int) -> dict[str, float]:
    request = metadata_request(None)
    latencies_ms: list[float] = []
    with broker.connect() as connection:
        answer = connection.exchange(request)
        cpu = broker.cpu_seconds()
        for _ in range(requests):
            start = time.perf_counter()
            connection.exchange(request)
            latencies_ms.append((time.perf_counter() - start) * 1e3)
        cpu_ms = (broker.cpu_seconds() - cpu) * 1e3
    return {
        "cpu_ms": cpu_ms / requests,
        "p50_ms": percentile(latencies_ms, 50),
        "p99_ms": percentile(latencies_ms, 99),
        "answer_kb": len(answer) / 1e3,
    }
