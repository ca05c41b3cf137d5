"""The clients of the table of transactions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.clients.groups.variants import go_program, java_command
from tests.clients.transactions.aiokafka_transactions import AiokafkaTransactions
from tests.clients.transactions.client import TransactionalClient
from tests.clients.transactions.confluent_transactions import ConfluentTransactions
from tests.clients.transactions.driven import DrivenTransactions
from tests.clients.transactions.kafka_python_transactions import KafkaPythonTransactions

GO_SOURCES = Path(__file__).resolve().parent / "franz-go"


@dataclass(frozen=True)
class Variant:
    """How a client is made for a bootstrap address, and when it is tried."""

    make: Callable[[str], TransactionalClient]
    marks: tuple[pytest.MarkDecorator, ...] = ()


def _java(bootstrap: str) -> TransactionalClient:
    return DrivenTransactions("java", java_command("Transacting"), bootstrap, gives_positions=True)


def _franz_go(bootstrap: str) -> TransactionalClient:
    return DrivenTransactions("franz-go", [go_program(GO_SOURCES, "transacting")], bootstrap, gives_positions=False)


CLIENTS: dict[str, Variant] = {
    "confluent-kafka": Variant(ConfluentTransactions),
    "kafka-python": Variant(KafkaPythonTransactions),
    "aiokafka": Variant(AiokafkaTransactions),
    "java": Variant(_java, (pytest.mark.slow, pytest.mark.java)),
    "franz-go": Variant(_franz_go, (pytest.mark.slow,)),
}
