"""Every share consumer through every story, on Strandline and on Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from bench.kafka_jars import KafkaUnavailable
from tests.clients.groups.variants import BUILD_TIMEOUT_S, ClientUnavailable
from tests.clients.shares.matrix import matrix
from tests.clients.shares.stories import ROWS, ShareStage, share_out
from tests.clients.shares.variants import CLIENTS

_TIMEOUT_S = BUILD_TIMEOUT_S + 300


def _cells() -> list[object]:
    cells: list[object] = []
    for name, client in CLIENTS.items():
        for row, what in ROWS.items():
            marks = client.marks if what.is_brief else (*client.marks, pytest.mark.slow)
            cells.append(pytest.param(name, row, id=f"{name}-{row}", marks=marks))
    return cells


@pytest.mark.timeout(_TIMEOUT_S)
@pytest.mark.parametrize(("client", "row"), _cells())
def test_story(client: str, row: str, request: pytest.FixtureRequest, topic: str, tmp_path: Path) -> None:
    _run(client, row, "bootstrap", request, topic, tmp_path)


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.timeout(_TIMEOUT_S)
@pytest.mark.parametrize(("client", "row"), _cells())
def test_story_on_kafka(client: str, row: str, request: pytest.FixtureRequest, topic: str, tmp_path: Path) -> None:
    _run(client, row, "kafka_bootstrap", request, topic, tmp_path)


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.timeout(_TIMEOUT_S)
@pytest.mark.parametrize("broker", ["bootstrap", "kafka_bootstrap"])
def test_all_clients_in_one_group(broker: str, request: pytest.FixtureRequest, topic: str, tmp_path: Path) -> None:
    def story(stage: ShareStage) -> None:
        share_out(stage, [stage.member(client=client, max_poll_records="5") for client in CLIENTS.values()])

    _play(story, "confluent-kafka", broker, request, topic, tmp_path)


def test_the_page_shows_the_table() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "queues.md"
    assert matrix() in page.read_text(), "run `python -m tests.clients.shares.matrix`, put it into docs/queues.md"


def test_reasons_are_about_real_clients() -> None:
    for row in ROWS.values():
        assert set(row.cannot) <= set(CLIENTS)


def _run(client: str, row: str, broker: str, request: pytest.FixtureRequest, topic: str, logs: Path) -> None:
    # Before the broker starts, because a skip needs none.
    if why := ROWS[row].cannot.get(client):
        pytest.skip(f"{client}: {why}")
    _play(ROWS[row].story, client, broker, request, topic, logs)


def _play(
    story: Callable[[ShareStage], None],
    client: str,
    broker: str,
    request: pytest.FixtureRequest,
    topic: str,
    logs: Path,
) -> None:
    stage = ShareStage(CLIENTS[client], request.getfixturevalue(broker), topic, logs)
    try:
        story(stage)
    except (KafkaUnavailable, ClientUnavailable) as reason:
        pytest.skip(f"a client is missing: {reason}")
    finally:
        stage.close()
