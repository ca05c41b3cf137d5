"""`strandline pipeline status`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.common.failures import NotFound
from strandline.cli.common.options import AsJson, GroundBootstrap
from strandline.cli.common.output import Output
from strandline.cli.pipeline.reading import known_pipeline, rebuild_in_words, registry_of, state_in_words
from strandline.lag.verdict import span

if TYPE_CHECKING:
    from strandline.pipelines.versions.state import PipelineState, QueryProgress, RunState, VersionState


def status(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The pipeline. Not needed if there is only one.")
    ] = None,
    bootstrap: GroundBootstrap = None,
    as_json: AsJson = False,
) -> None:
    """Show whether a pipeline runs, and how far each of its datasets is.

    Rows are those read and written so far, `late` those that came too late, `behind` those that it has yet to read.
    """
    output = Output(as_json=as_json)
    with registry_of(bootstrap) as registry:
        if name is None:
            known = list(registry.pipelines)
            if len(known) != 1:
                if not known:
                    raise NotFound("there is no pipeline yet", hint="`strandline pipeline run FILE` makes one")
                raise NotFound(
                    f"there are {len(known)} pipelines: name one", hint="see them with `strandline pipeline list`"
                )
            name = known[0]
        state = known_pipeline(registry, name)
        runs = registry.runs(name)
    now_ms = time.time_ns() // 1_000_000
    for number, version in sorted(state.versions.items()):
        if as_json:
            output.json_line(version_object(state, version, runs.get(number), now_ms))
        else:
            _show(output, state, version, runs.get(number), now_ms)


def version_object(state: PipelineState, version: VersionState, run: RunState | None, now_ms: int) -> dict[str, object]:
    return {
        "pipeline": state.name,
        "version": version.number,
        "active": version.number == state.active,
        "state": state_in_words(run, now_ms),
        "failure": None if run is None else run.failure,
        "file": version.file,
        "checkpoints": version.checkpoints,
        "rebuild": None if state.rebuild is None else state.rebuild.phase,
        "heartbeat_ms": None if run is None else run.heartbeat_ms,
        "process": None if run is None else {"pid": run.pid, "host": run.host},
        "datasets": {
            name: {
                "kind": each.kind.value,
                "topic": each.topic,
                "key": list(each.key),
                **({} if run is None or name not in run.queries else run.queries[name].to_json()),
            }
            for name, each in version.datasets.items()
        },
    }


def _show(output: Output, state: PipelineState, version: VersionState, run: RunState | None, now_ms: int) -> None:
    words = state_in_words(run, now_ms)
    head = f"{state.name}, version {version.number}: {words}"
    if run is not None and words in ("starting", "running"):
        head += f", process {run.pid} on {run.host}, for {span((now_ms - run.started_ms) / 1000)}"
    elif run is not None and run.heartbeat_ms:
        head += f", last heard of {span(max(0, now_ms - run.heartbeat_ms) / 1000)} ago"
    if len(state.versions) > 1:
        head += "; the name means this one" if version.number == state.active else "; the name means another version"
    output.line(head)
    if run is not None and run.failure:
        output.line(f"  {run.failure}")
    if state.rebuild is not None and version.number == state.rebuild.new_version:
        output.line(f"  rebuild: {rebuild_in_words(state.rebuild)}")
    output.line(f"  file {version.file}, checkpoints in {version.checkpoints}")
    rows = []
    for name, each in version.datasets.items():
        progress = None if run is None else run.queries.get(name)
        rows.append((name, each.kind.value, each.topic, *_figures(progress, is_running=words == "running")))
    columns = ["dataset", "kind", "topic", "state", "batch", "read", "written", "late", "behind", "rows/s"]
    if rows:
        output.table(columns, rows)


def _figures(progress: QueryProgress | None, *, is_running: bool) -> tuple[str, ...]:
    if progress is None:
        return ("never run", "-", "-", "-", "-", "-", "-")
    return (
        progress.state if is_running or progress.state == "failed" else "stopped",
        "-" if progress.batch_id < 0 else f"{progress.batch_id:,}",
        f"{progress.rows:,}",
        "-" if progress.written_rows is None else f"{progress.written_rows:,}",
        f"{progress.late_rows:,}",
        "-" if progress.lag is None else f"{progress.lag:,}",
        f"{progress.rows_per_second:,.0f}" if is_running else "-",
    )
