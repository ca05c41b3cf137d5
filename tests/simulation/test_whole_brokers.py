"""Whole clusters from a few seeds, and that a seed is a run: the same every time, whatever Python's hash seed is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.simulator.options import options_of
from tests.simulator.run import run

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
SAFETY_S = 20.0
KEPT = Path(__file__).with_name("kept_seeds.txt")
"""Seeds that once failed, with what they found."""

ERAS = ("", "transactions", "cleaning", "users", "shares", "tiers", "objects")


def kept_seeds() -> list[tuple[int, float, int | None, str]]:
    """Seed, seconds of faults and nodes of each line; what follows a `#` says what it found.

    Seeds meant less before there were transactions, before anything was cleaned, before users did all that they do,
    before there were share groups, before topics had tiers, and before there were object topics. The words
    `transactions`, `cleaning`, `users`, `shares`, `tiers` and `objects` mark those from after.
    """
    kept = []
    for line in KEPT.read_text().splitlines():
        words = line.partition("#")[0].split()
        if words:
            era = "" if words[-1].isdecimal() else words.pop()
            nodes = int(words[2]) if len(words) > 2 else None
            kept.append((int(words[0]), float(words[1]), nodes, era))
    return kept


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_under_faults_keeps_its_promises(seed: int) -> None:
    result = run(options_of(seed, safety_s=SAFETY_S))
    print(result)
    assert result.failure is None, result.failure
    assert result.faults > 0
    assert result.acknowledged > 0


def test_a_single_node_under_faults_keeps_its_promises() -> None:
    result = run(options_of(0, safety_s=SAFETY_S, nodes=1))
    assert result.failure is None, result.failure


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "safety_s", "nodes", "era"), kept_seeds())
def test_what_once_failed_does_not_fail_again(seed: int, safety_s: float, nodes: int | None, era: str) -> None:
    assert era in ERAS
    _, transactional, cleaning, users, shares, tiers, objects = (ERAS.index(era) >= at for at in range(len(ERAS)))
    options = options_of(
        seed,
        safety_s=safety_s,
        nodes=nodes,
        transactional=transactional,
        cleaning=cleaning,
        users=users,
        shares=shares,
        tiers=tiers,
        objects=objects,
    )
    result = run(options)
    assert result.failure is None, result.failure


def traces(hash_seed: str, *, seed: int) -> str:
    command = [sys.executable, "-m", "tests.simulator", "--whole"]
    done = subprocess.run(
        [*command, "--seed", str(seed), "--safety", "8", "--nodes", "3"],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = re.search(r"(\d+) events, trace ([0-9a-f]{8})", done.stdout)
    assert found is not None, done.stdout
    return found.group()


@pytest.mark.slow
def test_the_same_seed_is_the_same_run_under_every_hash_seed() -> None:
    one = traces("1", seed=7)
    assert one == traces("2", seed=7)
