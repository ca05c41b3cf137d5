"""Every client through every story of transactions; `make clients` runs the whole table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.kafka_jars import KafkaUnavailable
from tests.clients.groups.variants import BUILD_TIMEOUT_S, ClientUnavailable
from tests.clients.transactions.client import TransactionalClient
from tests.clients.transactions.matrix import matrix
from tests.clients.transactions.stories import ROWS, Stage
from tests.clients.transactions.variants import CLIENTS


@pytest.fixture(scope="module")
def client(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[TransactionalClient]:
    try:
        client = CLIENTS[request.param].make(bootstrap)
    except (KafkaUnavailable, ClientUnavailable) as reason:
        pytest.skip(f"no {request.param}: {reason}")
    yield client
    client.close()


def _cells() -> list[object]:
    return [
        pytest.param(name, row, id=f"{name}-{row}", marks=variant.marks)
        for name, variant in CLIENTS.items()
        for row, what in ROWS.items()
        if name not in what.cannot
    ]


@pytest.mark.timeout(BUILD_TIMEOUT_S + 300)
@pytest.mark.parametrize(("client", "row"), _cells(), indirect=["client"])
def test_story(client: TransactionalClient, bootstrap: str, topic: str, row: str) -> None:
    ROWS[row].story(Stage(client, bootstrap, topic))


def test_the_page_shows_the_table() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "clients.md"
    assert matrix() in page.read_text(), (
        "run `python -m tests.clients.transactions.matrix`, put it into docs/clients.md"
    )


def test_reasons_are_about_real_clients() -> None:
    for row in ROWS.values():
        assert set(row.cannot) <= set(CLIENTS)
