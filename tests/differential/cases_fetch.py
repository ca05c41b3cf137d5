"""Fetch: offsets, epochs, limits, isolation and sessions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import UUID

from tests.differential.case import Case, case
from tests.differential.stage import READ
from tests.differential.talk import Talk
from tests.differential.words import Id, versions_of

FETCH = 1
BY_ID, SESSIONS, EPOCHS = 13, 7, 9
STRANGER = UUID(int=0x1234567890)
PARTITION_FIELDS = {
    "partition",
    "current_leader_epoch",
    "fetch_offset",
    "last_fetched_epoch",
    "log_start_offset",
    "partition_max_bytes",
}


def cases() -> Iterator[Case]:
    yield from each_version()
    yield from one_version()
    yield from sessions()


def fields(version: int, topic: str = READ, **more: Any) -> dict[str, Any]:
    named: dict[str, Any] = {"topic_id": Id(topic)} if version >= BY_ID else {"topic": topic}
    partition = {"partition_max_bytes": 1 << 20, **{key: more.pop(key) for key in PARTITION_FIELDS & more.keys()}}
    return {"max_bytes": 1 << 20, "topics": [{**named, "partitions": [partition]}], **more}


def each_version() -> Iterator[Case]:
    questions: dict[str, dict[str, Any]] = {
        "from 0": {},
        "from the middle of a batch": {"fetch_offset": 3},
        "from the last batch": {"fetch_offset": 8},
        "at the end": {"fetch_offset": 10},
        "beyond the end": {"fetch_offset": 11},
        "from -1": {"fetch_offset": -1},
        "an unknown partition": {"partition": 9},
        "one byte": {"partition_max_bytes": 1},
        "one byte in all": {"max_bytes": 1},
        "an empty partition": {"partition": 1},
        "read committed": {"isolation_level": 1},
    }
    for version in versions_of(FETCH):
        for what, more in questions.items():
            yield case(FETCH, version, what, partial(asked, version=version, more=more))
        if version >= EPOCHS:
            for epoch in (0, 1, 999, -2):
                more = {"current_leader_epoch": epoch}
                yield case(FETCH, version, f"leader epoch {epoch}", partial(asked, version=version, more=more))
        if version >= 12:
            for epoch, offset in ((0, 5), (0, 50), (5, 5), (-5, 5)):
                more = {"last_fetched_epoch": epoch, "fetch_offset": offset}
                what = f"last fetched epoch {epoch} at {offset}"
                yield case(FETCH, version, what, partial(asked, version=version, more=more))
        if version < BY_ID:
            yield case(FETCH, version, "an unknown topic", partial(asked, version=version, more={"topic": "nowhere"}))
        else:
            for what, topic_id in (("an unknown id", STRANGER), ("a zero id", UUID(int=0))):
                yield case(FETCH, version, what, partial(asked_by_id, version=version, topic_id=topic_id))


def asked(talk: Talk, version: int, more: dict[str, Any]) -> None:
    talk.ask(FETCH, version, **fields(version, **more))


def asked_by_id(talk: Talk, version: int, topic_id: UUID) -> None:
    partition = {"partition_max_bytes": 1 << 20}
    talk.ask(FETCH, version, max_bytes=1 << 20, topics=[{"topic_id": topic_id, "partitions": [partition]}])


def one_version() -> Iterator[Case]:
    far = 2**63 - 1
    questions: dict[str, dict[str, Any]] = {
        "no bytes": {"max_bytes": 0},
        "no bytes of a partition": {"partition_max_bytes": 0},
        "negative bytes": {"max_bytes": -1},
        "negative bytes of a partition": {"partition_max_bytes": -1},
        "min bytes are there": {"min_bytes": 10, "max_wait_ms": 60_000},
        "min bytes negative": {"min_bytes": -1, "max_wait_ms": 60_000},
        "min bytes never come": {"min_bytes": 1 << 30, "max_wait_ms": 1},
        "a negative wait": {"min_bytes": 1 << 30, "max_wait_ms": -1},
        "an error does not wait": {"partition": 9, "min_bytes": 1 << 30, "max_wait_ms": 60_000},
        "isolation 9": {"isolation_level": 9},
        "isolation -1": {"isolation_level": -1},
        "the greatest offset": {"fetch_offset": far},
        "the least offset": {"fetch_offset": -far - 1},
        "partition -1": {"partition": -1},
        "partition 2^31-1": {"partition": 2**31 - 1},
        "a rack": {"rack_id": "somewhere"},
        "as a follower that is nobody": {"replica_id": 99},
        "as a debugging consumer": {"replica_id": -2},
        "as broker 1": {"replica_id": 1},
        "a log start offset": {"log_start_offset": 5},
        "from an internal topic": {"topic": "__cluster_metadata"},
        "from a bad name": {"topic": "a/b"},
        "from the empty name": {"topic": ""},
    }
    for version in (4, 11):
        for what, more in questions.items():
            if what == "a rack" and version < 11:
                continue
            yield case(FETCH, version, what, partial(asked, version=version, more=more))
    part = {"partition_max_bytes": 1 << 20}
    whole: dict[str, list[dict[str, Any]]] = {
        "nothing": [],
        "a topic without partitions": [{"topic": READ, "partitions": []}],
        "a topic twice": [{"topic": READ, "partitions": [part]}] * 2,
        "a partition twice": [{"topic": READ, "partitions": [part, part]}],
        "two partitions": [{"topic": READ, "partitions": [part, {**part, "partition": 1}]}],
        "known and unknown": [{"topic": READ, "partitions": [part]}, {"topic": "nowhere", "partitions": [part]}],
        "two topics, one byte": [
            {"topic": READ, "partitions": [{"partition_max_bytes": 1}]},
            {"topic": "trimmed", "partitions": [{"partition": 1, "partition_max_bytes": 1}]},
        ],
    }
    for version in (4, 12):
        for what, topics in whole.items():
            yield case(FETCH, version, what, partial(asked_whole, version=version, topics=topics))


def asked_whole(talk: Talk, version: int, topics: list[dict[str, Any]]) -> None:
    talk.ask(FETCH, version, max_bytes=1 << 20, topics=topics)


def sessions() -> Iterator[Case]:
    for version in (7, 12, 13, 18):
        for what, story in STORIES.items():
            yield case(FETCH, version, f"session: {what}", partial(story, version=version))
        for session_id, epoch in ((4711, 3), (4711, 0), (4711, -1), (0, 5), (0, -1), (-1, 0), (-5, -5)):
            more = {"session_id": session_id, "session_epoch": epoch}
            what = f"session {session_id}, epoch {epoch}"
            yield case(FETCH, version, what, partial(asked, version=version, more=more))


def opened(talk: Talk, version: int) -> int:
    answer = talk.ask(FETCH, version, **fields(version, fetch_offset=8, session_epoch=0))
    session_id: int = answer.session_id
    return session_id


def goes_on(talk: Talk, version: int) -> None:
    session_id = opened(talk, version)
    for epoch in (1, 2):
        talk.ask(FETCH, version, max_bytes=1 << 20, session_id=session_id, session_epoch=epoch)


def wrong_epoch(talk: Talk, version: int) -> None:
    session_id = opened(talk, version)
    for epoch in (7, 0, 1, -1, 1):
        talk.ask(FETCH, version, max_bytes=1 << 20, session_id=session_id, session_epoch=epoch)


def same_epoch_again(talk: Talk, version: int) -> None:
    session_id = opened(talk, version)
    for _ in range(2):
        talk.ask(FETCH, version, max_bytes=1 << 20, session_id=session_id, session_epoch=1)


def moves(talk: Talk, version: int) -> None:
    session_id = opened(talk, version)
    for epoch, offset in ((1, 10), (2, 6), (3, 11)):
        talk.ask(FETCH, version, **fields(version, fetch_offset=offset, session_id=session_id, session_epoch=epoch))
    talk.ask(FETCH, version, max_bytes=1 << 20, session_id=session_id, session_epoch=4)


def adds_and_forgets(talk: Talk, version: int) -> None:
    session_id = opened(talk, version)
    added = fields(version, partition=1, session_id=session_id, session_epoch=1)
    talk.ask(FETCH, version, **added)
    named: dict[str, Any] = {"topic_id": Id(READ)} if version >= BY_ID else {"topic": READ}
    forgotten = [{**named, "partitions": [0]}]
    whole: dict[str, Any] = {"max_bytes": 1 << 20, "session_id": session_id}
    talk.ask(FETCH, version, session_epoch=2, forgotten_topics_data=forgotten, **whole)
    forgotten = [{**named, "partitions": [1, 9]}]
    talk.ask(FETCH, version, session_epoch=3, forgotten_topics_data=forgotten, **whole)
    talk.ask(FETCH, version, session_epoch=4, **whole)


def adds_unknown(talk: Talk, version: int) -> None:
    session_id = opened(talk, version)
    named: dict[str, Any] = {"topic_id": STRANGER} if version >= BY_ID else {"topic": "nowhere"}
    topics = [{**named, "partitions": [{"partition_max_bytes": 1 << 20}]}]
    talk.ask(FETCH, version, max_bytes=1 << 20, session_id=session_id, session_epoch=1, topics=topics)
    talk.ask(FETCH, version, max_bytes=1 << 20, session_id=session_id, session_epoch=2)


def of_another_connection(talk: Talk, version: int) -> None:
    session_id = opened(talk, version)
    talk.ask(FETCH, version, client="other", max_bytes=1 << 20, session_id=session_id, session_epoch=1)


def closed(talk: Talk, version: int) -> None:
    session_id = opened(talk, version)
    talk.ask(FETCH, version, **fields(version, session_id=session_id, session_epoch=-1))
    talk.ask(FETCH, version, max_bytes=1 << 20, session_id=session_id, session_epoch=1)


def opened_with_nothing(talk: Talk, version: int) -> None:
    talk.ask(FETCH, version, max_bytes=1 << 20, session_epoch=0)


STORIES = {
    "goes on": goes_on,
    "wrong epochs": wrong_epoch,
    "the same epoch again": same_epoch_again,
    "moves": moves,
    "adds and forgets": adds_and_forgets,
    "adds what is not there": adds_unknown,
    "of another connection": of_another_connection,
    "closed": closed,
    "opened with nothing": opened_with_nothing,
}
