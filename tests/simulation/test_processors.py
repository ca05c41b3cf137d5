"""Processors in the simulation: they consume, produce and commit their positions in transactions, and each input counts
once, whichever process dies, hangs, or comes back as a zombie."""

from __future__ import annotations

import dataclasses

import pytest
from tests.simulation.stage import ORDERS, Play, stage
from tests.simulation.test_groups import PROTOCOLS, committed, settled, wait_commits
from tests.simulation.test_transaction_traps import LEDGER, MIRROR, QUICK
from tests.simulator.clients.group import CLASSIC, CONSUMER, GroupOptions
from tests.simulator.clients.processor import Processing, ProcessorManners
from tests.simulator.clients.processors import ProcessorOptions, SimProcessors
from tests.simulator.clients.transactional import NEW, OLD
from tests.simulator.options import FAULTS, SimOptions, TransactorOptions
from tests.simulator.run import run
from tests.simulator.world.nemesis import NemesisOptions

from strandline.ids import TopicPartition

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))]
FOUR = dataclasses.replace(ORDERS, partitions=4)
SOUND = ProcessorManners(abort_share=0.1, hang_share=0.0, late_share=0.0, die_share=0.0, timeout_s=20.0)
OUTPUTS = (TopicPartition("ledger", 0), TopicPartition("mirror", 0))
BUSY_FAULTS = ("kill", "stop", "power cut", "pause", "isolate", "one way", "bridge", "resets", "slow link", "slow disk")


def processors_of(play: Play, protocol: str, *, members: int = 2, speaks: int = NEW) -> SimProcessors:
    options = ProcessorOptions(
        GroupOptions(f"{protocol} processors", ("orders",), (protocol,), members=members, churn_s=0.0),
        outputs=OUTPUTS,
        transactional_ids=members + 1,
        manners=dataclasses.replace(SOUND, speaks=(speaks,)),
    )
    group = play.run.processor_group(options)
    play.run.groups.append(group)
    play.run.processors.append(group)
    group.start()
    settled(play, group)
    return group


def first(group: SimProcessors) -> Processing:
    return group.processors[0]


def hold_back(play: Play, group: SimProcessors, victim: Processing, hangs_s: float) -> None:
    """Until the victim has begun a transaction, and has committed its positions in it; before its end it hangs."""
    victim.processing = dataclasses.replace(SOUND, abort_share=0.0, hang_share=1.0)
    truth = play.run.group_truth

    def has_pending() -> bool:
        return bool(truth.pending.get(victim.producer.producer_id))

    play.until(has_pending, "positions wait for the end of their transaction")
    victim.processing = SOUND
    for transaction in group.transactions:
        if transaction.process == victim.producer.process and transaction.outcome is None:
            transaction.hangs_s = hangs_s


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("speaks", [NEW, pytest.param(OLD, marks=pytest.mark.slow)])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_zombie_commits_no_positions_in_its_transaction(protocol: str, speaks: int, seed: int) -> None:
    """KIP-447: stopped past its session with records in its hands, it goes on as if nothing had happened."""
    with stage(seed, FOUR, outputs=(LEDGER, MIRROR), settings=QUICK) as play:
        play.work()
        group = processors_of(play, protocol, speaks=speaks)
        wait_commits(play, group)
        victim = first(group)
        play.until(lambda: victim.positions and not victim.producer.is_busy, "between two transactions")
        victim.runtime.actor.pause()
        others = [each for each in group.members if each is not victim]
        play.until(
            lambda: len({each for other in others for each in other.owned}) == len(group.ends()),
            "the other has taken over",
            40.0,
        )
        wait_commits(play, group)
        victim.runtime.actor.resume()
        play.rest(5.0)
        settled(play, group)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("protocol", [CLASSIC, pytest.param(CONSUMER, marks=pytest.mark.slow)])
def test_positions_of_an_open_transaction_are_waited_for(protocol: str, seed: int) -> None:
    """Its member is gone from the group, and its transaction is not over: the next owner must not begin before."""
    with stage(seed, FOUR, outputs=(LEDGER, MIRROR), settings=QUICK) as play:
        play.work()
        group = processors_of(play, protocol)
        wait_commits(play, group)
        victim = first(group)
        hold_back(play, group, victim, 3.0)
        # It hangs, and so does its heartbeat: the others take over. Its transaction ends later: it commits it itself,
        # or its time is over by then.
        victim.runtime.actor.pause()
        play.rest(14.0 if seed < 4 else 30.0)
        victim.runtime.actor.resume()
        play.rest(5.0)
        before = committed(group)
        play.until(lambda: committed(group) > before, "the group goes on", 40.0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_processor_dies_in_the_middle_and_another_takes_its_id(protocol: str, seed: int) -> None:
    with stage(seed, FOUR, outputs=(LEDGER, MIRROR), settings=QUICK) as play:
        play.work()
        group = processors_of(play, protocol)
        for _ in range(2):
            wait_commits(play, group)
            victim = first(group)
            hold_back(play, group, victim, 60.0)
            group.kill(victim)
            group.add()
            play.rest(play.random.uniform(0.0, 5.0))
        wait_commits(play, group)


def busy(seed: int, *, speaks: tuple[int, ...], safety_s: float) -> SimOptions:
    """Little but transactions, and faults all the time."""
    manners = ProcessorManners(
        speaks=speaks, timeout_s=6.0, pause_s=0.15, abort_share=0.25, hang_share=0.03, late_share=0.5, die_share=0.3
    )
    return SimOptions(
        seed=seed,
        safety_s=safety_s,
        nodes=3,
        controllers=3,
        settings={**QUICK, "offsets.topic.num.partitions": "1", "replica.lag.time.max.ms": "3000"},
        topics=(dataclasses.replace(ORDERS, partitions=2),),
        outputs=(LEDGER, MIRROR),
        nemesis=NemesisOptions(pause_s=3.0, weights={kind: FAULTS[kind] for kind in BUSY_FAULTS}, power_cuts_all=False),
        records_per_batch=5,
        produce_pause_s=0.5,
        delivery_timeout_s=30.0,
        processors=(
            ProcessorOptions(
                GroupOptions("busy", ("orders",), ("classic", "consumer"), members=2, churn_s=10.0),
                outputs=OUTPUTS,
                transactional_ids=2,
                manners=manners,
            ),
        ),
        transactors=TransactorOptions(count=3, churn_s=3.0, manners=manners),
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "speaks", [(NEW,), pytest.param((OLD,), marks=pytest.mark.slow)], ids=["new protocol", "old protocol"]
)
def test_transactions_under_faults_keep_their_promises(seed: int, speaks: tuple[int, ...]) -> None:
    result = run(busy(seed, speaks=speaks, safety_s=20.0 if seed == 0 else 60.0))
    print(result)
    assert result.failure is None, result.failure
    assert result.transactions_committed > 20
    assert result.transactions_aborted > 5
