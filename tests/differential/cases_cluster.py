"""DescribeLogDirs and UpdateFeatures."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from tests.differential.case import Case, case, each
from tests.differential.stage import READ
from tests.differential.talk import Talk
from tests.differential.words import versions_of

LOG_DIRS, UPDATE_FEATURES = 35, 57


def cases() -> Iterator[Case]:
    yield from log_dirs()
    yield from features()


def log_dirs() -> Iterator[Case]:
    questions: dict[str, list[dict[str, Any]]] = {
        "a topic": [{"topic": READ, "partitions": [0, 1]}],
        "one partition": [{"topic": READ, "partitions": [0]}],
        "an unknown topic": [{"topic": "nowhere", "partitions": [0]}],
        "an unknown partition": [{"topic": READ, "partitions": [9, -1]}],
        "no partitions": [{"topic": READ, "partitions": []}],
        "nothing": [],
        "a topic twice": [{"topic": READ, "partitions": [0]}, {"topic": READ, "partitions": [1]}],
        "a partition twice": [{"topic": READ, "partitions": [0, 0]}],
        "a bad name": [{"topic": "a/b", "partitions": [0]}],
        "the metadata topic": [{"topic": "__cluster_metadata", "partitions": [0]}],
    }
    for what, topics in questions.items():
        yield from each(LOG_DIRS, what, topics=topics)
    for version in versions_of(LOG_DIRS):
        yield case(LOG_DIRS, version, "all", partial(everything, version=version))


def everything(talk: Talk, version: int) -> None:
    """Only the topics of the stage that no case writes to."""
    answer = talk.look(LOG_DIRS, version, topics=None)
    for result in answer.results:
        names = {topic.name for topic in result.topics}
        talk.note(sorted(names & {READ, "one", "__consumer_offsets", "__cluster_metadata"}))
        result.topics = [topic for topic in result.topics if topic.name in (READ, "one")]
    talk.note(talk.words.plain(answer))


def features() -> Iterator[Case]:
    def update(feature: str, level: int, kind: int = 1) -> dict[str, Any]:
        return {"feature": feature, "max_version_level": level, "upgrade_type": kind}

    questions: dict[str, list[dict[str, Any]]] = {
        "nothing": [],
        "metadata.version as it is": [update("metadata.version", 30)],
        "metadata.version too high": [update("metadata.version", 999)],
        "metadata.version 0": [update("metadata.version", 0)],
        "metadata.version 0 downgrade": [update("metadata.version", 0, 2)],
        "metadata.version lower": [update("metadata.version", 29)],
        "metadata.version lower, downgrade": [update("metadata.version", 29, 2)],
        "metadata.version lower, unsafe": [update("metadata.version", 29, 3)],
        "metadata.version far too low": [update("metadata.version", 1, 3)],
        "metadata.version -1": [update("metadata.version", -1)],
        "unknown feature": [update("no.such", 1)],
        "unknown feature to 0": [update("no.such", 0, 2)],
        "no name": [update("", 1)],
        "kind 0": [update("metadata.version", 30, 0)],
        "kind 4": [update("metadata.version", 30, 4)],
        "kind -1": [update("metadata.version", 30, -1)],
        "twice": [update("metadata.version", 30), update("metadata.version", 29)],
        "a good and a bad one": [update("metadata.version", 30), update("no.such", 1)],
        "two bad ones": [update("no.such", 1), update("nor.this", 1)],
        "transaction.version too high": [update("transaction.version", 99)],
        "group.version as it is": [update("group.version", 1)],
        "kraft.version as it is": [update("kraft.version", 1)],
        "kraft.version lower": [update("kraft.version", 0, 2)],
    }
    for what, updates in questions.items():
        yield from each(UPDATE_FEATURES, what, versions=[1, 2], feature_updates=updates, validate_only=True)
    plain: dict[str, list[dict[str, Any]]] = {
        "nothing": [],
        "unknown feature": [{"feature": "no.such", "max_version_level": 1}],
        "metadata.version as it is": [{"feature": "metadata.version", "max_version_level": 30}],
        "metadata.version too high": [{"feature": "metadata.version", "max_version_level": 999}],
        "metadata.version lower": [{"feature": "metadata.version", "max_version_level": 29}],
        "metadata.version 0": [{"feature": "metadata.version", "max_version_level": 0}],
        "no name": [{"feature": "", "max_version_level": 1}],
        "metadata.version far too low": [
            {"feature": "metadata.version", "max_version_level": 1, "allow_downgrade": True}
        ],
    }
    for what, updates in plain.items():
        yield from each(UPDATE_FEATURES, what, versions=[0], feature_updates=updates)
    for version in (1, 2):
        as_it_is = [update("metadata.version", 30)]
        yield from each(UPDATE_FEATURES, "in earnest, as it is", versions=[version], feature_updates=as_it_is)
        unknown = [update("no.such", 1)]
        yield from each(UPDATE_FEATURES, "in earnest, unknown", versions=[version], feature_updates=unknown)
        yield from each(UPDATE_FEATURES, "a timeout of -1", versions=[version], feature_updates=as_it_is, timeout_ms=-1)
