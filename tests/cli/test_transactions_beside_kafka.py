"""`txn` against Apache Kafka: the same words, but for what only Strandline tells."""

from __future__ import annotations

import pytest
from bench.brokers import Broker
from tests.cli.conftest import CommandLine
from tests.clients.kafka_server import kafka
from tests.scenarios.transactional_clients import PATIENCE_S, stock_producer

__all__ = ["kafka"]

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(240)]


def test_a_transaction_of_kafka_is_found_and_aborted(kafka: Broker) -> None:
    cli = CommandLine(kafka.bootstrap)
    kafka.create_topic("transfers", 2)
    producer = stock_producer(kafka.bootstrap, "teller", transaction_timeout_ms=600_000)
    producer.begin_transaction()
    producer.produce("transfers", b"a", partition=0)
    producer.produce("transfers", b"b", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    (listed,) = cli.ok("txn", "list", "--state", "open", "--json").objects
    assert (listed["transactional_id"], listed["state"], listed["timeout_ms"]) == ("teller", "Ongoing", 600_000)
    assert (listed["client"], listed["waiting"]) == (None, [])
    assert any(line.startswith("ends         times out in") for line in cli.ok("txn", "describe", "teller").lines)
    first, second = cli.ok("txn", "why", "transfers", "--json").objects
    assert (first["held_back"], second["held_back"]) == (2, 0)
    assert [each["verdict"] for each in first["transactions"]] == ["ongoing"]
    assert cli.run("txn", "abort", "-p", "transfers-0", "--start-offset", "0", "--yes").status == 1
    assert cli.run("txn", "describe", "nobody").status == 3
    cli.ok("txn", "abort", "teller", "--yes", "--timeout", "30")
    assert all(each["held_back"] == 0 for each in cli.ok("txn", "why", "transfers", "--json").objects)
    assert any("no transaction is open" in line for line in cli.ok("cluster", "health").lines)
