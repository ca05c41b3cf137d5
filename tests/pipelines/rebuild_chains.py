"""A rebuild that fails at every point that has a name, one after the other: what is done, and what must hold each time.

A shop whose versions Spark runs goes through this, and one whose versions are run by a few lines of Python.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipelines.rebuild_ground import table_of
from tests.pipelines.shop_ground import Shop, stock_totals

from strandline.pipelines.rebuild.phases import Wish
from strandline.pipelines.rebuild.topic_copies import living_topics
from strandline.pipelines.run.local_node import admin_of
from strandline.runtime import fault_points
from strandline.runtime.fault_points import REBUILD_POINTS, PlantedFault

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Spark = Callable[[], SparkSession]

ORDERS = [("ana", 50), ("bo", 150), ("cy", 5), ("dan", 8)]
BUILDING, UNDECIDED, DECIDED = REBUILD_POINTS[:6], REBUILD_POINTS[6:11], REBUILD_POINTS[11:15]
"""The points of a rebuild, by what a rollback has to undo: a version that nobody reads, a switch that was prepared, and
one that was decided."""
THERE = (*BUILDING, *UNDECIDED, *DECIDED)
REMOVING = ("remove-begun", "remove-half", "remove-done")
BACK = ("return-begun", *THERE[1:], *REMOVING)
COMMAND_S_MAX = 600.0


def large(amount: int) -> bool:
    """What the new version counts."""
    return amount > 10


def no_spark() -> SparkSession:
    pytest.fail("nothing is left that needs Spark")


def made_ready(shop: Shop, run_once: Callable[[], None]) -> None:
    """Version 1 has run, and its file is edited."""
    shop.edit()
    shop.order(*ORDERS)
    run_once()
    shop.edit(which="amount > 10", large=10)


# What must hold


def topics_of(shop: Shop) -> set[str]:
    return {
        each.removeprefix(shop.name) for each in living_topics(admin_of(shop.bootstrap)) if each.startswith(shop.name)
    }


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
    assert topics_of(shop) == {"-orders", "-large", "-totals"}, topics_of(shop)


def goes_on(shop: Shop, run_once: Callable[[], None], *, is_new: bool) -> None:
    """Whichever version it is, it works on."""
    shop.order(("cy", 70), ("eve", 3))
    if not is_new:
        shop.edit()
    run_once()
    assert check_by_name(shop) is is_new


# What is done


def planned(points: Sequence[str], home: Path, action: str = "fail") -> str:
    """Each of these points does it the first time that somebody comes there, and never again."""
    return ",".join(f"{point}:{action}:{home / point}" for point in points)


def rebuild_that_fails_at_every_point(shop: Shop, spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(fault_points.VARIABLE, planned(THERE, shop.home))
    for point in THERE:
        with pytest.raises(PlantedFault, match=f"at {point}$"):
            shop.rebuild(spark)
        assert check_by_name(shop) is (point == "switch-made"), point
    shop.rebuild(no_spark)
    check_new(shop)


def rebuild_that_is_undone(
    shop: Shop, spark: Spark, monkeypatch: pytest.MonkeyPatch, points: Sequence[str] = THERE
) -> None:
    for point in points:
        monkeypatch.setenv(fault_points.VARIABLE, planned([point], shop.home))
        with pytest.raises(PlantedFault):
            shop.rebuild(spark)
        assert check_by_name(shop) is (point == "switch-made"), point
        shop.rebuild(spark, Wish.ROLL_BACK)
        check_old(shop)


def way_back_that_fails_at_every_point(shop: Shop, spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.rebuild(spark)
    new = shop.expected(large)
    # Nobody runs the new version any more; the old one reads this on its way.
    shop.order(("ana", 1), ("fay", 400))
    monkeypatch.setenv(fault_points.VARIABLE, planned(BACK, shop.home))
    for point in BACK:
        with pytest.raises(PlantedFault, match=f"at {point}$"):
            shop.rebuild(spark, Wish.ROLL_BACK)
        is_back = BACK.index(point) >= BACK.index("switch-made")
        with shop.desk() as desk:
            assert shop.totals(desk) == (shop.expected() if is_back else new), point
    shop.rebuild(no_spark, Wish.ROLL_BACK)
    check_old(shop)


def finish_that_fails_at_every_point(shop: Shop, spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.rebuild(spark)
    monkeypatch.setenv(fault_points.VARIABLE, planned(REMOVING, shop.home))
    for point in REMOVING:
        with pytest.raises(PlantedFault, match=f"at {point}$"):
            shop.rebuild(no_spark, Wish.FINISH)
        check_new(shop)
    shop.rebuild(no_spark, Wish.FINISH)
    check_new(shop)
    assert topics_of(shop) == {"-orders", "-large", "-large.v2", "-totals"}


# The whole command, as a process


def command(shop: Shop, *more: str, fault: str = "", removes: bool = True) -> subprocess.CompletedProcess[str]:
    """`strandline pipeline rebuild`, with a Spark of its own."""
    words = [sys.executable, "-m", "strandline", "pipeline", "rebuild", shop.name, "--bootstrap", shop.bootstrap]
    words += ["--checkpoints", str(shop.home / "checkpoints"), "--master", "local[2]"]
    words += ["--yes", *(["--remove-rows"] if removes else []), *more]
    environ = {**os.environ, fault_points.VARIABLE: fault}
    return subprocess.run(words, cwd=shop.home, env=environ, text=True, capture_output=True, timeout=COMMAND_S_MAX)


def killed_at(shop: Shop, points: Sequence[str], *more: str) -> Iterator[str]:
    """The command, said as often as there are points, and killed at each in turn."""
    faults = planned(points, shop.home, "kill")
    for number, point in enumerate(points, 1):
        ended = command(shop, *more, fault=faults)
        assert ended.returncode == -9, f"{point}: {ended.stderr}"
        assert [each for each in points if (shop.home / each).exists()] == list(points[:number])
        yield point
