"""What only one version of a pipeline has is removed: its topics, checkpoints, sinks and groups.

A topic with a public name is never removed, because other clients may read it. Nor is one that another pipeline
reads. Everything here may have been removed before.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from strandline.pipelines.rebuild import phases
from strandline.pipelines.rebuild.topic_copies import remove_topics
from strandline.pipelines.run.multi_topic_commit import delete_sinks
from strandline.pipelines.run.outputs import suffix_of
from strandline.pipelines.run.query_groups import remove_groups
from strandline.pipelines.versions.state import PipelineState, checkpoint_of
from strandline.runtime.fault_points import fault_point
from strandline.spark.sink.checkpoint import local_path


@dataclass(frozen=True)
class Doomed:
    """What a version leaves behind (pure)."""

    version: int
    topics: tuple[str, ...]
    kept: tuple[str, ...]
    """Topics that only this version wrote, and that stay."""
    checkpoints: str
    sinks: tuple[str, ...]
    groups: tuple[str, ...]


def doomed(state: PipelineState, others: Mapping[str, PipelineState]) -> Doomed:
    """What goes when the rebuild ends; `others` are the other pipelines."""
    rebuild = state.rebuild
    assert rebuild is not None
    number = phases.doomed_version(rebuild)
    left = rebuild.old_version if number == rebuild.new_version else rebuild.new_version
    version = state.versions.get(number)
    datasets = [] if version is None else list(version.datasets.values())
    # The version that is left has its tables in the public topics, so its own copies go, too.
    topics = {
        phases.own_topic(each, each_version): None
        for each_version in (number, left)
        if each_version in state.versions
        for each in phases.tables(state, each_version)
    }
    streams = {each.topic: each for each in datasets if not each.kind.has_keys}
    topics |= {topic: None for topic, each in streams.items() if each.is_own}
    in_use = {
        topic
        for told in others.values()
        for v in told.versions.values()
        for each in v.datasets.values()
        for topic in each.reads
    }
    still_written = {each.topic for v in state.versions.values() if v.number == left for each in v.datasets.values()}
    public = {each.topic for each in datasets if not each.is_own and each.topic not in still_written}
    return Doomed(
        number,
        tuple(topic for topic in topics if topic not in in_use),
        tuple(sorted(public | (in_use & set(topics)))),
        ""
        if version is None or not version.checkpoints
        else checkpoint_of(version.checkpoints, state.name, number, ""),
        tuple(each.query_id for each in datasets if each.query_id) + ((rebuild.sink_id,) if rebuild.sink_id else ()),
        tuple(f"pipeline.{state.name}.{each.name.replace(' ', '-')}{suffix_of(number)}" for each in datasets),
    )


def remove(bootstrap: str, what: Doomed) -> None:
    fault_point("remove-begun")
    remove_topics(bootstrap, what.topics)
    fault_point("remove-half")
    delete_sinks(bootstrap, what.sinks)
    if what.groups:
        remove_groups(bootstrap, what.groups)
    directory = local_path(what.checkpoints) if what.checkpoints else None
    if directory is not None and Path(directory).exists():
        shutil.rmtree(directory)
    fault_point("remove-done")
