"""A rebuild is killed, or fails, at every point that has a name: it goes on, or is undone, and nobody read nonsense.

Spark takes seconds for each run of a version, so one rebuild is taken through many failures, one after the other. What
fails within a process is tried twice: with Spark, and with a few lines of Python in its place.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipelines import rebuild_chains as chains
from tests.pipelines.plain_shop import PlainShop
from tests.pipelines.rebuild_chains import (
    THERE,
    check_by_name,
    check_new,
    check_old,
    command,
    goes_on,
    killed_at,
    made_ready,
    no_spark,
    planned,
)
from tests.pipelines.shop_ground import HasTopics, Shop

from strandline.local.embedded_broker import EmbeddedBroker
from strandline.pipelines.failures import PipelineRefused
from strandline.pipelines.rebuild.phases import Wish
from strandline.runtime import fault_points
from strandline.runtime.fault_points import PlantedFault

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_S = 900

pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT_S)]


def ready(spark: SparkSession, broker: HasTopics, home: Path) -> Shop:
    shop = Shop(broker, home, with_stream=True)
    made_ready(shop, lambda: shop.run_once(spark))
    return shop


@dataclass(frozen=True)
class Ground:
    """A shop that is ready to be rebuilt, and what runs its versions."""

    shop: Shop
    spark: Callable[[], SparkSession]
    run_once: Callable[[], None]


@pytest.fixture(params=["plain", "spark"])
def ground(
    request: pytest.FixtureRequest, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Ground:
    if request.param == "spark":
        spark: SparkSession = request.getfixturevalue("spark")
        shop = ready(spark, broker, tmp_path)
        return Ground(shop, lambda: spark, lambda: shop.run_once(spark))
    plain = PlainShop(broker, tmp_path, monkeypatch)
    made_ready(plain, plain.run_active)
    return Ground(plain, no_spark, plain.run_active)


def test_a_rebuild_that_fails_at_every_point_goes_on_each_time(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    chains.rebuild_that_fails_at_every_point(ground.shop, ground.spark, monkeypatch)
    goes_on(ground.shop, ground.run_once, is_new=True)


@pytest.mark.parametrize("points", [chains.BUILDING, chains.UNDECIDED, chains.DECIDED], ids=lambda points: points[0])
def test_a_rebuild_that_failed_is_undone(
    points: Sequence[str], ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    chains.rebuild_that_is_undone(ground.shop, ground.spark, monkeypatch, points)
    goes_on(ground.shop, ground.run_once, is_new=False)


def test_a_way_back_that_fails_at_every_point_goes_on_each_time(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    chains.way_back_that_fails_at_every_point(ground.shop, ground.spark, monkeypatch)
    goes_on(ground.shop, ground.run_once, is_new=False)


def test_a_finish_that_fails_at_every_point_goes_on_each_time(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    chains.finish_that_fails_at_every_point(ground.shop, ground.spark, monkeypatch)
    goes_on(ground.shop, ground.run_once, is_new=True)


def test_a_command_that_is_killed_at_every_point_is_said_again(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """The whole command with `kill -9`: there, and on the way back at the points where most can go wrong."""
    shop = ready(spark, broker, tmp_path)
    for point in killed_at(shop, THERE):
        assert check_by_name(shop) is (point == "switch-made"), point
    ended = command(shop)
    assert ended.returncode == 0, ended.stderr
    check_new(shop)
    for point in THERE:
        (tmp_path / point).unlink()
    for _ in killed_at(
        shop, ["return-begun", "switch-differences-written", "switch-settled", "remove-half"], "--rollback"
    ):
        check_by_name(shop)
    ended = command(shop, "--rollback")
    assert ended.returncode == 0, ended.stderr
    check_old(shop)
    goes_on(shop, lambda: shop.run_once(spark), is_new=False)


def test_a_way_back_is_killed_wherever_it_needs_no_spark(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`kill -9` of the whole command at all points but the four at which Spark has just run: to these it is brought in
    this process."""
    shop = PlainShop(broker, tmp_path, monkeypatch)
    made_ready(shop, shop.run_active)
    shop.rebuild(no_spark)

    def fails_at(point: str) -> None:
        with monkeypatch.context() as context:
            context.setenv(fault_points.VARIABLE, planned([point], tmp_path))
            with pytest.raises(PlantedFault, match=f"at {point}$"):
                shop.rebuild(no_spark, Wish.ROLL_BACK)

    for _ in killed_at(shop, ["return-begun", "rebuild-topics-made"], "--rollback"):
        assert check_by_name(shop)
    fails_at("switch-letting-go")
    for _ in killed_at(shop, ["switch-let-go"], "--rollback"):
        assert check_by_name(shop)
    fails_at("switch-ends-noted")
    switched = THERE[THERE.index("switch-ends-noted") + 1 :]
    for point in killed_at(shop, [*switched, *chains.REMOVING], "--rollback"):
        assert check_by_name(shop) is (point in switched[:-1]), point
    assert command(shop, "--rollback").returncode == 0
    check_old(shop)
    goes_on(shop, shop.run_active, is_new=False)


