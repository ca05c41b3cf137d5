"""kcat against the scenario table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.clients.kcat_client import KcatClient, kcat_missing
from tests.clients.scenarios import SCENARIOS, rows_of

pytestmark = [pytest.mark.slow, pytest.mark.skipif(kcat_missing() is not None, reason=kcat_missing() or "")]


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[KcatClient]:
    client = KcatClient(bootstrap)
    yield client
    client.close()


@pytest.mark.parametrize("scenario", rows_of(KcatClient.name))
def test_scenario(client: KcatClient, topic: str, scenario: str) -> None:
    SCENARIOS[scenario].scenario(client, topic)
