"""A shop whose versions are run by a few lines of Python in the place of Spark; all else of a rebuild is as it is."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tests.pipelines.rebuild_chains import large
from tests.pipelines.rebuild_ground import put_rows, table_of
from tests.pipelines.shop_ground import HasTopics, Shop, stock_totals

from strandline.pipelines.language.loading import load
from strandline.pipelines.language.model import Pipeline
from strandline.pipelines.rebuild.rebuilding import Rebuilding
from strandline.pipelines.run.outputs import planned_datasets, topics_of
from strandline.pipelines.run.running import Runner, RunOptions
from strandline.pipelines.versions.state import PipelineState
from strandline.pipelines.versions.version_files import with_file
from strandline.runtime.fault_points import fault_point

SCHEMAS = {"totals": "customer STRING, total BIGINT", "large": "customer STRING, amount BIGINT"}


class PlainShop(Shop):
    """A run of a version reads all orders, and writes what its topics do not have yet."""

    def __init__(self, broker: HasTopics, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
