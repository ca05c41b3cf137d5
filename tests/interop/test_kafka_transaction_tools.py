"""Kafka's own tool for transactions: list, describe, describe-producers, find-hanging and abort."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.clients.broker import BROKER_PROPERTIES
from tests.interop.kafka_tools import Tools
from tests.scenarios.transactional_clients import PlainSpoken, read

import strandline
from strandline.errors import ErrorCode
from strandline.local.embedded_broker import EmbeddedBroker

pytestmark = [pytest.mark.slow, pytest.mark.java]

COMMAND = "TransactionsCommand"


@pytest.fixture(scope="module")
def node() -> Iterator[EmbeddedBroker]:
    """One that does not ask coordinators about transactions, as before KIP-890: so that one can be made to hang."""
    unverified = {"transaction.partition.verification.enable": "false"}
    with strandline.embedded(properties=BROKER_PROPERTIES | unverified) as broker:
        yield broker


@pytest.fixture
def here(tools: Tools, node: EmbeddedBroker) -> Tools:
    return replace(tools, bootstrap=node.bootstrap)


@pytest.fixture
def producer(node: EmbeddedBroker, topic: str) -> Iterator[PlainSpoken]:
    """A transaction that is open on the first partition, and a record of it on the second that nobody was told of."""
    node.create_topic(topic, partitions=2)
    with PlainSpoken([node.port], f"worker of {topic}".replace(" ", "-"), timeout_ms=600_000) as producer:
        producer.init()
        assert producer.produce(topic, "a") == ErrorCode.NONE
        assert producer.produce(topic, "hanging", partition=1, version=11) == ErrorCode.NONE
        yield producer


def rows(output: str) -> list[dict[str, str]]:
    """The table by the names of its columns."""
    head, *lines = [line.split() for line in output.splitlines() if line.strip()]
    return [dict(zip(head, line, strict=False)) for line in lines]


def test_what_is_open_is_listed_and_described(here: Tools, producer: PlainSpoken, topic: str) -> None:
    name = producer.transactional_id
    listed = {row["TransactionalId"]: row for row in rows(here.run(COMMAND, "list"))}
    assert (listed[name]["ProducerId"], listed[name]["TransactionState"]) == (str(producer.producer_id), "Ongoing")
    later = rows(here.run(COMMAND, "list", "--duration-filter", "3600000"))
    assert name not in {row["TransactionalId"] for row in later}
    (row,) = rows(here.run(COMMAND, "describe", "--transactional-id", name))
    assert (row["ProducerEpoch"], row["TransactionState"]) == (str(producer.epoch), "Ongoing")
    assert (row["TransactionTimeoutMs"], row["TopicPartitions"]) == ("600000", f"{topic}-0")
    assert "Failed to describe" in here.refused(COMMAND, "describe", "--transactional-id", "nobody-at-all")
    assert producer.end(commits=False).error_code == ErrorCode.NONE


def test_what_hangs_is_found_and_aborted(
    here: Tools, producer: PlainSpoken, topic: str, node: EmbeddedBroker, broker_id: str
) -> None:
    producers = ("describe-producers", "--topic", topic, "--partition", "1")
    (row,) = rows(here.run(COMMAND, *producers))
    assert (row["ProducerId"], row["CurrentTransactionStartOffset"]) == (str(producer.producer_id), "0")
    assert rows(here.run(COMMAND, *producers, "--broker-id", broker_id)) == [row]
    search = ("find-hanging", "--topic", topic, "--max-transaction-timeout", "0")
    (found,) = rows(here.run(COMMAND, *search))
    assert (found["Partition"], found["StartOffset"]) == ("1", "0")
    abort = ("abort", "--topic", topic, "--partition", "1", "--start-offset")
    assert "Could not find any open transactions" in here.refused(COMMAND, *abort, "7")
    here.run(COMMAND, *abort, "0")
    assert rows(here.run(COMMAND, *search)) == []
    (row,) = rows(here.run(COMMAND, *producers))
    assert (row["CurrentTransactionStartOffset"], row["LatestCoordinatorEpoch"]) == ("None", "0")
    # What its coordinator knows of was not touched.
    assert producer.end(commits=True).error_code == ErrorCode.NONE
    assert read(node.bootstrap, topic, 1, partitions=2) == ["a"]
