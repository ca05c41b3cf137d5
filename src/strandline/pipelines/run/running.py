"""Runs one version of a pipeline: claims it, plans its queries, watches them, and says in the registry how far it is.

    runner = Runner(pipeline, registry, RunOptions(checkpoints))
    runner.rehearse(spark)          frames; refuses what only Spark knows; creates nothing
    runner.claim()                  no other process runs it; the topics are there
    runner.plan(spark)              frames, and what the registry keeps of them
    runner.run(stop)                until `stop` is set, the registry asks for it, or with `once` all is done

`rehearse`, for the version of `choose_version`, may be left out: `plan` refuses the same, later.

A process that is killed leaves a heartbeat that grows old, after which another may begin. Should the first still be
alive, the sink decides: of two drivers one commits a batch, and the other fails.
"""

from __future__ import annotations

import contextlib
import os
import platform
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from strandline.client.failures import ClientFailed
from strandline.pipelines.changes.change_review import is_same_text, review
from strandline.pipelines.changes.file_changes import lines_of, needing_rebuild, noted, refusal_of
from strandline.pipelines.failures import PipelineRefused
from strandline.pipelines.language import graph
from strandline.pipelines.language.model import Pipeline, dead_letters_name
from strandline.pipelines.run import compiling, first_offsets, outputs, queries
from strandline.pipelines.run.checkpoint_files import LocalCheckpoint
from strandline.pipelines.run.multi_topic_commit import silence
from strandline.pipelines.run.preflight import of_others, refuse_lost
from strandline.pipelines.run.progress import RunProgress
from strandline.pipelines.run.run_end import Ended, Outcome, command_id_of, end_if_asked
from strandline.pipelines.run.run_record import RunRecord, now_ms
from strandline.pipelines.run.sink_promise import tell_if_weaker
from strandline.pipelines.versions.state import (
    FAILED,
    RUNNING,
    STOPPED,
    DatasetState,
    PipelineState,
    QueryProgress,
    RunState,
    VersionState,
    checkpoint_of,
    pinned,
)
from strandline.pipelines.versions.version_files import digest_of, with_file
from strandline.pipelines.versions.version_handle import OwnVersion, datasets_of
from strandline.pipelines.versions.version_lease import Claim, claimed
from strandline.pipelines.versions.version_store import Registry
from strandline.spark.display import Display
from strandline.spark.error_translation import SparkFailed, in_a_sentence, plainly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from strandline.pipelines.run.compiling import CompiledQuery

LOOK_S: Final = 0.25

__all__ = ["Outcome", "RunOptions", "Runner"]


@dataclass(frozen=True)
class RunOptions:
    checkpoints: str
    version: int | None = None
    """None: the one that the name means."""
    once: bool = False
    every: str = queries.EVERY_DEFAULT
    takeover: bool = False
    makes_sources: bool = False
    """Topics of sources that are not there are made."""
    source_options: Mapping[str, str] | None = None
    """For all queries: maxOffsetsPerTrigger ..."""
    recovers: bool = False
    """Lost checkpoints are rebuilt from the log."""
    rebuilds: bool = False
    """Set by the process that carries a rebuild out: it alone may run a version in the middle of a switch."""
    accepts: bool = False
    """The user wants it to go on where the file does not go with what was written or kept."""
    log_home: Path | None = None
    """The directory under which the run logs; None: it keeps no log."""


def nothing(words: str) -> None:
    """Ignore what a run says."""


