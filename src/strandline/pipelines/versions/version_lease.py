"""Who may run a version of a pipeline: decided upon what the registry says, and written with it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from strandline.pipelines.failures import PipelineRefused
from strandline.pipelines.language.model import Pipeline
from strandline.pipelines.rebuild.phases import how_to_end, is_switching
from strandline.pipelines.run.outputs import public_topics_of
from strandline.pipelines.run.run_log import log_file_of
from strandline.pipelines.versions.state import PipelineState, RunState, VersionState, checkpoint_of, text_of


@dataclass(frozen=True)
class Claim:
    """What a process wants to run."""

    pipeline: Pipeline
    owner: str
    pid: int
    host: str
    now_ms: int
    checkpoints: str
    version: int | None
    """None: the one that the name means."""
    once: bool
    takeover: bool
    rebuilds: bool = False
    """Whether it is the process that carries a rebuild out."""
    log_home: Path | None = None
    """The directory under which the run logs; None: it keeps no log."""


def claimed(claim: Claim, entries: Mapping[str, dict[str, Any]]) -> tuple[RunState, dict[str, str | None]]:
    """The run, and what the registry shall say of it; PipelineRefused if it cannot be."""
    name = claim.pipeline.name
    pipelines = {
        key.removeprefix("pipeline/"): PipelineState.from_json(each)
        for key, each in entries.items()
        if key.startswith("pipeline/")
    }
    state = pipelines.get(name, PipelineState(name))
    if state.rebuild is not None and is_switching(state.rebuild) and not claim.rebuilds:
        raise PipelineRefused(
            f"{name} is being switched from one version to another, so it cannot be run now: "
            f"{how_to_end(name, state.rebuild)}"
        )
    number = claim.version or state.active
    _check_writers(claim.pipeline, pipelines)
    told = entries.get(f"run/{name}/{number}")
    before = RunState.from_json(told) if told is not None else None
    _check_free(claim, before)
    version = state.versions.get(number) or VersionState(number, created_ms=claim.now_ms)
    _check_checkpoints(claim, version)
    version = replace(
        version, checkpoints=claim.checkpoints, file=version.file or str(Path(claim.pipeline.file).resolve())
    )
    run = RunState(
        name,
        number,
        claim.owner,
        pid=claim.pid,
        host=claim.host,
        started_ms=claim.now_ms,
        heartbeat_ms=claim.now_ms,
        once=claim.once,
        log="" if claim.log_home is None else str(log_file_of(claim.log_home, name, number)),
        queries={} if before is None else before.queries,
    )
    state = replace(state, versions={**state.versions, number: version})
    return run, {f"pipeline/{name}": text_of(state), f"run/{name}/{number}": text_of(run)}


def _check_free(claim: Claim, before: RunState | None) -> None:
    if before is None or before.owner == claim.owner or claim.takeover:
        return
    if not is_there(before, claim.now_ms, here=claim.host):
        return
    name = claim.pipeline.name
    raise PipelineRefused(
        f"{name} runs already, as process {before.pid} on {before.host}: stop it with "
        f"`strandline pipeline stop {name}`, or take it over with --takeover"
    )


def is_there(run: RunState, now_ms: int, *, here: str) -> bool:
    """Whether a run goes on, as far as can be told from the host `here`.

    Who was killed on this machine need not be waited for until the heartbeat is old.
    """
    return run.is_alive(now_ms) and (run.host != here or is_process(run.pid))


def is_process(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _check_writers(pipeline: Pipeline, pipelines: Mapping[str, PipelineState]) -> None:
    """Two pipelines must not write one topic."""
    ours = public_topics_of(pipeline)
    for other, state in sorted(pipelines.items()):
        if other == pipeline.name:
            continue
        theirs = {each.public_topic: name for v in state.versions.values() for name, each in v.datasets.items()}
        for name, topic in ours.items():
            if topic in theirs:
                raise PipelineRefused(
                    f"the topic {topic} is written by {theirs[topic]} of the pipeline {other} already: give {name} "
                    "another topic, or the pipeline the name of that one"
                )


def _check_checkpoints(claim: Claim, version: VersionState) -> None:
    """If they were elsewhere and still are, a query without its checkpoint would write everything again."""
    if version.checkpoints in ("", claim.checkpoints) or not version.datasets:
        return
    name = claim.pipeline.name
    is_here = any(
        Path(checkpoint_of(claim.checkpoints, name, version.number, each)).exists() for each in version.datasets
    )
    if not is_here and Path(version.checkpoints, name).is_dir():
        raise PipelineRefused(
            f"the checkpoints of {name} are in {version.checkpoints}, not in {claim.checkpoints}: say "
            f"--checkpoints {version.checkpoints}, or move them"
        )
