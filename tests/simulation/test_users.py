"""Short runs of small clusters, each with one thing that users, disks or networks do, and the faults that it needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation.stage import ORDERS, stage
from tests.simulator.actors import creatable
from tests.simulator.clients.admin import SimAdministrator
from tests.simulator.options import SimOptions, options_of
from tests.simulator.run import run
from tests.simulator.users import DAY_MS, UserOptions
from tests.simulator.world.network import TCP_TIMEOUT_S

from strandline.codec.message import Message
from strandline.codec.messages.delete_topics_request import DeleteTopicsRequest

SEEDS = [0, pytest.param(1, marks=pytest.mark.slow)]


def focused(
    seed: int,
    faults: dict[str, int],
    *,
    safety_s: float = 25.0,
    every_s: float = 0.0,
    settings: dict[str, str] | None = None,
    cleaning: bool = False,
    **users: object,
) -> SimOptions:
    """Return what a seed means without groups and transactions, with these faults and habits only."""
    drawn = options_of(seed, safety_s=safety_s, nodes=3, cleaning=cleaning, users=False)
    return dataclasses.replace(
        drawn,
        groups=(),
        processors=(),
        transactors=None,
        sinks=None,
        outputs=(),
        table=None if drawn.table is None else dataclasses.replace(drawn.table, transactors=None),
        administer_every_s=every_s,
        delivery_timeout_s=15.0,
        produce_pause_s=0.3,
        users=UserOptions(**users),  # type: ignore[arg-type]
        settings={**drawn.settings, **(settings or {})},
        nemesis=dataclasses.replace(drawn.nemesis, pause_s=2.0, weights=faults),
    )


def survives(options: SimOptions) -> None:
    result = run(options)
    print(result)
    assert result.failure is None, result.failure
    assert result.acknowledged > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_disks_that_are_full_at_one_write_and_not_at_the_next(seed: int) -> None:
    survives(focused(seed, {"brimming disk": 4, "kill": 1, "power cut": 1}))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_disks_that_are_replaced_by_empty_ones(seed: int) -> None:
    survives(focused(seed, {"replaced disk": 2, "kill": 1}))


@pytest.mark.parametrize("seed", SEEDS)
def test_bits_that_flip_in_batches_on_their_way(seed: int) -> None:
    survives(focused(seed, {"kill": 2, "resets": 2, "pause": 1}, flip_share=0.1, burst=5))


@pytest.mark.parametrize("seed", SEEDS)
def test_an_administrator_who_changes_minima_and_configs(seed: int) -> None:
    faults = {"kill": 2, "pause": 1, "isolate": 2, "stop": 1, "kill all": 1}
    survives(focused(seed, faults, every_s=0.7, duties=("configure", *["minimum"] * 5)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_an_administrator_who_changes_all_kinds_of_configs(seed: int) -> None:
    faults = {"kill": 2, "pause": 1, "power cut": 1, "stop": 1, "full disk": 1}
    survives(focused(seed, faults, every_s=0.4, duties=("configure",) * 12, cleaning=True))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_topic_that_is_created_again_under_its_clients(seed: int) -> None:
    survives(focused(seed, {"kill": 1, "pause": 1, "isolate": 1}, every_s=0.7, duties=("recreate",) * 5))


def test_a_topic_is_there_in_the_end_though_its_deletion_comes_late() -> None:
    """It waits at a broker, behind another request of a connection that the administrator has given up."""
    with stage(0, ORDERS) as play:
        play.work()
        administrator = play.run.administrator = SimAdministrator(
            play.network, play.cluster.host("administrator"), play.run.history, play.cluster.bootstrap, "", every_s=1e6
        )
        phoenix = dataclasses.replace(ORDERS, name="phoenix")
        administrator.recreated = creatable(phoenix)
        play.run.create(phoenix)
        first_id, ask_now = play.topic_id("phoenix"), administrator.ask_any

        def ask(
            request: Message, version: int, answer_class: type[Message], on_answer: Callable[[Any], object]
        ) -> None:
            if isinstance(request, DeleteTopicsRequest):
                administrator.runtime.call_later(3.0, ask_now, request, version, answer_class, lambda _: None)
                on_answer(None)
            else:
                ask_now(request, version, answer_class, on_answer)

        administrator.ask_any = ask  # type: ignore[method-assign]
        administrator._recreate()
        play.rest(2.0)
        assert play.topic_id("phoenix") == first_id
        # The story ends as every run does.
        administrator.stop()
        play.until(lambda: "phoenix" not in play.run.invariants.image.topics, "the topic is deleted")
        play.until(lambda: "phoenix" in play.run.invariants.image.topics, "the topic is made again")
        assert play.topic_id("phoenix") != first_id


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_readers_that_stop_reading(seed: int) -> None:
    survives(focused(seed, {"kill": 1, "resets": 1}, stalled_readers=3))


@pytest.mark.parametrize("seed", SEEDS)
def test_readers_whose_broker_loses_power_while_they_do_not_read(seed: int) -> None:
    survives(focused(seed, {"power cut": 1}, stalled_readers=3))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_producers_that_are_away_longer_than_they_are_remembered(seed: int) -> None:
    expiry = {"producer.id.expiration.ms": "20000", "producer.id.expiration.check.interval.ms": "1000"}
    faults = {"kill": 1, "resets": 2}
    survives(focused(seed, faults, safety_s=60.0, settings=expiry, rest_s=25.0, strangers=1))


def test_producers_are_remembered_for_as_long_as_a_retry_may_be_on_its_way() -> None:
    """A retry that arrives later is stored again, as in Kafka: a run must not call that a fault of the broker."""
    forgetful = [each for each in map(options_of, range(100)) if "producer.id.expiration.ms" in each.settings]
    assert forgetful
    for options in forgetful:
        remembered_s = int(options.settings["producer.id.expiration.ms"]) / 1000
        looked_at_s = 1.8 * options.produce_pause_s * options.users.burst
        assert remembered_s > options.delivery_timeout_s + looked_at_s + TCP_TIMEOUT_S[1]
        assert options.users.rest_s > remembered_s


@pytest.mark.parametrize("seed", SEEDS)
def test_timestamps_that_are_days_old(seed: int) -> None:
    expiry = {"producer.id.expiration.check.interval.ms": "1000"}
    survives(focused(seed, {"kill": 1, "resets": 4}, settings=expiry, age_ms=2 * DAY_MS, burst=3))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_replicas_that_are_away_longer_than_tombstones_stay(seed: int) -> None:
    survives(focused(seed, {"absence": 1, "kill": 1}, safety_s=60.0, cleaning=True))
