"""A rebuild is killed, or fails, at every point that has a name: it goes on, or is undone, and nobody read nonsense."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipelines.rebuild_ground import table_of
from tests.pipelines.shop_ground import Shop, stock_totals
from tests.pipelines.test_rebuild import large, topics_of

from strandline.pipelines import fault_points
from strandline.pipelines.fault_points import POINTS, PlantedFault
from strandline.pipelines.rebuild_phases import Wish
from strandline.testing.embedded_broker import EmbeddedBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = [("ana", 50), ("bo", 150), ("cy", 5), ("dan", 8)]
WAY_BACK = ("return-begun", "remove-begun", "remove-half", "remove-done")
"""Points that a rebuild does not come to before somebody wants to go back, or to finish."""
TIMEOUT_S = 600.0


def ready(spark: SparkSession, broker: EmbeddedBroker, home: Path) -> Shop:
    """Version 1 has run, and its file is edited."""
    shop = Shop(broker, home, with_stream=True)
    shop.edit()
    shop.order(*ORDERS)
    shop.run_once(spark)
    shop.edit(which="amount > 10", large=10)
    return shop


def check_by_name(shop: Shop) -> bool:
    """Whether the name means the new version; it is one of the two, as a whole."""
    with shop.desk() as desk:
        seen = shop.totals(desk)
    assert seen in (shop.expected(), shop.expected(large))
    return seen == shop.expected(large)


def check_new(shop: Shop) -> None:
    assert check_by_name(shop)
    assert stock_totals(table_of(shop.bootstrap, f"{shop.name}-totals")) == shop.expected(large)
    assert shop.stream(2) == sorted(each for each in shop.orders if each[1] >= 10)


def check_old(shop: Shop) -> None:
    assert not check_by_name(shop)
    assert stock_totals(table_of(shop.bootstrap, f"{shop.name}-totals")) == shop.expected()
    assert shop.stream(1) == sorted(each for each in shop.orders if each[1] >= 100)
    state = shop.registry.refresh().pipeline(shop.name)
    assert state is not None
    assert (state.active, sorted(state.versions), state.rebuild) == (1, [1], None)
    assert topics_of(shop) == {"-orders", "-large", "-totals"}


def goes_on(shop: Shop, spark: SparkSession, is_new: bool) -> None:
    """Whichever version it is, it works on."""
    shop.order(("cy", 70), ("eve", 3))
    if not is_new:
        shop.edit()
    shop.run_once(spark)
    assert check_by_name(shop) is is_new


def command(shop: Shop, *more: str, fault: str = "") -> subprocess.CompletedProcess[str]:
    """`strandline pipeline rebuild`, with a Spark of its own."""
    words = [sys.executable, "-m", "strandline", "pipeline", "rebuild", shop.name, "--bootstrap", shop.bootstrap]
    words += ["--checkpoints", str(shop.home / "checkpoints"), "--master", "local[2]", "--yes", *more]
    environ = {**os.environ, fault_points.VARIABLE: fault}
    return subprocess.run(words, cwd=shop.home, env=environ, text=True, capture_output=True, timeout=TIMEOUT_S)


@pytest.mark.slow
@pytest.mark.parametrize("point", [each for each in POINTS if each not in WAY_BACK])
@pytest.mark.parametrize("wish", [Wish.REBUILD, Wish.ROLL_BACK])
def test_after_a_failure_it_goes_on_or_is_undone(
    point: str, wish: Wish, spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = ready(spark, broker, tmp_path)
    monkeypatch.setenv(fault_points.VARIABLE, f"{point}:fail:{tmp_path / 'fault'}")
    with pytest.raises(PlantedFault):
        shop.rebuild(lambda: spark)
    assert check_by_name(shop) is (point == "switch-made")
    shop.rebuild(lambda: spark, wish)
    (check_new if wish is Wish.REBUILD else check_old)(shop)
    goes_on(shop, spark, wish is Wish.REBUILD)


@pytest.mark.slow
@pytest.mark.parametrize("point", [each for each in POINTS if each not in ("rebuild-begun", "remove-done")])
def test_the_way_back_goes_on_after_a_failure(
    point: str, spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = ready(spark, broker, tmp_path)
    shop.rebuild(lambda: spark)
    shop.order(("ana", 1), ("fay", 400))
    monkeypatch.setenv(fault_points.VARIABLE, f"{point}:fail:{tmp_path / 'fault'}")
    with pytest.raises(PlantedFault):
        shop.rebuild(lambda: spark, Wish.ROLL_BACK)
    shop.rebuild(lambda: spark, Wish.ROLL_BACK)
    check_old(shop)
    goes_on(shop, spark, is_new=False)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["remove-begun", "remove-half", "remove-done"])
def test_a_finish_goes_on_after_a_failure(
    point: str, spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = ready(spark, broker, tmp_path)
    shop.rebuild(lambda: spark)
    monkeypatch.setenv(fault_points.VARIABLE, f"{point}:fail:{tmp_path / 'fault'}")
    with pytest.raises(PlantedFault):
        shop.rebuild(lambda: spark, Wish.FINISH)
    shop.rebuild(lambda: spark, Wish.FINISH)
    check_new(shop)
    assert topics_of(shop) == {"-orders", "-large", "-large.v2", "-totals"}
    goes_on(shop, spark, is_new=True)


@pytest.mark.slow
@pytest.mark.parametrize("point", [each for each in POINTS if each not in WAY_BACK])
def test_a_command_that_is_killed_is_said_again(
    point: str, spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """The whole command with `kill -9`; every second time it is undone instead."""
    shop = ready(spark, broker, tmp_path)
    killed = command(shop, fault=f"{point}:kill:{tmp_path / 'fault'}")
    assert killed.returncode == -9, killed.stderr
    assert check_by_name(shop) is (point == "switch-made")
    goes_back = POINTS.index(point) % 2 == 1
    ended = command(shop, *(["--rollback"] if goes_back else []))
    assert ended.returncode == 0, ended.stderr
    (check_old if goes_back else check_new)(shop)
    goes_on(shop, spark, is_new=not goes_back)


@pytest.mark.slow
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
