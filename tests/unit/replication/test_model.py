"""The cores together, in a world that loses, delays and repeats: what is committed stays, and nothing else is shown."""

from __future__ import annotations

import pytest
from tests.unit.replication.model import World

STEPS = 1500


@pytest.mark.parametrize(
    "first",
    [
        0,
        *(pytest.param(first, marks=pytest.mark.lengthy("random walks beside a model")) for first in range(10, 60, 10)),
    ],
)
def test_what_is_committed_stays(first: int) -> None:
    committed = elections = 0
    for seed in range(first, first + 10):
        print("seed", seed)
        world = World(seed)
        for _ in range(STEPS):
            world.step()
        committed += len(world.committed)
        elections += world.elections
    assert committed > 200, "a world in which nothing happens proves nothing"
    assert elections > 50


def test_after_all_that_the_replicas_agree() -> None:
    for seed in range(5):
        print("seed", seed)
        world = World(seed)
        for _ in range(STEPS):
            world.step()
        world.is_quiet = True
        for _ in range(STEPS):
            world.step()
        assert set(world.decided.isr) == {1, 2, 3}, "all are in sync again"
        assert len({tuple(each.log) for each in world.replicas.values()}) == 1
        assert {each.high_watermark for each in world.replicas.values()} == {len(world.committed)}
        assert len(world.committed) > 20
