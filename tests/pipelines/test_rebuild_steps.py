"""The steps of a rebuild with a fault at each, on a broker, with a few lines of Python in the place of Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.pipelines import rebuild_chains as chains
from tests.pipelines.plain_shop import PlainShop
from tests.pipelines.rebuild_chains import check_by_name, goes_on, killed_at, made_ready, no_spark, planned

from strandline.pipelines import fault_points
from strandline.pipelines.fault_points import PlantedFault
from strandline.pipelines.rebuild_phases import Wish
from strandline.testing.embedded_broker import EmbeddedBroker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def shop(broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlainShop:
    shop = PlainShop(broker, tmp_path, monkeypatch)
    made_ready(shop, shop.run_active)
    return shop


def test_a_rebuild_that_fails_at_every_point_goes_on_each_time(
    shop: PlainShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    chains.rebuild_that_fails_at_every_point(shop, no_spark, monkeypatch)
    goes_on(shop, shop.run_active, is_new=True)


def test_a_rebuild_that_failed_at_any_point_is_undone(shop: PlainShop, monkeypatch: pytest.MonkeyPatch) -> None:
    chains.rebuild_that_is_undone(shop, no_spark, monkeypatch)
    goes_on(shop, shop.run_active, is_new=False)


def test_a_way_back_that_fails_at_every_point_goes_on_each_time(
    shop: PlainShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    chains.way_back_that_fails_at_every_point(shop, no_spark, monkeypatch)
    goes_on(shop, shop.run_active, is_new=False)


def test_a_finish_that_fails_at_every_point_goes_on_each_time(shop: PlainShop, monkeypatch: pytest.MonkeyPatch) -> None:
    chains.finish_that_fails_at_every_point(shop, no_spark, monkeypatch)
    goes_on(shop, shop.run_active, is_new=True)


def fails_at(shop: PlainShop, point: str, wish: Wish, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to a point in this process, where no Spark is needed to run a version."""
    with monkeypatch.context() as context:
        context.setenv(fault_points.VARIABLE, planned([point], shop.home))
        with pytest.raises(PlantedFault, match=f"at {point}$"):
            shop.rebuild(no_spark, wish)


def test_the_command_is_killed_wherever_it_needs_no_spark(shop: PlainShop, monkeypatch: pytest.MonkeyPatch) -> None:
    """`kill -9` of the whole command, there and back, at all points but the four at which Spark has just run."""
    there, back = Wish.REBUILD, Wish.ROLL_BACK
    decided = chains.THERE[chains.THERE.index("switch-ends-noted") + 1 :]
    for _ in killed_at(shop, ["rebuild-begun", "rebuild-topics-made"]):
        assert not check_by_name(shop)
    fails_at(shop, "switch-letting-go", there, monkeypatch)
    for _ in killed_at(shop, ["switch-let-go"]):
        assert not check_by_name(shop)
    fails_at(shop, "switch-ends-noted", there, monkeypatch)
    for point in killed_at(shop, decided):
        assert check_by_name(shop) is (point == "switch-made"), point
    assert chains.command(shop).returncode == 0
    chains.check_new(shop)

    for each in chains.THERE:
        (shop.home / each).unlink(missing_ok=True)
    for _ in killed_at(shop, ["return-begun", "rebuild-topics-made"], "--rollback"):
        assert check_by_name(shop)
    fails_at(shop, "switch-letting-go", back, monkeypatch)
    for _ in killed_at(shop, ["switch-let-go"], "--rollback"):
        assert check_by_name(shop)
    fails_at(shop, "switch-ends-noted", back, monkeypatch)
    for point in killed_at(shop, [*decided, *chains.REMOVING], "--rollback"):
        assert check_by_name(shop) is (point in decided[:-1]), point
    assert chains.command(shop, "--rollback").returncode == 0
    chains.check_old(shop)
    goes_on(shop, shop.run_active, is_new=False)
