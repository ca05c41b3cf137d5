"""InitProducerId and DescribeProducers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from tests.differential.case import Case, case, each, newest
from tests.differential.stage import READ, records, write
from tests.differential.talk import Talk

INIT, DESCRIBE = 22, 61


def cases() -> Iterator[Case]:
    def asked(transactional_id: str | None = None, **more: Any) -> dict[str, Any]:
        return {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000, **more}

    questions: dict[str, dict[str, Any]] = {
        "an id": asked(),
        "an id, timeout 0": asked(transaction_timeout_ms=0),
        "an id, timeout -1": asked(transaction_timeout_ms=-1),
        "an id, timeout 2^31-1": asked(transaction_timeout_ms=2**31 - 1),
        "an empty transactional id": asked(""),
        "an id that is not known": asked(producer_id=4711, producer_epoch=0),
        "an id without an epoch": asked(producer_id=4711),
        "an epoch without an id": asked(producer_epoch=5),
        "negative numbers": asked(producer_id=-7, producer_epoch=-7),
        "the greatest epoch": asked(producer_id=4711, producer_epoch=2**15 - 1),
        "a transactional id": asked("t-1"),
        "a transactional id, timeout 0": asked("t-2", transaction_timeout_ms=0),
        "a transactional id, too long": asked("t-3", transaction_timeout_ms=900_001),
    }
    for what, fields in questions.items():
        yield from each(INIT, what, **fields)
    yield case(INIT, 5, "two ids differ", two)
    yield from describe()


def two(talk: Talk) -> None:
    first, second = (talk.ask(INIT, 5, transactional_id=None, transaction_timeout_ms=1000) for _ in range(2))
    talk.note({"differ": first.producer_id != second.producer_id})


def describe() -> Iterator[Case]:
    def of(topic: str, *partitions: int) -> dict[str, Any]:
        return {"topics": [{"name": topic, "partition_indexes": list(partitions)}]}

    questions: dict[str, dict[str, Any]] = {
        "none": of(READ, 0),
        "an unknown topic": of("nowhere", 0),
        "an unknown partition": of(READ, 9),
        "partition -1": of(READ, -1),
        "a bad name": of("a/b", 0),
        "the empty name": of("", 0),
        "an internal topic": of("__consumer_offsets", 99),
        "no partitions": of(READ),
        "nothing": {"topics": []},
        "a partition twice": of(READ, 0, 0),
        "a topic twice": {"topics": of(READ, 0)["topics"] * 2},
        "known and unknown": of(READ, 0, 9),
    }
    yield from newest(DESCRIBE, questions)
    yield case(DESCRIBE, 0, "some", partial(described, topic="described"))


def described(talk: Talk, topic: str) -> None:
    talk.create(topic, 2, retention_ms="-1")
    write(talk, topic, records(["a", "b"], producer_id=5000, producer_epoch=3, base_sequence=0))
    write(talk, topic, records(["c"], producer_id=5000, producer_epoch=3, base_sequence=2))
    write(talk, topic, records(["d"], producer_id=5001, producer_epoch=0, base_sequence=0))
    write(talk, topic, records(["e"], producer_id=5000, producer_epoch=4, base_sequence=0), 1)
    talk.ask(DESCRIBE, 0, topics=[{"name": topic, "partition_indexes": [0, 1]}])
