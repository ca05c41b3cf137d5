"""What the registry says of the version that a process runs: read, and changed as its queries come to be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from strandline.pipelines.changes import plan_reading
from strandline.pipelines.failures import PipelineRefused
from strandline.pipelines.language.model import Pipeline
from strandline.pipelines.run import outputs, queries
from strandline.pipelines.versions.state import DatasetState, PipelineState, VersionState
from strandline.pipelines.versions.version_store import Registry

if TYPE_CHECKING:
    from strandline.pipelines.run.compiling import CompiledQuery


@dataclass(frozen=True)
class OwnVersion:
    registry: Registry
    pipeline: str
    number: int

    @property
    def state(self) -> VersionState:
        return self._of(self.registry.pipeline(self.pipeline))

    @property
    def is_active(self) -> bool:
        state = self.registry.pipeline(self.pipeline)
        return state is not None and state.active == self.number

    def change(self, change: Callable[[VersionState], VersionState]) -> None:
        """Change what is known of the version, if that makes a difference."""

        def changed(state: PipelineState | None) -> PipelineState:
            version = change(self._of(state))
            assert state is not None
            return replace(state, versions={**state.versions, self.number: version})

        before = self.registry.pipeline(self.pipeline)
        if changed(before) != before:
            self.registry.change(self.pipeline, changed)

    def note_ids(self, ids: Mapping[str, str]) -> None:
        """Note the ids of queries. Each is the id of the query's sink, and a lost checkpoint is rebuilt by it."""

        def noted(version: VersionState) -> VersionState:
            datasets = {
                name: replace(each, query_id=ids.get(name, each.query_id)) for name, each in version.datasets.items()
            }
            return replace(version, datasets=datasets)

        self.change(noted)

    def _of(self, state: PipelineState | None) -> VersionState:
        if state is None or self.number not in state.versions:
            raise PipelineRefused(
                f"version {self.number} of {self.pipeline} was removed while it ran: a rebuild was finished or rolled "
                "back; start the pipeline again"
            )
        return state.versions[self.number]


def datasets_of(pipeline: Pipeline, compiled: list[CompiledQuery]) -> dict[str, DatasetState]:
    """What is to be known of the queries of a pipeline, but for their ids."""
    public, made_with = outputs.public_topics_of(pipeline), plan_reading.made_with()
    forms = {each.name: plan_reading.form_of_query(each, pipeline) for each in compiled}
    return {
        each.name: DatasetState(
            each.name,
            each.kind,
            each.default_topic,
            public[each.name],
            each.schema,
            each.key,
            each.output_mode,
            each.reads,
            queries.stateful_operators(each.frame),
            streams=each.streams,
            form=forms[each.name].state,
            plan=forms[each.name].digest,
            form_made_with=made_with,
            schemas=each.schemas,
            reader_schema=each.reader_schema,
        )
        for each in compiled
    }
