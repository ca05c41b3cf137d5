"""aiokafka against the scenario table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.clients.aiokafka_client import AiokafkaClient
from tests.clients.scenarios import SCENARIOS, rows_of


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[AiokafkaClient]:
    client = AiokafkaClient(bootstrap)
    yield client
    client.close()


@pytest.mark.parametrize("scenario", rows_of(AiokafkaClient.name))
def test_scenario(client: AiokafkaClient, topic: str, scenario: str) -> None:
    SCENARIOS[scenario].scenario(client, topic)
