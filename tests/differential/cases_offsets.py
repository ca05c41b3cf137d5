"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from tests.differential.case import Case, case, each, ends
from tests.differential.stage import READ, T0_MS
from tests.differential.talk import Talk
from tests.differential.words import versions_of

LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH, DELETE_RECORDS, FETCH = 2, 23, 21, 1


def cases() -> Iterator[Case]:
    yield from list_offsets()
    yield from leader_epochs()
    yield from delete_records()


def list_offsets() -> Iterator[Case]:
    def at(timestamp: int, topic: str = READ, partition: int = 0, **more: Any) -> dict[str, Any]:
        asked = {"partition_index": partition, "timestamp": timestamp, **more}
        return {"topics": [{"name": topic, "partitions": [asked]}]}

    times = {
        "the end": -1,
        "the beginning": -2,
        "the greatest time": -3,
        "the beginning here": -4,
        "the last tiered": -5,
        "the first not yet tiered": -6,
        "kind -7": -7,
        "kind -9": -9,
        "the first time": T0_MS,
        "a time before all": T0_MS - 1,
        "a time inside a batch": T0_MS + 10_500,
        "the last time": T0_MS + 41_000,
        "a time behind all": T0_MS + 41_001,
        "time 0": 0,
        "the greatest number": 2**63 - 1,
        "the least number": -(2**63),
    }
    for what, timestamp in times.items():
        yield from each(LIST_OFFSETS, what, **at(timestamp))
    for what, timestamp in (("the end", -1), ("the greatest time", -3), ("time 0", 0), ("the last tiered", -5)):
        yield from ends(LIST_OFFSETS, {f"{what} of an empty partition": at(timestamp, partition=1)})
    two = [{"partition_index": 0, "timestamp": -1}, {"partition_index": 1, "timestamp": -2}]
    twice = [{"partition_index": 0, "timestamp": -1}, {"partition_index": 0, "timestamp": -2}]
    questions: dict[str, dict[str, Any]] = {
        "an unknown topic": at(-1, "nowhere"),
        "an unknown partition": at(-1, partition=9),
        "partition -1": at(-1, partition=-1),
        "a bad name": at(-1, "a/b"),
        "the metadata topic": at(-1, "__cluster_metadata"),
        "an internal topic": at(-1, "__consumer_offsets", 99),
        "nothing": {"topics": []},
        "no partitions": {"topics": [{"name": READ, "partitions": []}]},
        "two partitions": {"topics": [{"name": READ, "partitions": two}]},
        "a partition twice": {"topics": [{"name": READ, "partitions": twice}]},
        "a topic twice": {"topics": [{"name": READ, "partitions": two[:1]}] * 2},
        "as a debugging consumer": {**at(-1), "replica_id": -2},
        "as a follower": {**at(-1), "replica_id": 99},
        "read committed": {**at(-1), "isolation_level": 1},
        "read committed, by time": {**at(T0_MS + 10_500), "isolation_level": 1},
        "isolation 9": {**at(-1), "isolation_level": 9},
        "leader epoch 0": at(-1, current_leader_epoch=0),
        "leader epoch 999": at(-1, current_leader_epoch=999),
        "leader epoch -2": at(-1, current_leader_epoch=-2),
        "leader epoch 999 of a time": at(T0_MS, current_leader_epoch=999),
        "a timeout of 1 ms": {**at(-5), "timeout_ms": 1},
        "a negative timeout": {**at(T0_MS), "timeout_ms": -1},
    }
    yield from ends(LIST_OFFSETS, questions)


