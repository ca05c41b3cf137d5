"""Pipelines: whether their queries keep up, what reads what as a picture, versions, and a rebuild that runs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from strandline.cli.common.plain_words import count
from strandline.console.context import PageContext
from strandline.console.declarations import ConsolePage, PageModule, PageQuery, PageTable
from strandline.console.failures import PageFailed
from strandline.console.pages.dataset_graph import NODES_MAX, DatasetNode, picture
from strandline.console.reading.pipeline_reading import KnownPipelines, read_pipelines, state_of
from strandline.console.tables import TableHead
from strandline.lag.verdict import span
from strandline.pipelines.versions.state import PipelineState, RunState, VersionState

_BAD: Final = ("failed", "lost")


def pipeline_path(name: str) -> str:
    """Return the page of a pipeline."""
    return f"/pipelines/pipeline?{urlencode({'name': name})}"


HEADS: Final = (
    TableHead("pipeline", "Pipeline", "name", link=lambda row: pipeline_path(row["pipeline"])),
    TableHead("state", "State", "verdict"),
    TableHead("lag", "Unread records", "number", "What its queries have yet to read"),
    TableHead("rows_per_s", "Rows a second", "rate"),
    TableHead("late_rows", "Late rows", "number", "Rows behind the watermark, which were dropped", is_wide=True),
    TableHead("version", "Version", "number", "The one that the name means", is_wide=True),
    TableHead("datasets", "Datasets", "number", is_wide=True),
    TableHead("rebuild", "Rebuild", "text"),
)
QUERY_HEADS: Final = (
    TableHead("dataset", "Dataset", "name"),
    TableHead("state", "State", "verdict"),
    TableHead("lag", "Unread records", "number"),
    TableHead("rows_per_s", "Rows a second", "rate"),
    TableHead("batch", "Batch", "number", is_wide=True),
    TableHead("batch_s", "Batch time", "span", "How long the last batch took", is_wide=True),
    TableHead("rows", "Rows", "number", "Since the version began", is_wide=True),
    TableHead("late_rows", "Late rows", "number"),
    TableHead("watermark", "Watermark", "text", is_wide=True),
    TableHead("keeps_state", "Keeps state", "list", "The operators of its query that remember rows", is_wide=True),
    TableHead("topic", "Topic", "text", link=lambda row: f"/topics/{quote(row['topic'], safe='')}"),
)
VERSION_HEADS: Final = (
    TableHead("version", "Version", "name"),
    TableHead("state", "State", "verdict"),
    TableHead("meant", "Meant by the name", "text"),
    TableHead("created_ms", "Created", "time", is_wide=True),
    TableHead("datasets", "Datasets", "number"),
    TableHead("file", "File", "text", is_wide=True),
    TableHead("process", "Process", "text", is_wide=True),
)


async def pipelines(context: PageContext) -> Mapping[str, Any]:
    """Answer whether the pipelines run and keep up."""
    known, now_ms = await read_pipelines(context), time.time_ns() // 1_000_000
    rows = [_row(known, each, now_ms) for each in known.pipelines.values()]
    nodes = list(_nodes(known, now_ms))
    if len(nodes) > NODES_MAX:
        context.reading.note(f"The picture has {NODES_MAX} of {len(nodes)} topics and datasets.")
    return {
        "verdict": _verdict(rows),
        "graph": picture(nodes),
        "table": context.table(
            HEADS,
            rows,
            caption="Pipelines",
            searched=("pipeline", "state"),
            sort="pipeline",
            empty="There is no pipeline yet: `strandline pipeline run FILE` makes one.",
        ),
    }


async def pipeline(context: PageContext) -> Mapping[str, Any]:
    """Answer how far each query of a pipeline is."""
    name = context.query.get("name", "")
    known, now_ms = await read_pipelines(context), time.time_ns() // 1_000_000
    state = known.pipelines.get(name)
    if state is None:
        raise PageFailed(404, f"There is no pipeline {name}", "see the list of pipelines")
    numbers = sorted(state.versions)
    chosen = context.number("version", state.active)
    version = state.versions.get(chosen)
    if version is None:
        raise PageFailed(404, f"There is no version {chosen} of {name}", "see its list of versions")
    run = known.run(name, chosen)
    words = state_of(run, now_ms)
    queries = list(_queries(version, run, words))
    return {
        "pipeline": name,
        "version": chosen,
        "numbers": numbers,
        "verdict": _one_verdict(words, run, queries, now_ms),
        "rebuild": _rebuild(state, now_ms),
        "graph": picture(_nodes(known, now_ms, only=name)),
        "queries": context.table(QUERY_HEADS, queries, caption="Queries", name="queries", sort="dataset"),
        "versions": context.table(
            VERSION_HEADS, list(_versions(known, state, now_ms)), caption="Versions", name="versions", sort="-version"
        ),
        "checkpoints": version.checkpoints,
    }


def _row(known: KnownPipelines, state: PipelineState, now_ms: int) -> dict[str, Any]:
    version, run = state.current, known.run(state.name, state.active)
    queries = [] if run is None else list(run.queries.values())
    words = state_of(run, now_ms)
    lags = [each.lag for each in queries if each.lag is not None]
    return {
        "pipeline": state.name,
        "state": words,
        "failure": None if run is None else run.failure,
        "lag": sum(lags) if lags else None,
        "rows_per_s": sum(each.rows_per_second for each in queries) if words == "running" else None,
        "late_rows": sum(each.late_rows for each in queries) if queries else None,
        "version": state.active,
        "datasets": 0 if version is None else len(version.datasets),
        "rebuild": None if state.rebuild is None else f"version {state.rebuild.new_version}: {state.rebuild.phase}",
    }


def _verdict(rows: list[dict[str, Any]]) -> dict[str, str]:
    bad = [each for each in rows if each["state"] in _BAD]
    if bad:
        first = bad[0]
        why = first["failure"] or ("its process said nothing any more" if first["state"] == "lost" else "")
        text = f"{len(bad)} of {count(len(rows), 'pipeline')} failed. {first['pipeline']}{f': {why}' if why else ''}"
        return {"level": "problem", "text": f"{text.rstrip('.')}."}
    running = [each for each in rows if each["state"] == "running"]
    if not rows:
        return {"level": "unknown", "text": "There is no pipeline yet."}
    lag = sum(each["lag"] or 0 for each in running)
    text = f"{len(running)} of {count(len(rows), 'pipeline')} run, with {count(lag, 'unread record')}."
    return {"level": "ok" if len(running) == len(rows) else "warning", "text": text}


def _one_verdict(words: str, run: RunState | None, queries: list[dict[str, Any]], now_ms: int) -> dict[str, str]:
    if words == "failed":
        return {
            "level": "problem",
            "text": f"It has failed: {((run and run.failure) or 'it gives no reason').rstrip('.')}.",
        }
    if words == "lost" and run is not None:
        ago = span(max(0, now_ms - run.heartbeat_ms) / 1000)
        return {"level": "problem", "text": f"Its process {run.pid} on {run.host} said nothing for {ago}."}
    if words != "running":
        return {"level": "warning", "text": f"It is {words}." if words != "never run" else "It has never run."}
    failed = [each["dataset"] for each in queries if each["state"] == "failed"]
    if failed:
        return {"level": "problem", "text": f"The query of {failed[0]} has failed."}
    behind = max(queries, key=lambda each: each["lag"] or 0, default=None)
    if behind is None or not behind["lag"]:
        return {"level": "ok", "text": "It runs, and has read everything."}
    return {"level": "ok", "text": f"It runs; {behind['dataset']} has {count(behind['lag'], 'unread record')}."}


def _queries(version: VersionState, run: RunState | None, words: str) -> Iterator[dict[str, Any]]:
    for name, each in version.datasets.items():
        row = {"dataset": name, "kind": each.kind.value, "topic": each.topic, "keeps_state": list(each.stateful)}
        progress = None if run is None else run.queries.get(name)
        if progress is None:
            yield {**row, "state": "never run"}
            continue
        is_running = words == "running"
        yield {
            **row,
            "state": progress.state if is_running or progress.state == "failed" else "stopped",
            "lag": progress.lag,
            "rows_per_s": progress.rows_per_second if is_running else None,
            "batch": progress.batch_id if progress.batch_id >= 0 else None,
            "batch_s": None if progress.batch_ms is None else progress.batch_ms / 1000,
            "rows": progress.rows,
            "late_rows": progress.late_rows,
            "watermark": progress.watermark,
        }


def _versions(known: KnownPipelines, state: PipelineState, now_ms: int) -> Iterator[dict[str, Any]]:
    for number, version in sorted(state.versions.items()):
        run = known.run(state.name, number)
        yield {
            "version": number,
            "state": state_of(run, now_ms),
            "meant": "yes" if number == state.active else "no",
            "created_ms": version.created_ms or None,
            "datasets": len(version.datasets),
            "file": version.file,
            "process": None if run is None or not run.pid else f"{run.pid} on {run.host}",
        }


def _rebuild(state: PipelineState, now_ms: int) -> dict[str, Any] | None:
    rebuild = state.rebuild
    if rebuild is None:
        return None
    silent_s = max(0, now_ms - rebuild.heartbeat_ms) / 1000 if rebuild.heartbeat_ms else None
    switch = f"Version {rebuild.new_version} is to take the place of version {rebuild.old_version}"
    return {
        "phase": rebuild.phase,
        "old_version": rebuild.old_version,
        "new_version": rebuild.new_version,
        "started_ms": rebuild.started_ms or None,
        "silent_s": silent_s,
        "text": f"{switch}: {rebuild.phase}.",
    }


def _nodes(known: KnownPipelines, now_ms: int, only: str | None = None) -> Iterator[DatasetNode]:
    """Yield the datasets of the versions that names mean, and the topics that they read from outside."""
    written: set[str] = set()
    read: dict[str, None] = {}
    found = []
    for name, state in known.pipelines.items():
        version = state.current
        if version is None or (only is not None and name != only):
            continue
        run = known.run(name, state.active)
        words = state_of(run, now_ms)
        for each in version.datasets.values():
            progress = None if run is None else run.queries.get(each.name)
            how = "failed" if progress is not None and progress.state == "failed" else words
            node_id = each.topic or f"{name}/{each.name}"
            found.append(DatasetNode(node_id, each.name, each.kind.value, how, tuple(dict.fromkeys(each.reads)), name))
            written.add(node_id)
            read |= dict.fromkeys(each.reads)
    for topic in read:
        if topic not in written:
            yield DatasetNode(topic, topic, "topic")
    yield from found


MODULE: Final = PageModule(
    pages=(
        ConsolePage(
            name="pipelines",
            path="/pipelines",
            title="Pipelines",
            question="Do the pipelines keep up, and what comes of what?",
            model=pipelines,
            template="pipelines.html",
            tables=(PageTable("table", HEADS),),
            group="Data",
        ),
        ConsolePage(
            name="pipeline",
            path="/pipelines/pipeline",
            title="Pipeline",
            question="How far is each query, and what is being rebuilt?",
            model=pipeline,
            template="pipeline.html",
            tables=(PageTable("queries", QUERY_HEADS), PageTable("versions", VERSION_HEADS)),
            queries=(
                PageQuery("name", "The pipeline", is_required=True),
                PageQuery("version", "A version; the active one by default"),
            ),
            under="pipelines",
        ),
    ),
)
