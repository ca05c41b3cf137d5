"""The Raft core under random faults: a few seeds here, thousands of hours by `make sim`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.simulator.raft.simulation import RaftSimulation, run


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_lost_whatever_happens(seed: int) -> None:
    outcome = run(seed, simulated_s=30)
    print(outcome)
    assert outcome.violation is None, str(outcome)
    assert outcome.faults > 0


@pytest.mark.slow
def test_the_faults_are_worth_their_name() -> None:
    """Together, the seeds above and a few more cut logs, install snapshots and lose operations that were under way."""
    truncations = installed = lost = 0
    for seed in (201, 205, 207, 213):
        world = RaftSimulation(seed)
        world.run(30)
        truncations += world.truncations
        installed += world.installed
        lost += world.lost
    assert truncations >= 3
    assert installed >= 3
    assert lost > 100


@pytest.mark.slow
def test_a_seed_is_the_same_run_on_every_machine() -> None:
    """Whatever order sets of strings would have."""
    code = "from tests.simulator.raft.simulation import run; print(run(5, simulated_s=10))"
    runs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "4711")
    }
    assert len(runs) == 1, runs
    assert "trace" in runs.pop()


@pytest.mark.slow
@pytest.mark.parametrize("first", [1000, 2000])
def test_an_hour_counts(first: int) -> None:
    """At the rates the seeds choose, an hour has enough of everything to be counted."""
    outcomes = [run(seed, simulated_s=300) for seed in range(first, first + 12)]
    for outcome in outcomes:
        print(outcome)
        assert outcome.violation is None, str(outcome)
    hours = sum(outcome.simulated_s for outcome in outcomes) / 3600
    assert sum(outcome.faults for outcome in outcomes) / hours >= 200
    assert sum(outcome.leader_changes for outcome in outcomes) / hours >= 20
    assert sum(outcome.acknowledged for outcome in outcomes) / hours >= 50_000