def leader_epochs() -> Iterator[Case]:
    def at(epoch: int, topic: str = READ, partition: int = 0, **more: Any) -> dict[str, Any]:
        asked = {"partition": partition, "leader_epoch": epoch, **more}
        return {"topics": [{"topic": topic, "partitions": [asked]}]}

    questions: dict[str, dict[str, Any]] = {
        "epoch 0": at(0),
        "epoch 1": at(1),
        "epoch 999": at(999),
        "epoch -1": at(-1),
        "epoch -2": at(-2),
        "the greatest epoch": at(2**31 - 1),
        "of an empty partition": at(0, partition=1),
        "a later epoch of an empty partition": at(3, partition=1),
        "with current epoch 0": at(0, current_leader_epoch=0),
        "with current epoch 999": at(0, current_leader_epoch=999),
        "with current epoch -2": at(0, current_leader_epoch=-2),
        "epoch 999 with current epoch 0": at(999, current_leader_epoch=0),
        "an unknown topic": at(0, "nowhere"),
        "an unknown partition": at(0, partition=9),
        "partition -1": at(0, partition=-1),
        "a bad name": at(0, "a/b"),
        "nothing": {"topics": []},
        "no partitions": {"topics": [{"topic": READ, "partitions": []}]},
        "a topic twice": {"topics": at(0)["topics"] * 2},
        "a partition twice": {"topics": [{"topic": READ, "partitions": [{"leader_epoch": 0}, {"leader_epoch": 1}]}]},
        "as a debugging consumer": {**at(0), "replica_id": -2},
        "as a consumer": {**at(0), "replica_id": -1},
        "as broker 99": {**at(0), "replica_id": 99},
    }
    for what, fields in questions.items():
        yield from each(OFFSET_FOR_LEADER_EPOCH, what, **fields)


def delete_records() -> Iterator[Case]:
    def at(offset: int, topic: str = READ, partition: int = 0) -> dict[str, Any]:
        asked = {"partition_index": partition, "offset": offset}
        return {"topics": [{"name": topic, "partitions": [asked]}], "timeout_ms": 5000}

    questions: dict[str, dict[str, Any]] = {
        "up to 0": at(0),
        "beyond the end": at(11),
        "up to -2": at(-2),
        "the greatest offset": at(2**63 - 1),
        "an empty partition up to 0": at(0, partition=1),
        "an empty partition up to the end": at(-1, partition=1),
        "an unknown topic": at(0, "nowhere"),
        "an unknown partition": at(0, partition=9),
        "partition -1": at(0, partition=-1),
        "a bad name": at(0, "a/b"),
        "a compacted topic": at(0, "compacted"),
        "a compacted topic that is also deleted": at(0, "configured"),
        "an internal topic": at(0, "__consumer_offsets"),
        "the metadata topic": at(0, "__cluster_metadata"),
        "nothing": {"topics": [], "timeout_ms": 5000},
        "no partitions": {"topics": [{"name": READ, "partitions": []}], "timeout_ms": 5000},
        "a topic twice": {"topics": at(0)["topics"] * 2, "timeout_ms": 5000},
        "a timeout of 0": {**at(0), "timeout_ms": 0},
        "a negative timeout": {**at(0), "timeout_ms": -1},
    }
    for what, fields in questions.items():
        yield from each(DELETE_RECORDS, what, **fields)
    for version in versions_of(DELETE_RECORDS):
        yield case(DELETE_RECORDS, version, "more and more", partial(trimmed, version=version))


def trimmed(talk: Talk, version: int) -> None:
    """Each version has a partition of its own. What is gone is gone for every reader."""
    partition = version

    def cut(offset: int) -> None:
        asked = {"partition_index": partition, "offset": offset}
        talk.ask(DELETE_RECORDS, version, topics=[{"name": "trimmed", "partitions": [asked]}], timeout_ms=5000)

    def look(timestamp: int) -> None:
        asked = {"partition_index": partition, "timestamp": timestamp}
        talk.ask(LIST_OFFSETS, 7, topics=[{"name": "trimmed", "partitions": [asked]}])

    for offset in (3, 3, 1, 4):
        cut(offset)
    for timestamp in (-2, -1, -3, T0_MS, T0_MS + 20_000):
        look(timestamp)
    for offset in (0, 3, 4):
        wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        talk.ask(FETCH, 11, max_bytes=1 << 20, topics=[{"topic": "trimmed", "partitions": [wanted]}])
    epoch = {"partition": partition, "leader_epoch": 0}
    talk.ask(OFFSET_FOR_LEADER_EPOCH, 4, topics=[{"topic": "trimmed", "partitions": [epoch]}])
    cut(-1)
    for timestamp in (-2, -1, -3, T0_MS):
        look(timestamp)
    cut(10)
    cut(11)
