"""kafka-python against the scenario table."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaTCPTransport
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


def test_what_was_not_sent_keeps_no_socket_open() -> None:
    """What `tests.kafka_python` mends."""
    loop = NetworkSelector()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    transport = KafkaTCPTransport(loop, ours)
    transport.write(b"not sent")
    transport.close()
    loop.close()
    with theirs:
        assert ours.fileno() == -1
