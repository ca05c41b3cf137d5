"""confluent-kafka against the scenario table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.clients.confluent_client import ConfluentClient
from tests.clients.scenarios import SCENARIOS, rows_of


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[ConfluentClient]:
    client = ConfluentClient(bootstrap)
    yield client
    client.close()


@pytest.mark.parametrize("scenario", rows_of(ConfluentClient.name))
def test_scenario(client: ConfluentClient, topic: str, scenario: str) -> None:
    SCENARIOS[scenario].scenario(client, topic)
