"""CreateTopics, DeleteTopics and CreatePartitions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import UUID

from tests.differential.case import Case, case, each, ends
from tests.differential.stage import READ
from tests.differential.talk import Talk
from tests.differential.words import Id, versions_of
from tests.hostile.test_topic_names import BAD_NAMES, GOOD_NAMES

CREATE, DELETE, CREATE_PARTITIONS, METADATA = 19, 20, 37, 3
STRANGER = UUID(int=0x1234567890)
TIMEOUT: dict[str, Any] = {"timeout_ms": 10_000}


def cases() -> Iterator[Case]:
    yield from create_topics()
    yield from delete_topics()
    yield from create_partitions()


def create_topics() -> Iterator[Case]:
    def topic(name: str = "fresh", **more: Any) -> dict[str, Any]:
        return {"name": name, "num_partitions": 1, "replication_factor": 1, **more}

    def only(*topics: dict[str, Any], **more: Any) -> dict[str, Any]:
        """Only asked about, so that the same question can be put in every version."""
        return {"topics": list(topics), "validate_only": True, **TIMEOUT, **more}

    def configs(**values: str | None) -> list[dict[str, Any]]:
        return [{"name": name.replace("_", "."), "value": value} for name, value in values.items()]

    def assigned(*replicas: list[int], start: int = 0, **more: Any) -> dict[str, Any]:
        placed = [{"partition_index": start + index, "broker_ids": ids} for index, ids in enumerate(replicas)]
        return topic(num_partitions=-1, replication_factor=-1, assignments=placed, **more)

    questions: dict[str, dict[str, Any]] = {
        "sound": only(topic()),
        "exists": only(topic(READ)),
        "collides": only(topic("dotted_name")),
        "collides with another of the request": only(topic("a.b"), topic("a_b")),
        "twice": only(topic(), topic()),
        "twice and another": only(topic(), topic(), topic("another")),
        "nothing": only(),
        "two, one of them bad": only(topic(), topic("a/b")),
        "0 partitions": only(topic(num_partitions=0)),
        "-1 partitions": only(topic(num_partitions=-1)),
        "-5 partitions": only(topic(num_partitions=-5)),
        "10,000 partitions": only(topic(num_partitions=10_000)),
        "10,001 partitions": only(topic(num_partitions=10_001)),
        "2^31-1 partitions": only(topic(num_partitions=2**31 - 1)),
        "two of 5,001 partitions": only(topic("a", num_partitions=5001), topic("b", num_partitions=5001)),
        "replication 0": only(topic(replication_factor=0)),
        "replication -1": only(topic(replication_factor=-1)),
        "replication -2": only(topic(replication_factor=-2)),
        "replication 2": only(topic(replication_factor=2)),
        "replication 32767": only(topic(replication_factor=2**15 - 1)),
        "assigned": only(assigned([1], [1])),
        "assigned to nobody": only(assigned([99])),
        "assigned to the same twice": only(assigned([1, 1])),
        "assigned to none": only(assigned([])),
        "assigned to -1": only(assigned([-1])),
        "assigned with a gap": only(assigned([1], start=5)),
        "assigned to unequal numbers": only(assigned([1], [1, 2])),
        "assigned one partition twice": only(
            topic(
                num_partitions=-1,
                replication_factor=-1,
                assignments=[{"partition_index": 0, "broker_ids": [1]}] * 2,
            )
        ),
        "assigned to a partition below 0": only(assigned([1], start=-1)),
        "assigned and counted": only(topic(assignments=[{"partition_index": 0, "broker_ids": [1]}])),
        "assigned and replicated": only({**assigned([1]), "replication_factor": 1}),
        "assigned and counted otherwise": only({**assigned([1]), "num_partitions": 1}),
        "__cluster_metadata": only(topic("__cluster_metadata")),
        "__consumer_offsets": only(topic("__consumer_offsets")),
        "a reserved prefix": only(topic("__mine")),
        "unknown config": only(topic(configs=configs(no_such="1"))),
        "config without a name": only(topic(configs=[{"name": "", "value": "1"}])),
        "config twice": only(topic(configs=configs(retention_ms="1") + configs(retention_ms="2"))),
        "bad value": only(topic(configs=configs(retention_ms="soon"))),
        "null value": only(topic(configs=configs(retention_ms=None))),
        "empty value": only(topic(configs=configs(retention_ms=""))),
        "value with spaces": only(topic(configs=configs(retention_ms=" 5000 "))),
        "small segment": only(topic(configs=configs(segment_bytes="1"))),
        "bad policy": only(topic(configs=configs(cleanup_policy="burn"))),
        "two policies": only(topic(configs=configs(cleanup_policy="compact,delete"))),
        "no policy": only(topic(configs=configs(cleanup_policy=""))),
        "bad timestamp type": only(topic(configs=configs(message_timestamp_type="Never"))),
        "bad compression": only(topic(configs=configs(compression_type="rar"))),
        "negative message size": only(topic(configs=configs(max_message_bytes="-1"))),
        "0 in-sync replicas": only(topic(configs=configs(min_insync_replicas="0"))),
        "dirty ratio 2": only(topic(configs=configs(min_cleanable_dirty_ratio="2"))),
        "bool that is none": only(topic(configs=configs(preallocate="maybe"))),
        "remote storage": only(topic(configs=configs(remote_storage_enable="true"))),
        "a broker's setting": only(topic(configs=configs(num_partitions="3"))),
        "an old setting": only(topic(configs=configs(message_format_version="3.0"))),
        "a negative timeout": only(topic(), timeout_ms=-1),
        "a timeout of 0": only(topic(), timeout_ms=0),
    }
    for what, fields in questions.items():
        yield from each(CREATE, what, **fields)
    for what, name in BAD_NAMES.items():
        yield from ends(CREATE, {f"bad name, {what}": only(topic(name))})
    for name in GOOD_NAMES:
        yield from ends(CREATE, {f"good name, {name[:10]} of {len(name)}": only(topic(name))})
    for version in versions_of(CREATE):
        yield case(CREATE, version, "made, seen and made again", partial(made, version=version))
        yield case(CREATE, version, "made with settings", partial(made_with_settings, version=version))


def made(talk: Talk, version: int) -> None:
    topic = f"made-{version}"
    asked = {"name": topic, "num_partitions": 2, "replication_factor": 1}
    talk.ask(CREATE, version, topics=[asked], **TIMEOUT)
    talk.wait_for(topic, 2)
    talk.ask(METADATA, 12, topics=[{"name": topic}])
    talk.ask(CREATE, version, topics=[asked], **TIMEOUT)


def made_with_settings(talk: Talk, version: int) -> None:
    """The answer of versions 5 and later lists every setting, with where its value comes from."""
    configs = [{"name": "retention.ms", "value": "99"}, {"name": "cleanup.policy", "value": "compact"}]
    asked = {"name": f"settings-{version}", "num_partitions": 1, "replication_factor": 1, "configs": configs}
    talk.ask(CREATE, version, topics=[asked], **TIMEOUT)


def delete_topics() -> Iterator[Case]:
    old, new = versions_of(DELETE)[:-1], versions_of(DELETE)[-1:]
    by_name: dict[str, list[str]] = {
        "an unknown topic": ["nowhere"],
        "an unknown topic twice": ["nowhere", "nowhere"],
        "nothing": [],
        "__cluster_metadata": ["__cluster_metadata"],
        "the empty name": [""],
        "a bad name": ["a/b"],
        "two unknown": ["nowhere", "elsewhere"],
    }
    for what, names in by_name.items():
        yield from each(DELETE, what, old, topic_names=names, **TIMEOUT)
        yield from each(DELETE, what, new, topics=[{"name": name} for name in names], **TIMEOUT)
    by_id: dict[str, list[dict[str, Any]]] = {
        "neither name nor id": [{"name": None}],
        "name and id": [{"name": READ, "topic_id": Id(READ)}],
        "name and another id": [{"name": READ, "topic_id": STRANGER}],
        "an unknown id": [{"name": None, "topic_id": STRANGER}],
        "an unknown id twice": [{"name": None, "topic_id": STRANGER}] * 2,
        "a topic twice by name": [{"name": READ}] * 2,
        "a topic twice by id": [{"name": None, "topic_id": Id(READ)}] * 2,
        "a topic by name and by id": [{"name": READ}, {"name": None, "topic_id": Id(READ)}],
        "empty name and id": [{"name": "", "topic_id": Id(READ)}],
    }
    for what, topics in by_id.items():
        yield from each(DELETE, what, new, topics=topics, **TIMEOUT)
    for what, name in BAD_NAMES.items():
        yield from each(DELETE, f"bad name, {what}", new, topics=[{"name": name}], **TIMEOUT)
    for version in versions_of(DELETE):
        yield case(DELETE, version, "gone and gone again", partial(gone, version=version))
    yield case(DELETE, 6, "gone by id", gone_by_id)
    yield case(DELETE, 6, "made again: another id", made_again)


def gone(talk: Talk, version: int) -> None:
    topic = f"going-{version}"
    talk.create(topic)
    asked: dict[str, Any] = {"topics": [{"name": topic}]} if version >= 6 else {"topic_names": [topic]}
    talk.ask(DELETE, version, **asked, **TIMEOUT)
    talk.wait_until_gone(topic)
    talk.ask(METADATA, 12, topics=[{"name": topic}], allow_auto_topic_creation=False)
    talk.ask(DELETE, version, **asked, **TIMEOUT)


def gone_by_id(talk: Talk) -> None:
    talk.create("going-by-id")
    topics = [{"name": None, "topic_id": Id("going-by-id")}]
    talk.ask(DELETE, 6, topics=topics, **TIMEOUT)
    talk.wait_until_gone("going-by-id")
    talk.ask(DELETE, 6, topics=topics, **TIMEOUT)
    talk.ask(METADATA, 12, topics=topics)
    talk.ask(
        1, 13, max_bytes=1000, topics=[{"topic_id": Id("going-by-id"), "partitions": [{"partition_max_bytes": 9}]}]
    )


def made_again(talk: Talk) -> None:
    talk.create("coming-back")
    first = talk.ids["coming-back"]
    talk.look(DELETE, 6, topics=[{"name": "coming-back"}], **TIMEOUT)
    talk.wait_until_gone("coming-back")
    talk.create("coming-back")
    talk.note({"another id": first != talk.ids["coming-back"]})
    talk.ask(METADATA, 12, topics=[{"name": None, "topic_id": first}])


def create_partitions() -> Iterator[Case]:
    def grown(name: str, count: int, *assignments: list[int], **more: Any) -> dict[str, Any]:
        placed = [{"broker_ids": ids} for ids in assignments] if assignments else None
        topic = {"name": name, "count": count, "assignments": placed}
        return {"topics": [topic], "validate_only": True, **TIMEOUT, **more}

    questions: dict[str, dict[str, Any]] = {
        "one more": grown("three", 4),
        "as many as there are": grown("three", 3),
        "fewer": grown("three", 2),
        "0": grown("three", 0),
        "-1": grown("three", -1),
        "10,003": grown("three", 10_003),
        "an unknown topic": grown("nowhere", 4),
        "a bad name": grown("a/b", 4),
        "the empty name": grown("", 4),
        "__consumer_offsets": grown("__consumer_offsets", 4),
        "__cluster_metadata": grown("__cluster_metadata", 4),
        "assigned": grown("three", 4, [1]),
        "assigned too many": grown("three", 4, [1], [1]),
        "assigned too few": grown("three", 5, [1]),
        "assigned to nobody": grown("three", 4, [99]),
        "assigned to -1": grown("three", 4, [-1]),
        "assigned to the same twice": grown("three", 4, [1, 1]),
        "assigned to none": grown("three", 4, []),
        "assigned to two": grown("three", 4, [1, 2]),
        "assigned to unequal numbers": grown("three", 5, [1], [1, 2]),
        "assigned an empty list": {**grown("three", 4), "topics": [{"name": "three", "count": 4, "assignments": []}]},
        "nothing": {"topics": [], **TIMEOUT},
        "twice": {**grown("three", 4), "topics": [{"name": "three", "count": 4, "assignments": None}] * 2},
        "twice and another": {
            **grown("three", 4),
            "topics": [{"name": name, "count": 4, "assignments": None} for name in ("three", "three", "one")],
        },
        "a known and an unknown topic": {
            **grown("three", 4),
            "topics": [{"name": name, "count": 4, "assignments": None} for name in ("three", "nowhere")],
        },
        "a negative timeout": grown("three", 4, timeout_ms=-1),
    }
    for what, fields in questions.items():
        yield from each(CREATE_PARTITIONS, what, **fields)
    for version in versions_of(CREATE_PARTITIONS):
        yield case(CREATE_PARTITIONS, version, "grows and is used", partial(grows, version=version))


def grows(talk: Talk, version: int) -> None:
    topic = f"growing-{version}"
    talk.create(topic, 2)
    asked = [{"name": topic, "count": 4, "assignments": None}]
    talk.ask(CREATE_PARTITIONS, version, topics=asked, validate_only=True, **TIMEOUT)
    talk.ask(CREATE_PARTITIONS, version, topics=asked, **TIMEOUT)
    talk.wait_for(topic, 4)
    talk.ask(METADATA, 12, topics=[{"name": topic}])
    talk.ask(CREATE_PARTITIONS, version, topics=asked, **TIMEOUT)
