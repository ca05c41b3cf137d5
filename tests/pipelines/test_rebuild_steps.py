"""The steps of a rebuild with a fault at each, on a broker, with a few lines of Python in the place of Spark."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tests.pipelines import rebuild_chains as chains
from tests.pipelines.rebuild_chains import check_by_name, goes_on, killed_at, large, made_ready, no_spark, planned
from tests.pipelines.rebuild_ground import put_rows, table_of
from tests.pipelines.shop_ground import Shop, stock_totals

from strandline.pipelines import fault_points
from strandline.pipelines.fault_points import PlantedFault, fault_point
from strandline.pipelines.loading import load
from strandline.pipelines.model import Pipeline
from strandline.pipelines.outputs import planned_datasets, topics_of
from strandline.pipelines.rebuild_phases import Wish
from strandline.pipelines.rebuilding import Rebuilding
from strandline.pipelines.running import Runner, RunOptions
from strandline.pipelines.state import PipelineState
from strandline.pipelines.version_files import with_file
from strandline.testing.embedded_broker import EmbeddedBroker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SCHEMAS = {"totals": "customer STRING, total BIGINT", "large": "customer STRING, amount BIGINT"}


class PlainShop(Shop):
    """A run of a version reads all orders, and writes what its topics do not have yet."""

    def __init__(self, broker: EmbeddedBroker, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(broker, home, with_stream=True)

        def run(rebuilding: Rebuilding, pipeline: Pipeline, _: PipelineState, number: int) -> None:
            self.run_version(pipeline, number, owner=rebuilding._owned.owner)

        monkeypatch.setattr(Rebuilding, "_run", run)

    def run_active(self) -> None:
        state = self.registry.refresh().pipeline(self.name)
        self.run_version(load(self.file), 1 if state is None else state.active)

    def run_version(self, pipeline: Pipeline, number: int, *, owner: str | None = None) -> None:
        options = RunOptions(
            str(self.home / "checkpoints"), version=number, once=True, takeover=True, rebuilds=owner is not None
        )
        runner = Runner(pipeline, self.registry, options, owner=owner)
        try:
            runner.claim()
            fault_point("rebuild-topics-made")
            topics = self._noted(pipeline, number)
            self._write(topics["totals"], topics["large"], is_new="amount > 10" in Path(pipeline.file).read_text())
        finally:
            runner.give_up(None)

    def _noted(self, pipeline: Pipeline, number: int) -> dict[str, str]:
        """As a run does when Spark has told what the frames are: by dataset, where it writes."""
        told = self.registry.refresh().pipeline(self.name)
        assert told is not None
        version = told.versions[number]
        topics = topics_of(pipeline, number, version, is_active=told.active == number)
        datasets = {
            name: replace(each, topic=topics[name], schema=SCHEMAS[name])
            for name, each in planned_datasets(pipeline, number).items()
        }
        version = replace(version if version.text else with_file(version, pipeline.file), datasets=datasets)

        def noted(state: PipelineState | None) -> PipelineState:
            assert state is not None
            return replace(state, versions={**state.versions, number: version})

        self.registry.change(self.name, noted)
        return topics

    def _write(self, table: str, stream: str, *, is_new: bool) -> None:
        totals = self.expected(large) if is_new else self.expected()
        there = stock_totals(table_of(self.bootstrap, table))
        rows = {key: json.dumps({"total": total}) for key, total in totals.items() if there.get(key) != total}
        if rows:
            put_rows(self.bootstrap, table, rows)
        wanted = Counter(each for each in self.orders if each[1] >= (10 if is_new else 100))
        missing = wanted - Counter(self.rows_of(stream))
        lines = [json.dumps({"customer": customer, "amount": amount}) for customer, amount in missing.elements()]
        if lines:
            put_rows(self.bootstrap, stream, {str(uuid.uuid4()): line for line in lines})


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
    """`kill -9` of the whole command, there and back, at all points but the three at which Spark has just run."""
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
