"""Kafka's own Java clients against the scenario table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bench.kafka_jars import KafkaUnavailable
from tests.clients.java_client import JavaClient
from tests.clients.scenarios import SCENARIOS, rows_of

pytestmark = [pytest.mark.slow, pytest.mark.java]


@pytest.fixture(scope="module")
def client(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClient]:
    try:
        client = JavaClient(bootstrap, tmp_path_factory.mktemp("java"))
    except KafkaUnavailable as reason:
        pytest.skip(f"no Java clients: {reason}")
    yield client
    client.close()


@pytest.mark.parametrize("scenario", rows_of(JavaClient.name))
def test_scenario(client: JavaClient, topic: str, scenario: str) -> None:
    SCENARIOS[scenario].scenario(client, topic)
