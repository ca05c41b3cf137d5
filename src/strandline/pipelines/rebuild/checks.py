"""What is looked at before and while a version is built: whether it can be switched to, and how far its inputs go."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from strandline.client.cluster_client import LATEST, ClientSettings, ClusterClient
from strandline.ids import TopicPartition
from strandline.pipelines.failures import PipelineRefused
from strandline.pipelines.language.model import Pipeline
from strandline.pipelines.run.multi_topic_commit import MultiTopicCommit
from strandline.pipelines.versions.state import PipelineState
from strandline.pipelines.versions.version_store import Registry
from strandline.spark.sink.checkpoint import local_path


def check_rebuildable(bootstrap: str, state: PipelineState, pipeline: Pipeline, checkpoints: str) -> None:
    """Refuse what could otherwise only fail at the switch, when much was done."""
    assert state.current is not None
    # It is refused by a cluster that cannot commit a batch at once.
    MultiTopicCommit(bootstrap, f"switch-{state.name}").close()
    kinds = {each.public_topic: each.kind for each in state.current.datasets.values()}
    for dataset in pipeline.written:
        was = kinds.get(dataset.topic)
        if was is not None and was.has_keys != dataset.kind.has_keys:
            raise PipelineRefused(
                f"{dataset.name} was a {was.value} and is a {dataset.kind.value} now, which one topic cannot be to "
                f"its readers: give it another topic than {dataset.topic}"
            )
    reads_changes = any(name in pipeline.datasets for each in pipeline.datasets.values() for name in each.changes)
    if reads_changes and local_path(checkpoints) is None:
        raise PipelineRefused(
            f"{state.name} reads the changes of a table of its own, so for a rebuild its checkpoints must lie on this "
            "machine: say --checkpoints with a directory"
        )


def input_ends(registry: Registry, pipeline: Pipeline) -> dict[TopicPartition, int]:
    """How far the topics go that the pipeline reads and does not write."""
    inputs = {each.topic for each in pipeline.sources.values()}
    known = registry.known_datasets()
    inputs |= {
        known[name].topic
        for each in pipeline.datasets.values()
        for name in each.inputs
        if name in known and name not in pipeline.datasets and name not in pipeline.sources
    }
    client = ClusterClient(ClientSettings(registry.bootstrap, client_id="strandline-rebuild"))
    try:
        found = client.topics(sorted(inputs))
        places = [TopicPartition(name, each) for name, topic in found.items() for each in topic.leaders]
        return client.list_offsets(dict.fromkeys(places, LATEST))
    finally:
        client.close()


def unknown_words(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(known), 1, 0.6)
    look = f"did you mean {near[0]}?" if near else "`strandline pipeline list` shows them"
    return f"There is no pipeline {name} that has run: {look}; run it first with `strandline pipeline run FILE`."
