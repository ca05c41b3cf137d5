"""kafka-python against the scenario table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.clients.kafka_python_client import KafkaPythonClient
from tests.clients.scenarios import SCENARIOS, rows_of


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[KafkaPythonClient]:
    client = KafkaPythonClient(bootstrap)
    yield client
    client.close()


@pytest.mark.parametrize("scenario", rows_of(KafkaPythonClient.name))
def test_scenario(client: KafkaPythonClient, topic: str, scenario: str) -> None:
    SCENARIOS[scenario].scenario(client, topic)
