"""A rebuild is killed, or fails, at every point that has a name: it goes on, or is undone, and nobody read nonsense.

Spark takes seconds for each run of a version, so one rebuild is taken through many failures, one after the other.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipelines import rebuild_chains as chains
from tests.pipelines.rebuild_chains import (
    THERE,
    check_by_name,
    check_new,
    check_old,
    command,
    goes_on,
    killed_at,
    made_ready,
)
from tests.pipelines.shop_ground import HasTopics, Shop

from strandline.pipelines import fault_points
from strandline.pipelines.fault_points import PlantedFault
from strandline.pipelines.rebuild_phases import Wish
from strandline.testing.embedded_broker import EmbeddedBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_S = 900

pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT_S)]


def ready(spark: SparkSession, broker: HasTopics, home: Path) -> Shop:
    shop = Shop(broker, home, with_stream=True)
    made_ready(shop, lambda: shop.run_once(spark))
    return shop


def test_a_rebuild_that_fails_at_every_point_goes_on_each_time(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = ready(spark, broker, tmp_path)
    chains.rebuild_that_fails_at_every_point(shop, lambda: spark, monkeypatch)
    goes_on(shop, lambda: shop.run_once(spark), is_new=True)


@pytest.mark.parametrize("points", [chains.BUILDING, chains.UNDECIDED, chains.DECIDED], ids=lambda points: points[0])
def test_a_rebuild_that_failed_is_undone(
    points: Sequence[str], spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = ready(spark, broker, tmp_path)
    chains.rebuild_that_is_undone(shop, lambda: spark, monkeypatch, points)
    goes_on(shop, lambda: shop.run_once(spark), is_new=False)


def test_a_way_back_that_fails_at_every_point_goes_on_each_time(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = ready(spark, broker, tmp_path)
    chains.way_back_that_fails_at_every_point(shop, lambda: spark, monkeypatch)
    goes_on(shop, lambda: shop.run_once(spark), is_new=False)


def test_a_finish_that_fails_at_every_point_goes_on_each_time(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = ready(spark, broker, tmp_path)
    chains.finish_that_fails_at_every_point(shop, lambda: spark, monkeypatch)
    goes_on(shop, lambda: shop.run_once(spark), is_new=True)


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
    """They are made anew from the log, as by `pipeline run --recover`; nothing is lost, and nothing is there twice."""
    shop = ready(spark, broker, tmp_path)
    checkpoints = tmp_path / "checkpoints" / shop.name
    monkeypatch.setenv(fault_points.VARIABLE, chains.planned(["rebuild-caught-up"], tmp_path))
    with pytest.raises(PlantedFault):
        shop.rebuild(lambda: spark)
    shutil.rmtree(checkpoints / "v2")
    shop.order(("ana", 12), ("gus", 31))
    shop.rebuild(lambda: spark)
    check_new(shop)
    shutil.rmtree(checkpoints / "v1")
    shop.order(("bo", 200))
    shop.rebuild(lambda: spark, Wish.ROLL_BACK)
    check_old(shop)
    goes_on(shop, lambda: shop.run_once(spark), is_new=False)


def test_the_command_tells_what_it_does(spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path) -> None:
    import json

    shop = ready(spark, broker, tmp_path)
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
