"""Produce: requests that something is wrong with, each version, and how sound batches are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from uuid import UUID

from tests.differential.case import Case, case
from tests.differential.stage import T0_MS, WRITTEN, records
from tests.differential.talk import Talk, request
from tests.differential.words import Id, message_of, request_class, versions_of
from tests.hostile import produce_cases
from tests.hostile.batches import with_fields

from strandline.codec.compression import Compression
from strandline.codec.message import Message

PRODUCE, FETCH = 0, 1
BY_ID = 13
STRANGER = UUID(int=12345)
Batch = Callable[[], bytes | None]


def cases() -> Iterator[Case]:
    for name, known in produce_cases.CASES.items():
        yield case(PRODUCE, known.version, name, partial(spoilt, make=known.make, version=known.version))
    yield from each_version()
    yield from kept_batches()
    yield from sequences()
    yield from requests()


def spoilt(talk: Talk, make: Callable[[], Message], version: int) -> None:
    message: Any = make()
    named = message.topic_data[0]
    produce(talk, request(PRODUCE, version, message), version, named.name, named.partition_data[0].index)


def produce(talk: Talk, content: bytes, version: int, topic: str, partition: int = 0) -> None:
    """Write down the answer and by how much the log grew; offsets count from where its end was before."""
    is_there = topic in talk.ids and 0 <= partition < 2
    before = talk.end_offset(topic, partition) if is_there else 0
    talk.ask_raw(content, PRODUCE, version)
    talk.answers[-1] = counted_from(before, talk.answers[-1])
    if is_there and talk.answers[-1] != "hangs":
        talk.note({"grew": talk.end_offset(topic, partition) - before})


def counted_from(before: int, said: Any) -> Any:
    match said:
        case dict():
            return {
                name: value - before if name == "base_offset" and value >= 0 else counted_from(before, value)
                for name, value in said.items()
            }
        case list():
            return [counted_from(before, each) for each in said]
    return said


def fields(topic: str, batch: Batch, version: int, *, partition: int = 0, **more: Any) -> dict[str, Any]:
    name: dict[str, Any] = {"topic_id": Id(topic)} if version >= BY_ID else {"name": topic}
    whole = {"acks": -1, "timeout_ms": 10_000}
    return {**whole, **more, "topic_data": [{**name, "partition_data": [{"index": partition, "records": batch}]}]}


def asked(talk: Talk, batch: Batch, version: int, topic: str, **more: Any) -> None:
    before = talk.end_offset(topic, more.get("partition", 0))
    talk.ask(PRODUCE, version, **fields(topic, batch, version, **more))
    talk.answers[-1] = counted_from(before, talk.answers[-1])


def each_version() -> Iterator[Case]:
    questions: dict[str, tuple[Batch, dict[str, Any]]] = {
        "a batch": (records, {}),
        "a batch, acks 1": (records, {"acks": 1}),
        "a batch, acks 0": (records, {"acks": 0}),
        "a wrong CRC, acks 0": (lambda: with_fields(records(), crc=1), {"acks": 0}),
        "a wrong CRC": (lambda: with_fields(records(), crc=1), {}),
        "zstd": (lambda: records(compression=Compression.ZSTD), {}),
        "no records": (lambda: b"", {}),
        "an old sequence": (lambda: records(producer_id=7000, producer_epoch=0, base_sequence=9), {"partition": 1}),
        "a gap in the sequence": (
            lambda: records(producer_id=7000, producer_epoch=0, base_sequence=99),
            {"partition": 1},
        ),
    }
    for version in versions_of(PRODUCE):
        for what, (batch, more) in questions.items():
            # What nobody waits for is written to a topic of its own: its end moves at any time.
            topic = "unheard" if more.get("acks") == 0 else WRITTEN
            script = partial(asked, batch=batch, version=version, topic=topic, **more)
            yield case(PRODUCE, version, f"{what}, each version", script)
        if version < BY_ID:
            nowhere = partial(unknown, version=version)
            yield case(PRODUCE, version, "an unknown topic, each version", nowhere)
    for version in (0, 1, 2, 14, 99, -1):
        yield case(PRODUCE, version, "a version that is not there", partial(no_such_version, version=version))


def unknown(talk: Talk, version: int) -> None:
    talk.ask(PRODUCE, version, **fields("nowhere", records, version))


def no_such_version(talk: Talk, version: int) -> None:
    nothing = message_of(request_class(PRODUCE), {"acks": -1, "timeout_ms": 1000, "topic_data": []})
    content = request(PRODUCE, 9, nothing)
    talk.ask_raw(content[:6] + version.to_bytes(2, "big", signed=True) + content[8:], PRODUCE, 9)


def kept_batches() -> Iterator[Case]:
    """A sound batch is read back: what of its header did the broker change?"""
    batches: dict[str, tuple[str, Batch]] = {
        "plain": (WRITTEN, lambda: records(["a", "b", "c"])),
        "a leader epoch": (WRITTEN, lambda: records(leader_epoch=99)),
        "an attribute nobody knows": (WRITTEN, lambda: with_fields(records(), attributes=0x0800)),
        "append time bit": (WRITTEN, lambda: with_fields(records(), attributes=0x08)),
        "max timestamp below base": (WRITTEN, lambda: with_fields(records(["a", "b"]), max_timestamp=T0_MS - 5000)),
        "max timestamp above the last": (WRITTEN, lambda: with_fields(records(["a", "b"]), max_timestamp=T0_MS + 9000)),
        "no timestamp": (WRITTEN, lambda: records(at_ms=-1)),
        "on an append-time topic": ("append-time", lambda: records(["a", "b"])),
        "idempotent": (WRITTEN, lambda: records(producer_id=7100, producer_epoch=2, base_sequence=0)),
    }
    for codec in Compression:
        batches[codec.name.lower()] = (WRITTEN, partial(records, ["a", "b"], compression=codec))
    for what, (topic, batch) in batches.items():
        yield case(PRODUCE, 9, f"kept: {what}", partial(kept, topic=topic, batch=batch))


def kept(talk: Talk, topic: str, batch: Batch) -> None:
    before = talk.end_offset(topic, 1)
    asked(talk, batch, 9, topic, partition=1)
    wanted = {"partition": 1, "fetch_offset": before, "partition_max_bytes": 1 << 20}
    answer = talk.look(FETCH, 11, max_bytes=1 << 20, topics=[{"topic": topic, "partitions": [wanted]}])
    for found in talk.words.plain(answer)["responses"][0]["partitions"][0]["records"]:
        found["base_offset"] = found.get("base_offset", 0) - before
        found["records"] = [words.split(" ", 1)[1] for words in found["records"]]
        talk.note(found)


def sequences() -> Iterator[Case]:
    """What an idempotent producer may send after what. Each story has a producer of its own."""
    stories: dict[str, list[tuple[int, int]]] = {
        "one after the other": [(0, 0), (0, 1), (0, 2)],
        "the last again": [(0, 0), (0, 1), (0, 1)],
        "the first of two again": [(0, 0), (0, 1), (0, 0)],
        "the first of seven again": [*((0, at) for at in range(7)), (0, 0)],
        "a gap": [(0, 0), (0, 2)],
        "begins at 5": [(0, 5), (0, 6)],
        "a new epoch from 0": [(0, 0), (1, 0), (1, 1)],
        "a new epoch from 1": [(0, 0), (1, 1)],
        "an old epoch": [(3, 0), (2, 0), (2, 1)],
        "begins at the last sequence": [(0, 2**31 - 1), (0, 0), (0, 1)],
        "a negative sequence": [(0, -1)],
        "a very negative sequence": [(0, -5)],
        "a negative epoch": [(-1, 0)],
        "a very negative epoch": [(-5, 0)],
        "the greatest epoch": [(2**15 - 1, 0), (0, 0)],
    }
    for number, (what, story) in enumerate(stories.items()):
        script = partial(told, producer_id=8000 + number, story=story)
        yield case(PRODUCE, 9, f"sequence: {what}", script)


def told(talk: Talk, producer_id: int, story: list[tuple[int, int]]) -> None:
    start = talk.end_offset("producers")
    for epoch, sequence in story:
        batch = partial(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        talk.ask(PRODUCE, 9, **fields("producers", batch, 9))
        talk.answers[-1] = counted_from(start, talk.answers[-1])


def requests() -> Iterator[Case]:
    def named(*topics: tuple[str, tuple[int, ...]]) -> dict[str, Any]:
        data = [
            {"name": name, "partition_data": [{"index": index, "records": records} for index in indexes]}
            for name, indexes in topics
        ]
        return {"acks": -1, "timeout_ms": 10_000, "topic_data": data}

    questions: dict[str, dict[str, Any]] = {
        "nothing": named(),
        "a topic without partitions": named((WRITTEN, ())),
        "two partitions": named((WRITTEN, (0, 1))),
        "a known and an unknown partition": named((WRITTEN, (0, 7))),
        "a known and an unknown topic": named((WRITTEN, (0,)), ("nowhere", (0,))),
        "a topic twice": named((WRITTEN, (0,)), (WRITTEN, (1,))),
        "a transactional id that is empty": {**named((WRITTEN, (0,))), "transactional_id": ""},
        "timeout 0": {**named((WRITTEN, (0,))), "timeout_ms": 0},
        "acks 2": {**named((WRITTEN, (0,))), "acks": 2},
        "acks 2 to an unknown topic": {**named(("nowhere", (0,))), "acks": 2},
        "acks 0 to an unknown topic": {**named(("nowhere", (0,))), "acks": 0},
        "nothing, acks 0": {**named(), "acks": 0},
        "nothing, acks 5": {**named(), "acks": 5},
    }
    for what, whole in questions.items():
        for version in (3, 12):
            yield case(PRODUCE, version, what, partial(rounded, version=version, whole=whole))
    by_id: dict[str, Any] = {
        "an unknown id": STRANGER,
        "a zero id": UUID(int=0),
    }
    for what, topic_id in by_id.items():
        data = [{"topic_id": topic_id, "partition_data": [{"index": 0, "records": records}]}]
        whole = {"acks": 1, "timeout_ms": 1000, "topic_data": data}
        yield case(PRODUCE, BY_ID, what, partial(rounded, version=BY_ID, whole=whole))


def rounded(talk: Talk, version: int, whole: dict[str, Any]) -> None:
    """Offsets are left out: other cases write to the same topic."""
    talk.ask(PRODUCE, version, **whole)
    talk.answers[-1] = without(talk.answers[-1], "base_offset")


def without(said: Any, name: str) -> Any:
    match said:
        case dict():
            return {key: without(value, name) for key, value in said.items() if key != name or value == -1}
        case list():
            return [without(each, name) for each in said]
    return said
