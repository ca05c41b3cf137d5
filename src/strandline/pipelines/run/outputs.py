"""The topics of a pipeline: which a version writes, and that they are there before a query reads or writes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.client.failures import ClientFailed
from strandline.client.topic_creation import create_topic
from strandline.pipelines.failures import PipelineRefused, guess, refused
from strandline.pipelines.language.model import (
    Dataset,
    Kind,
    KnownDataset,
    Pipeline,
    SourceTopic,
    dead_letters_name,
    versioned_topic,
)
from strandline.pipelines.versions.state import DatasetState, VersionState

TIMEOUT_S: Final = 30.0
REPLICAS: Final = 3


@dataclass(frozen=True)
class Wanted:
    """A topic that must be there."""

    topic: str
    is_compacted: bool
    partitions: int | None
    """None: as many as `like` has."""
    like: str | None


def suffix_of(version: int) -> str:
    """What a version's own topics end with."""
    return "" if version == 1 else f".v{version}"


def topics_of(pipeline: Pipeline, version: int, told: VersionState | None, *, is_active: bool) -> dict[str, str]:
    """By dataset, where it writes: where the registry says that it does, unless the file now says another topic.

    A stream keeps one topic for as long as it lives. A table is in the public topic while its version is the active
    one, and in a topic of the version's own otherwise.
    """
    found = {}
    for dataset in pipeline.written:
        known = None if told is None else told.datasets.get(dataset.name)
        if known is not None and known.public_topic == dataset.topic and known.kind.has_keys == dataset.kind.has_keys:
            found[dataset.name] = known.topic
        elif dataset.kind.has_keys:
            found[dataset.name] = versioned_topic(dataset.topic, version, is_active=is_active)
        else:
            found[dataset.name] = dataset.topic + suffix_of(version)
    return found


def public_topics_of(pipeline: Pipeline) -> dict[str, str]:
    """By query, the topic that the file says."""
    return _letters(pipeline) | {each.name: each.topic for each in pipeline.written}


def _letters(pipeline: Pipeline) -> dict[str, str]:
    """By the query that writes them, the topics of dead letters."""
    return {dead_letters_name(each.name): each.dead_letters for each in pipeline.sources.values() if each.dead_letters}


def planned_datasets(
    pipeline: Pipeline, version: int, schemas: Mapping[str, tuple[str, ...]] | None = None
) -> dict[str, DatasetState]:
    """What is known of a version that is not the active one, before Spark has seen it.

    `schemas` says by which versions of a registry's subjects each query would read.
    """
    topics = topics_of(pipeline, version, None, is_active=False)
    read_by = schemas or {}
    found = {
        name: DatasetState(name, Kind.STREAM, topic + suffix_of(version), topic, schemas=read_by.get(name, ()))
        for name, topic in _letters(pipeline).items()
    }
    for each in pipeline.written:
        found[each.name] = DatasetState(
            each.name, each.kind, topics[each.name], each.topic, key=each.key, schemas=read_by.get(each.name, ())
        )
    return found


def wanted_topics(
    pipeline: Pipeline, version: int, topics: Mapping[str, str], known: Mapping[str, KnownDataset]
) -> list[Wanted]:
    """What a version writes, each after the one whose number of partitions it takes."""
    wanted = [
        Wanted(each.dead_letters + suffix_of(version), False, None, each.topic)
        for each in pipeline.sources.values()
        if each.dead_letters is not None
    ]
    for dataset in pipeline.written:
        like = _first_topic(pipeline, dataset, topics, known)
        wanted.append(Wanted(topics[dataset.name], dataset.kind.has_keys, dataset.partitions, like))
    return wanted


def _first_topic(
    pipeline: Pipeline, dataset: Dataset, topics: Mapping[str, str], known: Mapping[str, KnownDataset]
) -> str | None:
    """The topic that a dataset reads first, through temporary views; one that is read as a stream, if there is one."""
    found: list[tuple[bool, str]] = []

    def visit(reader: Dataset) -> None:
        for name in reader.inputs:
            inner = pipeline.datasets.get(name)
            if inner is not None and inner.kind is Kind.TEMPORARY:
                visit(inner)
            elif inner is not None:
                found.append((inner.kind.has_keys and name not in reader.changes, topics[name]))
            elif name in pipeline.sources:
                source = pipeline.sources[name]
                found.append((source.is_table and name not in reader.changes, source.topic))
            elif name in known:
                found.append((known[name].kind.has_keys and name not in reader.changes, known[name].topic))

    visit(dataset)
    return min(found, key=lambda each: each[0])[1] if found else None


def check_sources(bootstrap: str, pipeline: Pipeline) -> None:
    """Refuse a source whose topic does not exist."""
    with closing(_client(bootstrap)) as client:
        partitions = _partitions(client)
    for source in pipeline.sources.values():
        if source.topic not in partitions:
            raise _missing(source, partitions)


def _missing(source: SourceTopic, topics: Iterable[str]) -> PipelineRefused:
    return refused(
        f"the topic {source.topic} of the source {source.name} does not exist{guess(source.topic, topics)}: create it "
        f"with `strandline topic create {source.topic}`, or correct the name",
        source.at,
    )


def make_topics(bootstrap: str, pipeline: Pipeline, wanted: list[Wanted], *, makes_sources: bool) -> list[str]:
    """Make what is not there; what was made, in words. A source's topic is made only on a node of the user's own."""
    with closing(_client(bootstrap)) as client:
        partitions = _partitions(client)
        made = []
        for source in pipeline.sources.values():
            if source.topic in partitions:
                continue
            if not makes_sources:
                raise _missing(source, partitions)
            partitions[source.topic] = _create(client, source.topic, 1, is_compacted=bool(source.key))
            made.append(f"{source.topic} (to be written by you)")
        for each in wanted:
            if each.topic in partitions:
                continue
            number = each.partitions or partitions.get(each.like or "", 1)
            partitions[each.topic] = _create(client, each.topic, number, is_compacted=each.is_compacted)
            made.append(each.topic)
        return made


def _client(bootstrap: str) -> ClusterClient:
    return ClusterClient(ClientSettings.within(bootstrap, "strandline-pipelines", TIMEOUT_S))


def _create(client: ClusterClient, topic: str, partitions: int, *, is_compacted: bool) -> int:
    settings = {"cleanup.policy": "compact"} if is_compacted else {}
    try:
        made = create_topic(client, topic, partitions=partitions, replicas_max=REPLICAS, settings=settings)
    except ClientFailed as error:
        raise refused(f"the topic {topic} cannot be created ({error}): see `strandline cluster health`") from error
    return len(made.leaders)


def _partitions(client: ClusterClient) -> dict[str, int]:
    """Return the number of partitions of each topic."""
    try:
        topics = client.topics(None)
    except ClientFailed as error:
        raise refused(f"the cluster does not tell its topics ({error}): is it well?") from error
    return {name: len(topic.leaders) for name, topic in topics.items() if topic.leaders}
