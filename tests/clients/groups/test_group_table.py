"""Every client, with every protocol that it has, through every story; `make clients` runs the whole table."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.kafka_jars import KafkaUnavailable
from tests.clients.groups.matrix import matrix
from tests.clients.groups.stage import Stage
from tests.clients.groups.stories import ROWS
from tests.clients.groups.variants import BUILD_TIMEOUT_S, VARIANTS, ClientUnavailable

QUICK = {
    ("librdkafka cooperative", "scale-out"),
    ("librdkafka consumer", "scale-out"),
    ("librdkafka consumer", "static-restart"),
    ("librdkafka consumer", "later-topic"),
    ("kafka-python range", "join"),
    ("aiokafka range", "join"),
}
"""What `make test` runs: a few that take a second or two. The others wait for sessions to end, or for a JVM."""


def _cells() -> list[object]:
    cells: list[object] = []
    for variant in VARIANTS.values():
        for name, row in ROWS.items():
            if row.reason_against(variant.name, variant.client) is not None:
                continue
            marks = [] if (variant.name, name) in QUICK else [pytest.mark.slow]
            if variant.client == "java":
                marks.append(pytest.mark.java)
            cells.append(pytest.param(variant.name, name, marks=marks, id=f"{variant.name}-{name}".replace(" ", "-")))
    return cells


@pytest.mark.timeout(BUILD_TIMEOUT_S + 300)
@pytest.mark.parametrize(("variant_name", "row"), _cells())
def test_story(bootstrap: str, topic: str, variant_name: str, row: str) -> None:
    variant = VARIANTS[variant_name]
    try:
        command = variant.command()
    except (KafkaUnavailable, ClientUnavailable) as reason:
        pytest.skip(f"no {variant.client}: {reason}")
    with Stage(bootstrap, command, topic, protocol=variant.protocol, assignor=variant.assignor) as stage:
        ROWS[row].story(stage, variant.incremental)


def test_the_page_shows_the_table() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "clients.md"
    assert matrix() in page.read_text(), "run `python -m tests.clients.groups.matrix` and put it into docs/clients.md"


def test_what_is_run_by_default_exists() -> None:
    for variant, row in QUICK:
        assert VARIANTS[variant]
        assert ROWS[row]


def test_reasons_are_about_real_clients() -> None:
    names = {*VARIANTS, *(variant.client for variant in VARIANTS.values())}
    for row in ROWS.values():
        assert set(row.cannot) <= names