def test_a_command_that_was_killed_is_undone(spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path) -> None:
    shop = ready(spark, broker, tmp_path)
    for point in ("rebuild-caught-up", "switch-differences-written", "switch-settled"):
        assert list(killed_at(shop, [point])) == [point]
        assert not check_by_name(shop)
        ended = command(shop, "--rollback")
        assert ended.returncode == 0, f"{point}: {ended.stderr}"
        check_old(shop)
    goes_on(shop, lambda: shop.run_once(spark), is_new=False)


def test_a_version_whose_checkpoints_are_gone_goes_on_and_comes_back(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are made anew from the log, if the user says so; nothing is lost, and nothing is there twice."""
    shop = ready(spark, broker, tmp_path)
    checkpoints = tmp_path / "checkpoints" / shop.name
    monkeypatch.setenv(fault_points.VARIABLE, planned(["rebuild-caught-up"], tmp_path))
    with pytest.raises(PlantedFault):
        shop.rebuild(lambda: spark)
    shutil.rmtree(checkpoints / "v2")
    shop.order(("ana", 12), ("gus", 31))
    with pytest.raises(PipelineRefused, match=r"the checkpoint of .* is gone .* say --recover"):
        shop.rebuild(lambda: spark)
    shop.rebuild(lambda: spark, recovers=True)
    check_new(shop)
    shutil.rmtree(checkpoints / "v1")
    shop.order(("bo", 200))
    shop.rebuild(lambda: spark, Wish.ROLL_BACK, recovers=True)
    check_old(shop)
    goes_on(shop, lambda: shop.run_once(spark), is_new=False)


def test_the_command_tells_what_it_does(spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path) -> None:
    import json

    shop = ready(spark, broker, tmp_path)
    refused = command(shop, removes=False)
    assert (refused.returncode, "would remove 2 of the 4 rows" in refused.stderr) == (1, True), refused.stderr
    assert not check_by_name(shop)
    compared = command(shop, "--compare", "--json")
    assert compared.returncode == 0, compared.stderr
    told = json.loads(compared.stdout)
    assert (told["active"], told["phase"], told["written"]) == (2, "switched", {f"{shop.name}-totals": 2})
    assert [each["only_old"] for each in told["comparisons"] if each["dataset"] == "totals"] == [2]
    again = command(shop)
    assert (again.returncode, again.stdout.split(";")[0]) == (0, f"version 2 is what {shop.name} means")
    both = command(shop, "--rollback", "--finish")
    assert (both.returncode, "cannot go together" in both.stderr) == (2, True)
    finished = command(shop, "--finish")
    assert finished.returncode == 0, finished.stderr
    assert f"{shop.name}-totals.v1" in finished.stderr, "what is removed is said first"
    nothing = command(shop, "--finish")
    assert (nothing.returncode, "has no rebuild to finish" in nothing.stderr) == (1, True)
