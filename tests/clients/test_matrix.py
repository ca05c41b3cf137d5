"""The page about clients says what the scenario table says."""

from __future__ import annotations

from pathlib import Path

from tests.clients.matrix import matrix
from tests.clients.scenarios import CLIENTS, SCENARIOS

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "clients.md"


def test_the_page_shows_the_table() -> None:
    assert matrix() in PAGE.read_text(), "run `python -m tests.clients.matrix` and put its output into docs/clients.md"


def test_every_row_has_a_client_and_names_real_ones() -> None:
    for name, row in SCENARIOS.items():
        assert set(row.cannot) < set(CLIENTS), name
