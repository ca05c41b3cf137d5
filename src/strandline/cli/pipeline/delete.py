"""`strandline pipeline delete`: a plan first, then a yes, then the pipeline goes with all that only it has."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, connect
from strandline.cli.common.failures import CommandFailed
from strandline.cli.common.options import AsJson, GroundBootstrap, Yes
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.common.plans import confirm
from strandline.cli.group.offsets import committed_by_group
from strandline.cli.group.reading import read_groups
from strandline.cli.pipeline.reading import PipelineName, group_ids_of, is_there, known_pipeline, registry_of

if TYPE_CHECKING:
    from strandline.pipelines.rebuild.removing import Doomed
    from strandline.pipelines.versions.state import PipelineState, RunState
    from strandline.pipelines.versions.version_store import Registry


def delete(
    name: PipelineName,
    keep_topics: Annotated[bool, typer.Option("--keep-topics", help="Keep the topics that it wrote.")] = False,
    yes: Yes = False,
    bootstrap: GroundBootstrap = None,
    as_json: AsJson = False,
) -> None:
    """Delete a pipeline: topics that it wrote, its checkpoints, and its record in the cluster. Shows a plan and asks.

    Stop the pipeline first. Topics that it only reads are kept, and so are those that another pipeline or a view reads.
    """
    output = Output(as_json=as_json)
    with registry_of(bootstrap) as registry:
        state = known_pipeline(registry, name)
        _check_stopped(registry, state)
        kept = {} if keep_topics else readers_elsewhere(registry, name)
        doomed = doomed_versions(state, kept, keep_topics=keep_topics)
        plan = _plan(registry, state, doomed, kept)
        confirm(output, plan, yes=yes, question="Delete?", undone="nothing was deleted")
        _remove(registry, state, doomed)
        _tell(output, name, doomed)


def readers_elsewhere(registry: Registry, name: str) -> dict[str, str]:
    """Return the topics that other pipelines, or views made by hand, read: by topic, which."""
    found = {
        topic: f"the pipeline {other}"
        for other, state in registry.pipelines.items()
        if other != name
        for version in state.versions.values()
        for dataset in version.datasets.values()
        for topic in dataset.reads
    }
    views = registry.entries("view/").items()
    return found | {str(told["topic"]): f"the view {view}" for view, told in views if told.get("topic")}


def doomed_versions(state: PipelineState, kept: Mapping[str, str], *, keep_topics: bool) -> list[Doomed]:
    """Return what goes with each version of a pipeline (pure)."""
    from strandline.pipelines.rebuild.phases import own_topic
    from strandline.pipelines.rebuild.removing import Doomed
    from strandline.pipelines.versions.state import checkpoint_of

    found = []
    for number, version in sorted(state.versions.items()):
        datasets = {**version.gone, **version.datasets}
        topics = [each.topic for each in datasets.values()]
        for each in datasets.values():
            topics += [own_topic(each, number), each.public_topic] if each.kind.has_keys else []
        wanted = () if keep_topics else tuple(dict.fromkeys(topics))
        sinks = {each.query_id: None for each in datasets.values() if each.query_id}
        if state.rebuild is not None and state.rebuild.sink_id:
            sinks[state.rebuild.sink_id] = None
        found.append(
            Doomed(
                number,
                tuple(topic for topic in wanted if topic not in kept),
                tuple(topic for topic in wanted if topic in kept),
                checkpoint_of(version.checkpoints, state.name, number, "") if version.checkpoints else "",
                tuple(sinks),
                tuple(group_id for group_id, each in group_ids_of(state).items() if each == number),
            )
        )
    return found


def _check_stopped(registry: Registry, state: PipelineState) -> None:
    from strandline.pipelines.rebuild.phases import check_free

    now_ms = time.time_ns() // 1_000_000
    _refuse_running(state.name, registry.runs(state.name).values(), now_ms)
    told = registry.entries("rebuild/").get(state.name, {})
    check_free(state, "", int(told.get("heartbeat_ms", 0)), now_ms)


def _refuse_running(name: str, runs: Iterable[RunState], now_ms: int) -> None:
    for run in runs:
        if is_there(run, now_ms):
            raise CommandFailed(
                f"{name} runs, as process {run.pid} on {run.host}, so it cannot be deleted",
                hint=f"stop it first: `strandline pipeline stop {name}`",
            )


def _plan(registry: Registry, state: PipelineState, doomed: list[Doomed], kept: Mapping[str, str]) -> list[str]:
    cluster = connect(registry.bootstrap, None, TIMEOUT_S_DEFAULT)
    admin = cluster.admin()
    with cluster.errors("cannot read the topics of the cluster"):
        there = admin.list_topics(timeout=cluster.timeout_s).topics
    topics = {topic: None for each in doomed for topic in each.topics if topic in there}
    readers = _groups_reading(cluster, set(topics), own={group for each in doomed for group in each.groups})
    plan = [f"delete the pipeline {state.name}: {count(len(doomed), 'version')}, for good, with"]
    for topic in topics:
        read_by = f"; read by group {', '.join(readers[topic])}" if topic in readers else ""
        plan.append(f"  topic {topic} and every record in it{read_by}")
    plan += [f"  {_checkpoints_in_words(each.checkpoints)}" for each in doomed if each.checkpoints]
    plan += [f"  {count(sum(len(each.sinks) for each in doomed), 'sink')} and the groups of its queries"]
    plan += [f"  topic {topic} stays: {kept[topic]} reads it" for each in doomed for topic in each.kept]
    return plan


def _groups_reading(cluster: Cluster, topics: set[str], own: set[str]) -> dict[str, list[str]]:
    """Return, by topic, the groups with a position in it or a member that reads it."""
    found: dict[str, list[str]] = {}
    groups = [group for group in read_groups(cluster) if group.group_id not in own] if topics else []
    committed = committed_by_group(cluster, [group.group_id for group in groups]) if groups else {}
    for group in groups:
        read = {topic for member in group.members or () for topic in member.topics or ()}
        read |= {topic for topic, _ in committed[group.group_id]}
        for topic in read & topics:
            found.setdefault(topic, []).append(group.group_id)
    return found


def _checkpoints_in_words(checkpoints: str) -> str:
    from strandline.spark.sink.checkpoint import local_path

    directory = local_path(checkpoints)
    if directory is None:
        return f"its checkpoints stay in {checkpoints}: remove them there"
    if not Path(directory).exists():
        return f"its checkpoints stay: remove {checkpoints} on the machine where the pipeline ran"
    return f"its checkpoints in {checkpoints}"


def _remove(registry: Registry, state: PipelineState, doomed: list[Doomed]) -> None:
    """Remove what the versions have and then the record, so that a delete that was cut off can be said again."""
    from strandline.pipelines.rebuild.removing import remove
    from strandline.pipelines.versions.state import RunState
    from strandline.pipelines.versions.version_files import forget_file

    for each in doomed:
        remove(registry.bootstrap, each)
        forget_file(state.name, each.version)

    def without(entries: Mapping[str, dict[str, Any]]) -> dict[str, str | None]:
        runs = {key: RunState.from_json(told) for key, told in entries.items() if key.startswith(f"run/{state.name}/")}
        _refuse_running(state.name, runs.values(), time.time_ns() // 1_000_000)
        known = [f"{kind}/{state.name}" for kind in ("pipeline", "command", "rebuild")]
        return dict.fromkeys([each for each in known if each in entries] + list(runs))

    registry.change_entries(without)


def _tell(output: Output, name: str, doomed: list[Doomed]) -> None:
    topics = list(dict.fromkeys(topic for each in doomed for topic in each.topics))
    kept = list(dict.fromkeys(topic for each in doomed for topic in each.kept))
    if output.as_json:
        output.json_line({"pipeline": name, "deleted": True, "topics": topics, "kept": kept})
    else:
        output.line(f"deleted {name}")
