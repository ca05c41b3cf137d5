"""Runs one version of a pipeline: claims it, plans its queries, watches them, and says in the registry how far it is.

    runner = Runner(pipeline, spark, registry, RunOptions(checkpoints))
    runner.claim()                  nobody else runs it; the topics are there
    runner.plan()                   frames, and what the registry keeps of them
    runner.run(stop)                until `stop` is set, the registry asks for it, or with `once` all is done

A process that is killed leaves a heartbeat that grows old, after which another may begin. Should the first still be
alive, the sink decides: of two drivers one commits a batch, and the other fails.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from strandline.pipelines import compiling, outputs, queries
from strandline.pipelines.failures import PipelineRefused
from strandline.pipelines.model import Pipeline
from strandline.pipelines.progress import RunProgress
from strandline.pipelines.rebuild_phases import is_switching
from strandline.pipelines.registry import Registry, RegistryFailed
from strandline.pipelines.state import (
    FAILED,
    RUNNING,
    STOPPED,
    Command,
    DatasetState,
    PipelineState,
    QueryProgress,
    RunState,
    VersionState,
    checkpoint_of,
    text_of,
)
from strandline.spark.display import Display

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from strandline.pipelines.compiling import CompiledQuery

HEARTBEAT_S: Final = 3.0
LOOK_S: Final = 0.25
STOP: Final = "stop"
"""The verb of the command that ends a run."""


class Outcome(Enum):
    DONE = "done"
    """With `once`: everything that was there has been written."""
    STOPPED = "stopped"
    ASKED = "asked to stop"
    HANDED_OVER = "handed over"
    """A rebuild switches to another version; who ran this one runs that one when the switch is done."""


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
    """Checkpoints that are gone are made anew from the log."""


def nothing(words: str) -> None:
    """For who does not want to be told."""


class Runner:
    def __init__(
        self,
        pipeline: Pipeline,
        registry: Registry,
        options: RunOptions,
        *,
        owner: str | None = None,
        tell: Callable[[str], None] = nothing,
        display: Display | None = None,
    ) -> None:
        self.pipeline = pipeline
        self.registry = registry
        self.options = options
        self.owner = owner or uuid.uuid4().hex
        self.tell = tell
        self.version = 0
        self.checkpoints = options.checkpoints
        self.wiring = compiling.Wiring(registry.bootstrap)
        self.compiled: list[CompiledQuery] = []
        self.running: dict[str, StreamingQuery] = {}
        """By dataset."""
        self.display = display or Display()
        self._followed: RunProgress | None = None
        self._state: RunState | None = None
        self._known_command: str | None = None
        self._beats = threading.Event()
        """Set when there is nothing more to say."""
        self._saying = threading.Lock()
        self._spark: SparkSession | None = None

    # Before Spark is there

    def claim(self) -> None:
        """Become the one that runs this version, and see to its topics; PipelineRefused if that cannot be."""
        self.registry.refresh()
        told = self.registry.command(self.pipeline.name)
        self._known_command = None if told is None else told.id
        self.registry.change_entries(self._claimed)
        assert self._state is not None
        self._beats.clear()
        threading.Thread(target=self._beat, name="pipeline-heartbeat", daemon=True).start()
        known = self.registry.known_datasets()
        wanted = outputs.wanted_topics(self.pipeline, self.version, self._topics(), known)
        made = outputs.make_topics(
            self.registry.bootstrap, self.pipeline, wanted, makes_sources=self.options.makes_sources
        )
        if made:
            self.tell(f"created {', '.join(made)}")

    def _claimed(self, entries: Mapping[str, dict[str, Any]]) -> dict[str, str | None]:
        """What the registry shall say; made upon its newest state, and made again if another was quicker."""
        name = self.pipeline.name
        pipelines = {
            key.removeprefix("pipeline/"): PipelineState.from_json(each)
            for key, each in entries.items()
            if key.startswith("pipeline/")
        }
        state = pipelines.get(name, PipelineState(name))
        if is_switching(state.rebuild):
            raise PipelineRefused(
                f"{name} is being switched from one version to another, so nobody may run it now: complete that with "
                f"`strandline pipeline rebuild {name}`, or give it up with --rollback"
            )
        self.version = self.options.version or state.active
        self._check_writers(pipelines)
        now_ms = _now_ms()
        told = entries.get(f"run/{name}/{self.version}")
        before = RunState.from_json(told) if told is not None else None
        if before is not None and before.owner != self.owner and before.is_alive(now_ms) and not self.options.takeover:
            raise PipelineRefused(
                f"{name} runs already, as process {before.pid} on {before.host}: stop it with "
                f"`strandline pipeline stop {name}`, or take it over with --takeover"
            )
        version = state.versions.get(self.version) or VersionState(self.version, created_ms=now_ms)
        if version.checkpoints and version.checkpoints != self.options.checkpoints:
            version = self._moved(version)
        self.checkpoints = self.options.checkpoints
        version = replace(version, file=str(Path(self.pipeline.file).resolve()), checkpoints=self.checkpoints)
        self._state = RunState(
            name,
            self.version,
            self.owner,
            pid=os.getpid(),
            host=platform.node(),
            started_ms=now_ms,
            heartbeat_ms=now_ms,
            once=self.options.once,
            queries={} if before is None else before.queries,
        )
        state = replace(state, versions={**state.versions, self.version: version})
        return {f"pipeline/{name}": text_of(state), f"run/{name}/{self.version}": text_of(self._state)}

    def _moved(self, version: VersionState) -> VersionState:
        """The checkpoints were elsewhere. Where they still are, a query with another would write everything again."""
        here = [
            each
            for each in version.datasets
            if Path(checkpoint_of(self.options.checkpoints, self.pipeline.name, self.version, each)).exists()
        ]
        if not here and version.datasets and Path(version.checkpoints).is_dir():
            raise PipelineRefused(
                f"the checkpoints of {self.pipeline.name} are in {version.checkpoints}, not in "
                f"{self.options.checkpoints}: say --checkpoints {version.checkpoints}, or move them"
            )
        return version

    def _check_writers(self, pipelines: Mapping[str, PipelineState]) -> None:
        """Two pipelines must not write one topic."""
        ours = outputs.public_topics_of(self.pipeline)
        for other, state in sorted(pipelines.items()):
            if other == self.pipeline.name:
                continue
            theirs = {each.public_topic: name for v in state.versions.values() for name, each in v.datasets.items()}
            for name, topic in ours.items():
                if topic in theirs:
                    raise PipelineRefused(
                        f"the topic {topic} is written by {theirs[topic]} of the pipeline {other} already: give {name} "
                        "another topic, or one of the pipelines another name"
                    )

    def _topics(self) -> dict[str, str]:
        state = self.registry.pipeline(self.pipeline.name)
        assert state is not None
        told = state.versions.get(self.version)
        return outputs.topics_of(self.pipeline, self.version, told, is_active=state.active == self.version)

    # With Spark

    def plan(self, spark: SparkSession) -> None:
        """Make the frames, and note in the registry what they are."""
        self._spark = spark
        queries.use(spark)
        known = {
            name: each
            for name, each in self.registry.known_datasets().items()
            if name.partition(".")[0] != self.pipeline.name
        }
        self.wiring = compiling.Wiring(
            self.registry.bootstrap,
            write_topics=self._topics(),
            known=known,
            suffix=outputs.suffix_of(self.version),
            options=self.options.source_options or {},
        )
        self.compiled = compiling.compile(spark, self.pipeline, self.wiring)
        public = outputs.public_topics_of(self.pipeline)
        planned = {
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
            )
            for each in self.compiled
        }
        digest = hashlib.sha256(Path(self.pipeline.file).read_bytes()).hexdigest()

        def noted(state: PipelineState | None) -> PipelineState:
            version = self._own_version(state)
            assert state is not None
            datasets = {
                name: replace(each, query_id=version.datasets[name].query_id if name in version.datasets else None)
                for name, each in planned.items()
            }
            version = replace(version, datasets=datasets, digest=digest)
            return replace(state, versions={**state.versions, self.version: version})

        before = self.registry.pipeline(self.pipeline.name)
        version = None if before is None else before.versions.get(self.version)
        if version is not None and version.digest not in ("", digest):
            self.tell(
                f"the file has changed since the last run: what was written stays as it is, "
                f"`strandline pipeline rebuild {self.pipeline.name}` would write all of it anew"
            )
        if noted(before) != before:
            self.registry.change(self.pipeline.name, noted)
        self._check_checkpoints(spark)

    def _own_version(self, state: PipelineState | None) -> VersionState:
        if state is None or self.version not in state.versions:
            raise PipelineRefused(
                f"version {self.version} of {self.pipeline.name} was removed while it ran: a rebuild was finished or "
                "rolled back; start the pipeline again"
            )
        return state.versions[self.version]

    def _check_checkpoints(self, spark: SparkSession) -> None:
        """A query whose checkpoint is gone would begin anew and write everything a second time."""
        lost = self.lost_checkpoints(spark)
        if lost and not self.options.recovers:
            names = ", ".join(lost)
            raise PipelineRefused(
                f"the checkpoint of {names} is gone from {self.checkpoints}, and without it everything would be "
                "written a second time: put it back, or say --recover to make it anew from the log"
            )

    def lost_checkpoints(self, spark: SparkSession) -> dict[str, DatasetState]:
        """Datasets that have run, and have no checkpoint any more."""
        version = self._own_version(self.registry.pipeline(self.pipeline.name))
        return {
            name: each
            for name, each in version.datasets.items()
            if each.query_id is not None and not queries.checkpoint_exists(spark, self.checkpoint(name))
        }

    def checkpoint(self, dataset: str) -> str:
        return checkpoint_of(self.checkpoints, self.pipeline.name, self.version, dataset)

    # Running

    def run(self, stop: threading.Event) -> Outcome:
        """Until `stop` is set, somebody asks for it, or with `once` all is done; PipelineRefused if a query fails."""
        assert self._state is not None, "it is claimed first"
        assert self._spark is not None, "it is planned first"
        queries.use(self._spark)
        self._followed = RunProgress(self.display, self._state.queries)
        self._spark.streams.addListener(self._followed)
        try:
            with self._saying:
                self._say(RUNNING)
            outcome = self._run_once(stop) if self.options.once else self._run_on(stop)
        except BaseException as error:
            self._stop_all(within_s=0.0)
            self._end(FAILED, str(error) if isinstance(error, Exception) else "interrupted")
            raise
        finally:
            self._spark.streams.removeListener(self._followed)
            self.display.close(self._followed.views)
        self._end(STOPPED)
        return outcome

    def progress(self) -> dict[str, QueryProgress]:
        """By dataset, over all runs of the version."""
        return {} if self._followed is None else self._followed.progress()

    @property
    def first_batch(self) -> str | None:
        """The dataset that wrote first in this run."""
        return None if self._followed is None else self._followed.first_batch

    def give_up(self, reason: str | None) -> None:
        """The run ends before its queries began."""
        if self._state is not None and not self._beats.is_set():
            self._end(FAILED if reason else STOPPED, reason)

    def _run_on(self, stop: threading.Event) -> Outcome:
        self._start(self.compiled)
        while True:
            if (outcome := self._asked(stop)) is not None:
                self._stop_all()
                return outcome
            self._look()
            stop.wait(LOOK_S)

    def _run_once(self, stop: threading.Event) -> Outcome:
        for level in queries.levels(self.compiled):
            self._start(level)
            while any(self.running[each.name].isActive for each in level):
                if (outcome := self._asked(stop)) is not None:
                    self._stop_all()
                    return outcome
                self._look()
                stop.wait(LOOK_S)
            self._look()
        return Outcome.DONE

    def _start(self, level: list[CompiledQuery]) -> None:
        assert self._followed is not None
        for each in level:
            query = queries.start(
                each,
                self.pipeline.name,
                self.version,
                bootstrap=self.registry.bootstrap,
                checkpoints=self.checkpoints,
                once=self.options.once,
                every=self.options.every,
            )
            self.running[each.name] = query
            self._followed.follow(query, each.name)
        self._note_ids()

    def _note_ids(self) -> None:
        """The id of a query is that of its sink, and what a lost checkpoint is made anew with."""
        ids = {name: str(query.id) for name, query in self.running.items()}

        def noted(state: PipelineState | None) -> PipelineState:
            version = self._own_version(state)
            assert state is not None
            datasets = {
                name: replace(each, query_id=ids.get(name, each.query_id)) for name, each in version.datasets.items()
            }
            version = replace(version, datasets=datasets)
            return replace(state, versions={**state.versions, self.version: version})

        before = self.registry.pipeline(self.pipeline.name)
        if noted(before) != before:
            self.registry.change(self.pipeline.name, noted)

    def _look(self) -> None:
        """Raise what a query failed with."""
        assert self._followed is not None
        self._followed.look()
        for name, query in self.running.items():
            if not query.isActive and (failure := queries.failure_of(query, name, self.pipeline.name)) is not None:
                raise failure

    def _asked(self, stop: threading.Event) -> Outcome | None:
        """Whether the user, another command or a rebuild wants this run to end."""
        if stop.is_set():
            return Outcome.STOPPED
        name = self.pipeline.name
        command = self.registry.command(name)
        if command is not None and command.id != self._known_command and _means(command, self.version):
            return Outcome.ASKED
        run = self.registry.run(name, self.version)
        if run is not None and run.owner != self.owner:
            raise PipelineRefused(f"{name} was taken over by process {run.pid} on {run.host}; this one has stopped")
        state = self.registry.pipeline(name)
        if state is not None and is_switching(state.rebuild):
            return Outcome.HANDED_OVER
        return None

    def _stop_all(self, *, within_s: float = queries.BOUNDARY_S) -> None:
        until = time.monotonic() + within_s
        for query in self.running.values():
            queries.stop(query, within_s=max(0.0, until - time.monotonic()))
        if self._followed is not None:
            self._followed.look()

    # The registry

    def _beat(self) -> None:
        """Say that we are alive, and hear what others say. A cluster that does not answer for a while is no reason to
        end: queries wait for it, too."""
        while not self._beats.wait(HEARTBEAT_S / 3):
            with contextlib.suppress(RegistryFailed):
                self.registry.refresh()
                assert self._state is not None
                run = self.registry.run(self.pipeline.name, self.version)
                is_ours = run is not None and run.owner == self.owner
                if is_ours and _now_ms() - self._state.heartbeat_ms >= HEARTBEAT_S * 1000:
                    with self._saying:
                        if not self._beats.is_set():
                            self._say(self._state.state)

    def _say(self, state: str, failure: str | None = None) -> None:
        assert self._state is not None
        progress = {**self._state.queries, **self.progress()}
        if state in (STOPPED, FAILED):
            progress = {
                name: each if each.state == FAILED else replace(each, state=STOPPED, rows_per_second=0.0)
                for name, each in progress.items()
            }
        self._state = replace(self._state, state=state, failure=failure, heartbeat_ms=_now_ms(), queries=progress)
        self.registry.put_run(self._state)

    def _end(self, state: str, failure: str | None = None) -> None:
        self._beats.set()
        with contextlib.suppress(RegistryFailed):
            run = self.registry.refresh().run(self.pipeline.name, self.version)
            if run is not None and run.owner == self.owner:
                with self._saying:
                    self._say(state, failure)


def _means(command: Command, version: int) -> bool:
    return command.verb == STOP and command.version in (None, version)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
