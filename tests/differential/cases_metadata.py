"""Metadata, ApiVersions, DescribeCluster and DescribeTopicPartitions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import UUID

from tests.differential.case import Case, case, each, newest
from tests.differential.stage import READ
from tests.differential.talk import Talk
from tests.differential.words import Id, versions_of
from tests.hostile.test_topic_names import BAD_NAMES

STRANGER = UUID(int=0x1234567890)
SERVED = (
    *range(4), *range(8, 34), *range(35, 52),
    55, 57, 60, 61, 64, 65, 66, 68, 69, 71, 72, *range(74, 80), *range(83, 88), 90, 91, 92,
)  # fmt: skip
"""The APIs that are compared."""
STAGED = {READ, "one", "three", "__consumer_offsets"}
METADATA, API_VERSIONS, DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS = 3, 18, 60, 75


def cases() -> Iterator[Case]:
    yield from metadata()
    yield from api_versions()
    yield from describe_cluster()
    yield from describe_topic_partitions()


def metadata() -> Iterator[Case]:
    quiet: dict[str, Any] = {"allow_auto_topic_creation": False}
    known = [{"name": READ}]
    yield from each(METADATA, "a topic", topics=known)
    yield from each(METADATA, "a topic, not to be made", topics=known, **quiet)
    yield from each(METADATA, "two topics, one of them twice", topics=[*known, {"name": "three"}, *known], **quiet)
    yield from each(METADATA, "an unknown topic", topics=[{"name": "nowhere"}], **quiet)
    yield from each(METADATA, "an unknown topic twice", topics=[{"name": "nowhere"}] * 2, **quiet)
    yield from each(METADATA, "a bad name", topics=[{"name": "a/b"}], **quiet)
    yield from each(METADATA, "a known and a bad name", topics=[*known, {"name": ""}], **quiet)
    for version in versions_of(METADATA):
        yield case(METADATA, version, "all topics", partial(all_topics, version=version))
        yield case(METADATA, version, "makes a topic", partial(made, version=version))
    yield from each(METADATA, "no topic", topics=[], versions=range(1, 14))
    yield from each(METADATA, "operations", topics=known, include_topic_authorized_operations=True)
    yield from each(METADATA, "operations of the cluster", topics=known, include_cluster_authorized_operations=True)
    yield from each(METADATA, "by id", topics=[{"name": None, "topic_id": Id(READ)}], versions=range(10, 14))
    yield from each(METADATA, "by id and name", topics=[{"name": READ, "topic_id": Id(READ)}], versions=range(10, 14))
    yield from each(
        METADATA, "by an id and another name", topics=[{"name": "one", "topic_id": Id(READ)}], versions=range(10, 14)
    )
    yield from each(METADATA, "by an unknown id", topics=[{"name": None, "topic_id": STRANGER}], versions=range(10, 14))
    yield from each(METADATA, "neither name nor id", topics=[{"name": None}], versions=range(10, 14))
    both = [{"name": READ}, {"name": None, "topic_id": Id("one")}]
    yield from newest(
        METADATA,
        {
            "one by name, one by id": {"topics": both},
            "the id twice": {"topics": [{"name": None, "topic_id": Id(READ)}] * 2},
            "a known and an unknown id": {
                "topics": [{"name": None, "topic_id": each} for each in (Id(READ), STRANGER)]
            },
            "__cluster_metadata": {"topics": [{"name": "__cluster_metadata"}]},
            "__consumer_offsets": {"topics": [{"name": "__consumer_offsets"}]},
            "a name that collides with one": {"topics": [{"name": "dotted_name"}], "allow_auto_topic_creation": True},
        },
    )
    for what, name in BAD_NAMES.items():
        yield from newest(METADATA, {f"bad name, {what}": {"topics": [{"name": name}], **quiet}}, version=9)
        yield from newest(METADATA, {f"bad name to be made, {what}": {"topics": [{"name": name}]}}, version=9)


def all_topics(talk: Talk, version: int) -> None:
    """Only whether the topics of the stage are among them: which others are there depends on the cases before."""
    answer = talk.look(METADATA, version, topics=None if version else [])
    names = {topic.name for topic in answer.topics}
    talk.note(sorted(names & STAGED))
    talk.note({"internal": sorted(topic.name for topic in answer.topics if topic.is_internal and topic.name in STAGED)})
    answer.topics = [topic for topic in answer.topics if topic.name == READ]
    talk.note(talk.words.plain(answer))


def made(talk: Talk, version: int) -> None:
    """The first answer is given before the topic is there, or after: clients must be ready for both."""
    topic = f"made-by-metadata-{version}"
    talk.look(METADATA, version, topics=[{"name": topic}])
    talk.wait_for(topic)
    talk.ask(METADATA, version, topics=[{"name": topic}])


def api_versions() -> Iterator[Case]:
    for version in versions_of(API_VERSIONS):
        named = {"client_software_name": "tests", "client_software_version": "1.0"}
        yield case(API_VERSIONS, version, "our APIs", partial(our_apis, version=version, named=named))
    odd = {
        "no software name": ("", "1.0"),
        "no software version": ("tests", ""),
        "neither": ("", ""),
        "a space": ("my client", "1.0"),
        "a dash in front": ("-tests", "1.0"),
        "a dash behind": ("tests", "1.0-"),
        "dots and dashes": ("my.own-client", "1.0-rc.1"),
        "an underscore": ("my_client", "1.0"),
        "umlauts": ("klient-für", "1.0"),
        "a long name": ("x" * 1000, "1.0"),
        "a newline": ("tests\n", "1.0"),
        "a plus": ("tests", "1.0+build"),
    }
    for what, (name, software_version) in odd.items():
        for version in (3, 4):
            fields = {"client_software_name": name, "client_software_version": software_version}
            yield case(API_VERSIONS, version, what, partial(code_only, version=version, fields=fields))


def our_apis(talk: Talk, version: int, named: dict[str, str]) -> None:
    answer = talk.look(API_VERSIONS, version, **(named if version >= 3 else {}))
    served = {each.api_key: [each.min_version, each.max_version] for each in answer.api_keys}
    for key in SERVED:
        talk.note({"api_key": key, "versions": served.get(key)})
    answer.api_keys = []
    # The number counts changes of the features; each broker has had its own.
    answer.finalized_features_epoch = min(answer.finalized_features_epoch, 0)
    talk.note(talk.words.plain(answer))


def code_only(talk: Talk, version: int, fields: dict[str, str]) -> None:
    answer = talk.look(API_VERSIONS, version, **fields)
    served = bool(answer.api_keys)
    answer.api_keys = answer.supported_features = answer.finalized_features = []
    answer.finalized_features_epoch = -1
    talk.note(talk.words.plain(answer) | {"served": served})


def describe_cluster() -> Iterator[Case]:
    yield from each(DESCRIBE_CLUSTER, "the brokers")
    yield from each(DESCRIBE_CLUSTER, "with operations", include_cluster_authorized_operations=True)
    yield from each(DESCRIBE_CLUSTER, "with fenced ones", include_fenced_brokers=True)
    for endpoint_type in (0, 2, 3, -1, 127):
        yield from each(DESCRIBE_CLUSTER, f"endpoint type {endpoint_type}", endpoint_type=endpoint_type)
    yield from each(DESCRIBE_CLUSTER, "controllers with fenced ones", endpoint_type=2, include_fenced_brokers=True)


def describe_topic_partitions() -> Iterator[Case]:
    def named(*names: str, **more: Any) -> dict[str, Any]:
        return {"topics": [{"name": name} for name in names], **more}

    def at(topic: str, partition: int) -> dict[str, Any]:
        return {"cursor": {"topic_name": topic, "partition_index": partition}}

    questions = {
        "a topic": named(READ),
        "topics in no order": named("three", "one", READ),
        "a topic twice": named(READ, READ),
        "an unknown topic": named("nowhere"),
        "a bad name": named("a/b"),
        "the empty name": named(""),
        "known and unknown": named("three", "nowhere", "one"),
        "limit 1": named("three", response_partition_limit=1),
        "limit 2 of two topics": named("one", "three", response_partition_limit=2),
        "limit 1 of two topics": named("one", "three", response_partition_limit=1),
        "limit 3 of exactly three": named("three", response_partition_limit=3),
        "limit 4 of exactly four": named("one", "three", response_partition_limit=4),
        "limit 0": named("three", response_partition_limit=0),
        "limit -1": named("three", response_partition_limit=-1),
        "limit 2^31-1": named("three", response_partition_limit=2**31 - 1),
        "cursor in the middle": named("three", **at("three", 1)),
        "cursor at the first": named("three", **at("three", 0)),
        "cursor at the end": named("three", **at("three", 3)),
        "cursor far beyond": named("three", **at("three", 1000)),
        "cursor at partition -1": named("three", **at("three", -1)),
        "cursor skips topics": named("one", READ, "three", **at(READ, 1)),
        "cursor behind all": named("one", "three", **at("zzz", 0)),
        "cursor at a topic that was not named": named("one", "three", **at(READ, 1)),
        "cursor at an unknown topic": named("one", "three", **at("p", 1)),
        "cursor and limit": named("one", "three", READ, response_partition_limit=2, **at(READ, 1)),
        "internal topic": named("__consumer_offsets"),
        "__cluster_metadata": named("__cluster_metadata"),
        "unknown before the limit": named("aaa", "three", response_partition_limit=1),
    }
    yield from newest(DESCRIBE_TOPIC_PARTITIONS, questions)
    yield case(DESCRIBE_TOPIC_PARTITIONS, 0, "all topics, from a cursor", all_from_cursor)


def all_from_cursor(talk: Talk) -> None:
    """No names means all topics; only those of the stage are looked at."""
    answer = talk.look(DESCRIBE_TOPIC_PARTITIONS, 0, topics=[], cursor={"topic_name": "one", "partition_index": 0})
    answer.topics = [topic for topic in answer.topics if topic.name in (READ, "one", "three", "append-time")]
    talk.note(talk.words.plain(answer, ordered=True))