class Runner:
    def __init__(
        self,
        pipeline: Pipeline,
        registry: Registry,
        options: RunOptions,
        *,
        owner: str | None = None,
        tell: Callable[[str], None] = nothing,
    ) -> None:
        self.pipeline = pipeline
        self.registry = registry
        self.options = options
        self.owner = owner or uuid.uuid4().hex
        self.tell = tell
        self.display = Display()
        self.version = 0
        self.checkpoints = options.checkpoints
        self.wiring = compiling.Wiring(registry.bootstrap)
        self.compiled: list[CompiledQuery] = []
        self.running: dict[str, StreamingQuery] = {}
        """By dataset."""
        self._spark: SparkSession | None = None
        self._record: RunRecord | None = None
        self._followed: RunProgress | None = None
        self._known_command: str | None = None
        self._restarts: dict[str, int] = {}
        self._accepted: frozenset[str] = frozenset()
        """Datasets that are noted as they are now when they have had a batch."""
        self._planned: dict[str, DatasetState] = {}

    # Before Spark is there

    def choose_version(self) -> bool:
        """Choose the version that the name means, and return whether the registry knows it."""
        state = self.registry.refresh().pipeline(self.pipeline.name)
        self.version = self.options.version or (1 if state is None else state.active)
        return state is not None and self.version in state.versions

    def claim(self) -> None:
        """Become the one that runs this version, and see to its topics; PipelineRefused if that cannot be."""
        self.lease()
        self.make_topics()

    def lease(self) -> None:
        """Become the one that runs this version."""
        self._known_command = command_id_of(self.registry.refresh(), self.pipeline.name)
        # Before anything is made or started for a name that is only mistyped.
        graph.check_inputs(self.pipeline, of_others(self.registry.known_datasets(), self.pipeline.name))
        runs: list[RunState] = []

        def change(entries: Mapping[str, dict[str, Any]]) -> Mapping[str, str | None]:
            run, changes = claimed(self._claim(), entries)
            runs.append(run)
            return changes

        self.registry.change_entries(change)
        self.version = runs[-1].version
        self._record = RunRecord(self.registry, runs[-1], self.progress)

    def make_topics(self) -> None:
        """Make the topics that are missing."""
        known = self.registry.known_datasets()
        wanted = outputs.wanted_topics(self.pipeline, self.version, self._topics(), known)
        made = outputs.make_topics(
            self.registry.bootstrap, self.pipeline, wanted, makes_sources=self.options.makes_sources
        )
        if made:
            self.tell(f"created {', '.join(made)}")
        tell_if_weaker(self.registry.bootstrap, self.tell)

    def _claim(self) -> Claim:
        return Claim(
            self.pipeline,
            self.owner,
            os.getpid(),
            platform.node(),
            now_ms(),
            self.options.checkpoints,
            self.options.version,
            self.options.once,
            self.options.takeover,
            self.options.rebuilds,
            self.options.log_home,
        )

    @property
    def log_path(self) -> Path | None:
        """Return the log that the run's record names."""
        return Path(self._record.state.log) if self._record is not None and self._record.state.log else None

    @property
    def own(self) -> OwnVersion:
        """Return what the registry says of the version that is run."""
        return OwnVersion(self.registry, self.pipeline.name, self.version)

    @property
    def _known(self) -> VersionState:
        """Return what the registry says of the version, which may not have been claimed yet."""
        state = self.registry.pipeline(self.pipeline.name)
        return (None if state is None else state.versions.get(self.version)) or VersionState(self.version)

    def _topics(self) -> dict[str, str]:
        state = self.registry.pipeline(self.pipeline.name) or PipelineState(self.pipeline.name)
        return outputs.topics_of(self.pipeline, self.version, self._known, is_active=state.active == self.version)

    def give_up(self, reason: str | None) -> None:
        """Record that the run ends before its queries began."""
        if self._record is not None:
            self._record.end(FAILED if reason else STOPPED, reason)

    # With Spark

    def rehearse(self, spark: SparkSession) -> None:
        """Make the frames before anything is created, so that what Spark refuses leaves nothing behind."""
        self._spark = spark
        queries.use(spark)
        self._compile(spark, self._known)

    def plan(self, spark: SparkSession) -> None:
        """Make the frames, note in the registry what they are, and see to lost checkpoints."""
        self._spark = spark
        queries.use(spark)
        self._settle_starts()
        self._compile(spark, self.own.state)
        # Before the first batch: what writes rows is known to all, and its checkpoint is missed when it is gone.
        self._note_plan()
        lost = self.lost_checkpoints()
        if not self.options.recovers:
            refuse_lost(list(lost), self.checkpoints)
        elif lost:
            self._recover(lost)

    def _compile(self, spark: SparkSession, version: VersionState) -> None:
        """Make the frames, unless they are there and would be the same; refuse a change that needs a rebuild."""
        wiring = compiling.Wiring(
            self.registry.bootstrap,
            write_topics=self._topics(),
            known=of_others(pinned(self.registry.known_datasets(), version), self.pipeline.name),
            suffix=outputs.suffix_of(self.version),
            options=self.options.source_options or {},
            sources=first_offsets.beginning_there(self.registry.bootstrap, self.pipeline, version.starts),
        )
        if self.compiled and wiring == self.wiring:
            return
        self.wiring = wiring
        self.compiled = compiling.compile(spark, self.pipeline, wiring)
        is_reviewed = bool(self._planned)
        self._planned = datasets_of(self.pipeline, self.compiled)
        if not is_reviewed:
            self._accepted = self._accepted_changes(spark, version)

    def _settle_starts(self) -> None:
        """Note where queries begin that never ran, before anything is read."""
        version = self.own.state
        ran = {name for name, each in version.datasets.items() if each.query_id is not None}
        starts = first_offsets.settled(
            self.registry.bootstrap, self.pipeline, version, lambda name: name in ran or self._has_checkpoint(name)
        )

        def settled(told: VersionState) -> VersionState:
            # What another process noted meanwhile counts: it may have begun there.
            merged = {query: {**each, **told.starts.get(query, {})} for query, each in starts.items()}
            return replace(told, starts={**told.starts, **merged})

        self.own.change(settled)

    def _accepted_changes(self, spark: SparkSession, before: VersionState) -> frozenset[str]:
        """Tell what the file means for each dataset; PipelineRefused if one needs a rebuild that is not accepted."""
        found = review(spark, self.pipeline, self.wiring, before, self._planned)
        for line in lines_of(found, is_same_text=is_same_text(before, self.pipeline)):
            self.tell(line)
        needing = needing_rebuild(found)
        if needing and not (self.options.accepts or self.options.rebuilds):
            raise PipelineRefused(refusal_of(needing, self.pipeline.name))
        return frozenset(each.dataset for each in needing)

    def _note_plan(self) -> None:
        def changed(version: VersionState) -> VersionState:
            # A version that runs from a copy of its file keeps the place of the file itself. What is accepted may still
            # be refused by Spark; until there is a batch of it the version is what it was, and can be gone back to.
            if not self._accepted and version.digest != digest_of(Path(self.pipeline.file).read_bytes()):
                version = with_file(version, self.pipeline.file)
            return noted(version, self._planned, waiting=self._accepted)

        self.own.change(changed)

    def lost_checkpoints(self) -> dict[str, DatasetState]:
        """Datasets that have run, and have no checkpoint any more."""
        assert self._spark is not None
        return {
            name: each
            for name, each in self.own.state.datasets.items()
            if each.query_id is not None and not self._has_checkpoint(name)
        }

    def _has_checkpoint(self, dataset: str) -> bool:
        assert self._spark is not None
        local = LocalCheckpoint.of(self.checkpoint(dataset))
        # One that --recover was making when it was interrupted is none.
        is_half_made = local is not None and local.is_half_made
        return not is_half_made and queries.checkpoint_exists(self._spark, self.checkpoint(dataset))

    def checkpoint(self, dataset: str) -> str:
        return checkpoint_of(self.checkpoints, self.pipeline.name, self.version, dataset)

    def _recover(self, lost: Mapping[str, DatasetState]) -> None:
        from strandline.pipelines.run.recovery import Recovery

        assert self._spark is not None
        recovery = Recovery(
            self._spark,
            self.pipeline,
            self.wiring,
            self.compiled,
            lambda name, query_id: self.own.note_ids({name: query_id}),
            self.tell,
        )
        recovery.recover(lost, self.checkpoint)

    # Running

    def run(self, stop: threading.Event) -> Outcome:
        """Run until `stop` is set, a command ends it, or with `once` all is done; PipelineRefused if a query fails."""
        assert self._record is not None, "it is claimed first"
        assert self._spark is not None, "it is planned first"
        queries.use(self._spark)
        self._followed = RunProgress(self.display, self._record.state.queries)
        self._spark.streams.addListener(self._followed)
        try:
            self._record.say(RUNNING)
            outcome = self._until_the_end(stop)
            self._spark.streams.removeListener(self._followed)
        except BaseException as error:
            # What ended the run may be the end of Java, and a Java that is gone stops no query. That must not keep
            # anybody from being told.
            with contextlib.suppress(SparkFailed), plainly():
                self._stop_all(within_s=0.0)
                self._spark.streams.removeListener(self._followed)
            self._record.end(FAILED, in_a_sentence(error))
            raise
        finally:
            self.display.close(self._followed.views)
        self._record.end(STOPPED)
        return outcome

    def progress(self) -> dict[str, QueryProgress]:
        """Return how far each dataset is, over all runs of the version."""
        return {} if self._followed is None else self._followed.progress()

    def _until_the_end(self, stop: threading.Event) -> Outcome:
        try:
            self._run_once(stop) if self.options.once else self._run_on(stop)
        except Ended as ended:
            self._let_go()
            return ended.outcome
        return Outcome.DONE

    def _run_on(self, stop: threading.Event) -> NoReturn:
        for level in queries.staggered(self.compiled, self._letters):
            self._start(level, stop)
            until = time.monotonic() + queries.FIRST_BATCH_S
            while time.monotonic() < until and not self._has_begun(level):
                self._end_if_asked(stop)
                stop.wait(LOOK_S)
                self._look()
        while True:
            self._end_if_asked(stop)
            self._look()
            stop.wait(LOOK_S)

    @property
    def _letters(self) -> set[str]:
        return {dead_letters_name(each) for each in self.pipeline.sources}

    def _has_begun(self, level: list[CompiledQuery]) -> bool:
        """Return whether each had its first batch, or has nothing to read."""
        assert self._followed is not None
        ran = self._followed.ran()
        return all(each.name in ran or queries.waits(self.running[each.name]) for each in level)

    def _run_once(self, stop: threading.Event) -> None:
        for level in queries.levels(self.compiled):
            self._start(level, stop)
            self._look()
            while any(self.running[each.name].isActive for each in level):
                self._end_if_asked(stop)
                stop.wait(LOOK_S)
                self._look()
            # Spark's report of the last batch may still be under way when a query has ended.
            self._look()
            # Those of the next level read up to what can be read when they begin, and users look when all is done.
            silence(self.registry.bootstrap, [str(self.running[each.name].id) for each in level])

    def _start(self, level: list[CompiledQuery], stop: threading.Event) -> None:
        for each in level:
            self._end_if_asked(stop)
            self._start_one(each, beside=queries.STARTS_AT_ONCE - 1)
            # At once, while it starts: should it write a batch and lose its checkpoint, this is what tells of it.
            self.own.note_ids({each.name: str(self.running[each.name].id)})

    def _start_one(self, compiled: CompiledQuery, *, beside: int) -> None:
        """Start a query when no more than `beside` others are starting."""
        assert self._followed is not None
        while sum(queries.is_starting(query) for query in self.running.values()) > beside:
            time.sleep(queries.LOOK_S)
        query = queries.start(
            compiled,
            self.pipeline.name,
            self.version,
            bootstrap=self.registry.bootstrap,
            checkpoints=self.checkpoints,
            once=self.options.once,
            every=self.options.every,
        )
        self.running[compiled.name] = query
        self._followed.follow(query, compiled.name)

    def _look(self) -> None:
        """Raise what a query failed with; one whose start was only too slow is started again."""
        assert self._followed is not None
        self._followed.look()
        for compiled in self.compiled:
            name, query = compiled.name, self.running.get(compiled.name)
            failure = None if query is None else queries.failure_of(query, name, self.pipeline.name)
            if query is None or failure is None:
                continue
            self._restarts[name] = self._restarts.get(name, 0) + 1
            if not queries.may_restart(query) or self._restarts[name] > queries.RESTARTS_MAX:
                raise failure
            self.tell(f"{name}: a Python process of Spark's did not come up within ten seconds; once more")
            self._start_one(compiled, beside=0)
        if self._accepted and self._followed.ran() >= self._accepted:
            self._accepted = frozenset()
            self._note_plan()

    def _end_if_asked(self, stop: threading.Event) -> None:
        assert self._record is not None
        end_if_asked(
            self.registry,
            self._record,
            stop,
            known_command=self._known_command,
            rebuilds=self.options.rebuilds,
        )

    def _stop_all(self, *, within_s: float = queries.BOUNDARY_S) -> list[str]:
        """Stop all queries, and return the ids of those that were in the middle of a batch."""
        until = time.monotonic() + within_s
        cut = [
            str(query.id)
            for query in self.running.values()
            if queries.stop(query, within_s=max(0.0, until - time.monotonic()))
        ]
        if self._followed is not None:
            self._followed.look()
        return cut

    def _let_go(self) -> None:
        """Stop, and leave nothing open that readers would wait for until its time is over."""
        cut = self._stop_all()
        try:
            silence(self.registry.bootstrap, cut)
        except ClientFailed as failure:
            self.tell(f"readers may wait for a batch that was cut off, until the next run ({failure})")
