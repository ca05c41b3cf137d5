"""The clients of the table of transactions."""

from __future__ import annotations

from collections.abc import Callable

from tests.clients.transactions.aiokafka_transactions import AiokafkaTransactions
from tests.clients.transactions.client import TransactionalClient
from tests.clients.transactions.confluent_transactions import ConfluentTransactions
from tests.clients.transactions.kafka_python_transactions import KafkaPythonTransactions

CLIENTS: dict[str, Callable[[str], TransactionalClient]] = {
    "confluent-kafka": ConfluentTransactions,
    "kafka-python": KafkaPythonTransactions,
    "aiokafka": AiokafkaTransactions,
}
"""By name, each made for a bootstrap address."""
