"""Sinks in whole clusters: drivers die, run in pairs and come back from old checkpoints, coordinators and leaders are
lost at the worst moments. The invariants and the checker judge: each batch is in the output once, and whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.simulation.by_hand import STATE
from tests.simulation.stage import Play, stage
from tests.simulator.clients.processor import ProcessorManners
from tests.simulator.clients.sinks import SimSinks, SinkOptions
from tests.simulator.clients.transactional import NEW, OLD
from tests.simulator.options import TopicOptions

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))]
LEDGER = TopicOptions("ledger", 2, 3, {"min.insync.replicas": "2", "internal.segment.bytes": "2000"})
MIRROR = dataclasses.replace(LEDGER, name="mirror", partitions=1)
SETTINGS = {"transaction.state.log.num.partitions": "1", "broker.session.timeout.ms": "3000"}
FIRST_OLD = [OLD, pytest.param(NEW, marks=pytest.mark.slow)]


@contextmanager
def sinks(
    seed: int, *, speaks: int, churn_s: float = 3.0, tasks_max: int = 3, **other: float
) -> Iterator[tuple[Play, SimSinks]]:
    manners = ProcessorManners(
        speaks=(speaks,), **{"timeout_s": 6.0, "pause_s": 0.2, "abort_share": 0.3, "hang_share": 0.05, **other}
    )
    options = SinkOptions(count=2, tasks_max=tasks_max, churn_s=churn_s, manners=manners)
    with stage(seed, outputs=(LEDGER, MIRROR), settings=SETTINGS) as play:
        play.run.start_readers()
        found = play.run.sink(options)
        until_batches(play, 3)
        yield play, found


def until_batches(play: Play, count: int) -> None:
    """So many more are decided, of all sinks together."""
    truth = play.run.transaction_truth
    wanted = truth.batches_decided + count
    play.until(lambda: truth.batches_decided >= wanted, f"{count} more batches are decided", 60.0)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("speaks", FIRST_OLD, ids=["v1", "v2"])
def test_drivers_come_and_go(seed: int, speaks: int) -> None:
    with sinks(seed, speaks=speaks, churn_s=1.5) as (play, _):
        until_batches(play, 25)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("speaks", FIRST_OLD, ids=["v1", "v2"])
def test_coordinators_are_lost_between_decision_and_what_follows(
    seed: int, speaks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decision is committed, and what follows from it is not, or is in the log of the coordinator alone."""
    monkeypatch.setattr("strandline.coordinators.transactions.batches.ROLLED_PER_STEP_MAX", 1)
    with sinks(seed, speaks=speaks) as (play, _):
        for _ in range(3):
            play.until(lambda: play.run.transaction_truth.has_more_to_come, "a decision is not carried out", 60.0)
            coordinator = play.leader(STATE)
            coordinator.kill()
            play.rest(play.random.uniform(1.0, 6.0))
            coordinator.start()
            until_batches(play, 2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_coordinators_are_cut_off_with_decisions_of_their_own(seed: int) -> None:
    """What no other node has is not decided, whatever the one that is cut off believes."""
    with sinks(seed, speaks=OLD) as (play, _):
        for _ in range(4):
            coordinator, followers = play.leader(STATE), play.followers(STATE)
            for each in followers:
                play.network.block(coordinator.name, each.name)
                play.network.block(each.name, coordinator.name)
            play.rest(play.random.uniform(0.5, 8.0))
            for each in followers:
                play.network.unblock(coordinator.name, each.name)
                play.network.unblock(each.name, coordinator.name)
            until_batches(play, 3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_what_was_taken_over_is_not_what_a_late_request_means(seed: int) -> None:
    """Transactions time out before they are committed, their ids are taken over, and then the request comes again."""
    with sinks(seed, speaks=OLD, tasks_max=1, timeout_s=2.0, hang_share=0.6, late_share=1.0) as (play, _):
        until_batches(play, 25)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_batches_of_many_tasks_are_carried_out_in_shares(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.coordinators.transactions.batches.ROLLED_PER_STEP_MAX", 1)
    with sinks(seed, speaks=OLD, tasks_max=6) as (play, _):
        for _ in range(3):
            until_batches(play, 4)
            coordinator = play.leader(STATE)
            coordinator.power_cut()
            play.rest(2.0)
            coordinator.start()
