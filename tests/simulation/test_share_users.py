"""Short runs of small clusters with share groups under faults; `ShareTruth` judges what workers are given."""

from __future__ import annotations

import dataclasses
import random

import pytest
from tests.simulation.test_users import focused, survives
from tests.simulator.options import SimOptions
from tests.simulator.share_users import with_share_groups
from tests.simulator.truth.invariants import Violation
from tests.simulator.truth.share_truth import Delivery, ShareTruth

SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))]
FAULTS = {"kill": 3, "pause": 2, "isolate": 2, "resets": 2, "stop": 1, "one way": 1}


def shared(seed: int, faults: dict[str, int], **share: object) -> SimOptions:
    """Return what a seed means with one topic for share groups, and one other."""
    drawn = focused(seed, faults, safety_s=30.0)
    options = with_share_groups(drawn, random.Random(f"share users {seed}"), groups=2)
    if share:
        shares = tuple(dataclasses.replace(each, **share) for each in options.shares)  # type: ignore[arg-type]
        options = dataclasses.replace(options, shares=shares)
    return dataclasses.replace(options, topics=(options.topics[0], options.topics[-1]))


@pytest.mark.parametrize("seed", SEEDS)
def test_workers_under_faults_do_every_task_once_in_time_and_in_order(seed: int) -> None:
    survives(shared(seed, FAULTS))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_keys_stay_in_order_while_leaders_die(seed: int) -> None:
    survives(shared(seed, {"kill": 4, "pause": 2}, is_key_ordered=True, lock_s=1.0))


class NoRun:
    """Invariants of no run: a history by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.on_committed: dict[str, object] = {}


def truth() -> ShareTruth:
    found = ShareTruth(NoRun(), "tasks", is_delayed=True)  # type: ignore[arg-type]
    group = found.add("workers", is_key_ordered=True, limit=3)
    group.logged.start = 0
    for offset, due_ms in enumerate((0, 0, 5_000)):
        found.on_task(offset, due_ms, b"k" if offset < 2 else None)
    return found


def give(found: ShareTruth, worker: str, offset: int, count: int = 1, *, epoch: int = 1) -> Delivery:
    now = found.now
    return found.on_given("workers", worker, [(offset, count)], epoch=epoch, asked_at=now, now_ms=1_000)[0]


def test_the_truth_notices_what_must_not_be() -> None:
    found = truth()
    with pytest.raises(Violation, match="early-delay"):
        give(found, "ann", 2)
    with pytest.raises(Violation, match="reordered-key"):
        give(found, "ann", 1)
    with pytest.raises(Violation, match="too-often"):
        give(found, "ann", 0, 4)
    first = give(found, "ann", 0)
    with pytest.raises(Violation, match="unstored-answer"):
        found.on_acknowledged("workers", first, "accept")
    found.groups["workers"].logged.records[0] = (2, 1)
    found.on_acknowledged("workers", first, "accept")
    with pytest.raises(Violation, match="double-acquire"):
        give(found, "bob", 0, 2)
    give(found, "bob", 0, 2, epoch=-1)
    assert "stuck-task" in found.undone("workers")


def test_the_truth_notices_a_worker_that_acknowledges_what_another_has() -> None:
    found = truth()
    first = give(found, "ann", 0)
    give(found, "bob", 0, 2)
    found.groups["workers"].logged.records[0] = (2, 2)
    with pytest.raises(Violation, match="double-acquire"):
        found.on_acknowledged("workers", first, "accept")


def test_the_truth_notices_a_start_offset_above_a_task_that_nobody_finished() -> None:
    found = truth()
    with pytest.raises(Violation, match="lost-task"):
        found.move_start(found.groups["workers"], 1)
