"""Kafka's own producer and consumer under quotas that its own tool has set."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.clients.kafka_server import kafka_tool
from tests.interop.kafka_tools import TOOLS, Tools

pytestmark = [pytest.mark.slow, pytest.mark.java]

RECORDS, RECORD_BYTES = 150, 10_000
# Of 1.5 MB one passes at once: ten seconds' worth.
BYTES_PER_S = 100_000


@contextmanager
def limited(tools: Tools, client_id: str, key: str) -> Iterator[None]:
    entity = ("--alter", "--entity-type", "clients", "--entity-name", client_id)
    tools.configs(*entity, "--add-config", f"{key}={BYTES_PER_S}")
    try:
        yield
    finally:
        tools.configs(*entity, "--delete-config", key)


def test_java_clients_are_throttled_and_lose_nothing(tools: Tools, topic: str) -> None:
    tools.create(topic)
    with limited(tools, "java-writer", "producer_byte_rate"):
        said = kafka_tool(
            f"{TOOLS}.ProducerPerformance",
            *(
                "--topic",
                topic,
                "--num-records",
                str(RECORDS),
                "--record-size",
                str(RECORD_BYTES),
                "--throughput",
                "-1",
            ),
            *("--producer-props", f"bootstrap.servers={tools.bootstrap}", "client.id=java-writer", "--print-metrics"),
            logs=tools.logs,
        )
    throttled = [float(each) for each in re.findall(r"produce-throttle-time-max\S*\s*:\s*([0-9.]+)", said)]
    assert max(throttled) > 0, said
    with limited(tools, "java-reader", "consumer_byte_rate"):
        options = ("--topic", topic, "--from-beginning", "--max-messages", str(RECORDS), "--timeout-ms", "60000")
        read = tools.run("consumer.ConsoleConsumer", *options, "--command-property", "client.id=java-reader")
    assert [len(line) for line in read.splitlines()] == [RECORD_BYTES] * RECORDS
