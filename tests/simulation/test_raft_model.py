"""A small quorum in every order of events."""

from __future__ import annotations

import pytest
from tests.simulation.raft_model import Budget, explore


@pytest.mark.slow
@pytest.mark.parametrize(
    "budget",
    [
        Budget(stands=2, appends=0, crashes=1, losses=0),
        Budget(stands=2, appends=1, crashes=0, losses=0),
    ],
    ids=str,
)
def test_a_small_quorum_in_every_order(budget: Budget) -> None:
    worlds, depth = explore(budget, depth=5, worlds_max=2_000)
    print(f"{worlds} worlds, all to depth {depth}")
    assert worlds > 200


@pytest.mark.slow
@pytest.mark.parametrize(
    "budget",
    [
        Budget(stands=3, appends=0, crashes=2, losses=0),
        Budget(stands=3, appends=1, crashes=0, losses=1),
        Budget(stands=2, appends=2, crashes=1, losses=0),
    ],
    ids=str,
)
def test_a_small_quorum_in_every_order_at_length(budget: Budget) -> None:
    worlds, depth = explore(budget, depth=14, worlds_max=10_000)
    print(f"{worlds} worlds, all to depth {depth}")
    assert depth >= 5
