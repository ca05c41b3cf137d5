"""The walk over records with schema ids: records are taken as `_check` takes them, ids as the caller says."""

from __future__ import annotations

import random
from array import array
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from tests.unit.codec.columns_cases import BAD_PAYLOADS, RECORD, RECORDS, order_feed
from tests.unit.codec.test_record_check import check as check_plainly
from tests.unit.codec.test_record_check import with_payload
from tests.unit.twins import as_parameters, load_plain

from strandline.codec.columns import Record, _check, _validate, decode, encode_batch
from strandline.codec.columns.schema_codes import (
    ACCEPTED,
    BAD_TEXT,
    BOOLEAN,
    BYTES_LEFT,
    EACH,
    END,
    FAULTS_MAX,
    FIRST,
    ID_REFUSED,
    KEYLESS,
    LONG,
    NO_ID,
    REFUSED,
    STRING,
    TO_JUDGE,
    WalkFault,
)
from strandline.codec.record_batch import HEADER_SIZE, parse_header
from strandline.codec.wire import uvarint
from strandline.errors import InvalidRecords

PLAIN = load_plain(Path(decode.__file__).with_name("_validate.py"))
COMPILED = _validate if _validate.is_compiled() else None
TWINS = as_parameters(PLAIN, COMPILED)
BOTH = [PLAIN] if COMPILED is None else [PLAIN, COMPILED]
SEED = 20261118


def with_id(schema_id: int, payload: bytes = b"") -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def walk_of(twin: ModuleType, key: dict[int, int] | None, value: dict[int, int] | None, **more: Any) -> Any:
    """A walk that does with ids what is given for them."""
    rules = []
    for modes in (key, value):
        rules.append(None if modes is None else twin.FieldRules())
        if modes is not None:
            rules[-1].modes = modes
    options = {"needs_key": False, "decodes": False, "steps_max": 1_000_000} | more
    return twin.RecordWalk(*rules, *options.values())


def run(walk: Any, batch: bytes, faults: list[WalkFault]) -> str | None:
    """Why the walk refuses the batch as a whole, or None."""
    header = parse_header(batch)
    try:
        end = walk.check(batch, HEADER_SIZE, len(batch), 0, header.record_count, header.base_timestamp, faults)
    except InvalidRecords as refusal:
        ((row, fault),) = refusal.record_errors
        return f"record {row} of the batch: {fault}"
    return None if end == len(batch) else f"{len(batch) - end} bytes follow"


def reasons(walk: Any, *records: Record) -> list[tuple[int, bool, int, int]]:
    """Row, whether it is the key, id and why of each fault."""
    faults: list[WalkFault] = []
    assert run(walk, encode_batch(records), faults) is None
    return [(row, is_key, schema_id, why) for row, is_key, schema_id, _, _, why, _ in faults]


# Records


@pytest.mark.lengthy("many examples, each of them costly")
@given(RECORDS)
@settings(max_examples=60, deadline=None)
def test_without_ids_it_takes_what_the_encoder_writes(records: list[Record]) -> None:
    for twin in BOTH:
        faults: list[WalkFault] = []
        assert run(walk_of(twin, None, None, needs_key=True), encode_batch(records), faults) is None
        assert [fault[0] for fault in faults] == [row for row, record in enumerate(records) if record.key is None]
        assert {fault[5] for fault in faults} <= {KEYLESS}


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("payload", BAD_PAYLOADS.values(), ids=BAD_PAYLOADS)
def test_a_record_that_lies_is_refused(twin: ModuleType, payload: bytes) -> None:
    walk = walk_of(twin, None, None)
    assert run(walk, with_payload(RECORD), []) is None
    assert run(walk, with_payload(payload), []) == check_plainly(_check, with_payload(payload))


def test_damage_is_refused_in_the_words_of_the_plain_check() -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    batch = encode_batch(order_feed(12))
    verdicts = set()
    for _ in range(6000):
        damaged = bytearray(batch)
        for _ in range(rng.choice((1, 1, 2, 5))):
            damaged[rng.randrange(HEADER_SIZE, len(damaged))] = rng.choice((rng.randrange(256), 0, 1, 0x7F, 0x80, 0xFF))
        expected = check_plainly(_check, bytes(damaged))
        for twin in BOTH:
            assert run(walk_of(twin, None, None), bytes(damaged), []) == expected
        verdicts.add(expected is None)
    assert verdicts == {True, False}


def accepting_all(walk: Any, batch: bytes) -> str | None:
    """As `run`, and every id that the walk sees for the first time is accepted."""
    header = parse_header(batch)
    position, row = HEADER_SIZE, 0
    try:
        while True:
            count = header.record_count
            position = walk.check(batch, position, len(batch), row, count, header.base_timestamp, [])
            if walk.new_id < 0:
                break
            walk.value.modes[walk.new_id] = ACCEPTED
            row = walk.row
    except InvalidRecords as refusal:
        return f"record {refusal.record_errors[0][0]} of the batch: {refusal.record_errors[0][1]}"
    return None if position == len(batch) else f"{len(batch) - position} bytes follow"


def test_damage_among_records_of_one_schema() -> None:
    """Such records are passed over by a loop of their own."""
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    records = [
        Record(
            timestamp_ms=1_700_000_000_000 + 50 * row, key=rng.choice((None, b"", b"k")), value=with_id(7, bytes(row))
        )
        for row in range(70)
    ]
    batch = encode_batch(records)
    verdicts = set()
    for _ in range(3000):
        damaged = bytearray(batch)
        for _ in range(rng.choice((1, 1, 2, 5))):
            damaged[rng.randrange(HEADER_SIZE, len(damaged))] = rng.choice((rng.randrange(256), 0, 1, 0x7F, 0x80, 0xFF))
        expected = check_plainly(_check, bytes(damaged))
        assert {accepting_all(walk_of(twin, None, {7: ACCEPTED}), bytes(damaged)) for twin in BOTH} == {expected}
        verdicts.add(expected is None)
    assert verdicts == {True, False}


# Ids


@pytest.mark.parametrize("twin", TWINS)
def test_ids_decide(twin: ModuleType) -> None:
    records = (
        Record(key=b"k", value=with_id(7)),
        Record(key=b"k", value=with_id(8)),
        Record(key=b"k", value=b"plain"),
        Record(key=b"k", value=b"\0\0\0\7"),
        Record(key=b"k", value=b""),
        Record(key=b"k", value=b"\1\0\0\0\7"),
        Record(key=b"k", value=None),
        Record(key=None, value=with_id(7, b"rest")),
        Record(key=b"k", value=with_id(2**32 - 1)),
    )
    modes = {7: ACCEPTED, 8: REFUSED, 2**32 - 1: REFUSED}
    assert reasons(walk_of(twin, None, modes), *records) == [
        (1, False, 8, ID_REFUSED),
        (2, False, -1, NO_ID),
        (3, False, -1, NO_ID),
        (4, False, -1, NO_ID),
        (5, False, -1, NO_ID),
        (8, False, 2**32 - 1, ID_REFUSED),
    ]
    assert reasons(walk_of(twin, modes, None), Record(key=None), Record(key=with_id(7)), Record(key=b"k")) == [
        (2, True, -1, NO_ID)
    ]
    assert reasons(walk_of(twin, modes, modes), Record(key=with_id(8), value=with_id(8))) == [
        (0, True, 8, ID_REFUSED),
        (0, False, 8, ID_REFUSED),
    ]


@pytest.mark.parametrize("twin", TWINS)
def test_the_walk_stops_before_a_new_id_and_goes_on_there(twin: ModuleType) -> None:
    batch = encode_batch(
        [
            Record(key=b"bad", value=with_id(1)),
            Record(key=b"bad", value=with_id(2)),
            Record(key=with_id(3), value=with_id(1)),
        ]
    )
    base = parse_header(batch).base_timestamp
    walk = walk_of(twin, {}, {})
    faults: list[WalkFault] = []
    asked = []
    position, row = HEADER_SIZE, 0
    while True:
        position = walk.check(batch, position, len(batch), row, 3, base, faults)
        row = walk.row
        if walk.new_id < 0:
            break
        asked.append((row, walk.new_id, walk.is_new_key))
        (walk.key if walk.is_new_key else walk.value).modes[walk.new_id] = ACCEPTED
    assert asked == [(0, 1, False), (1, 2, False), (2, 3, True)]
    assert (position, row) == (len(batch), 3)
    # A record that was looked at twice is named once.
    assert [(fault[0], fault[5]) for fault in faults] == [(0, NO_ID), (1, NO_ID)]


@pytest.mark.parametrize("twin", TWINS)
def test_payloads_that_the_caller_judges(twin: ModuleType) -> None:
    records = [Record(value=with_id(5, payload)) for payload in (b"\0x", b"\2\2x", b"")]
    assert reasons(walk_of(twin, None, {5: EACH}), *records) == [(row, False, 5, TO_JUDGE) for row in range(3)]
    assert reasons(walk_of(twin, None, {5: FIRST}), *records) == [(row, False, 5, TO_JUDGE) for row in (1, 2)]


@pytest.mark.parametrize("twin", TWINS)
def test_only_so_many_are_named(twin: ModuleType) -> None:
    walk = walk_of(twin, None, {})
    assert len(reasons_until_it_stops(walk, [Record(value=b"v")] * (FAULTS_MAX + 50))) == FAULTS_MAX
    assert walk.row == FAULTS_MAX


def reasons_until_it_stops(walk: Any, records: list[Record]) -> list[WalkFault]:
    batch = encode_batch(records)
    faults: list[WalkFault] = []
    walk.check(batch, HEADER_SIZE, len(batch), 0, len(records), parse_header(batch).base_timestamp, faults)
    return faults


@pytest.mark.parametrize("twin", TWINS)
def test_the_buffer_is_let_go(twin: ModuleType) -> None:
    """A connection's buffer is resized, which it cannot be while a view of it is held."""
    for decodes in (False, True):
        batch = bytearray(encode_batch([Record(value=with_id(1))]))
        walk = walk_of(twin, None, {1: ACCEPTED}, decodes=decodes)
        source = memoryview(batch) if twin is COMPILED else bytes(batch)
        walk.check(source, HEADER_SIZE, len(batch), 0, 1, 0, [])
        source = b""
        batch += b"more"


# Programs


@pytest.mark.parametrize("twin", TWINS)
def test_a_program_ends_a_call_after_its_share_of_steps(twin: ModuleType) -> None:
    walk = walk_of(twin, None, {1: 0}, decodes=True, steps_max=10)
    walk.value.set_program(array("i", [LONG, LONG, BOOLEAN, END]))
    batch = encode_batch([Record(value=with_id(1, b"\2\4\1"))] * 9)
    base = parse_header(batch).base_timestamp
    position = walk.check(batch, HEADER_SIZE, len(batch), 0, 9, base, [])
    assert walk.row == 4, "three steps a record"
    faults: list[WalkFault] = []
    assert walk.check(batch, position, len(batch), 4, 8, base, faults) < len(batch)
    assert (walk.row, faults) == (8, [])


@pytest.mark.parametrize("twin", TWINS)
def test_a_fault_says_where(twin: ModuleType) -> None:
    walk = walk_of(twin, None, {1: 0}, decodes=True)
    walk.value.set_program(array("i", [LONG, LONG, BOOLEAN, END]))
    ((_, _, _, start, end, why, at),) = reasons_until_it_stops(walk, [Record(value=with_id(1, b"\2\4\1rest"))])
    assert (end - start, why, at) == (12, BYTES_LEFT, 3)


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("buffer", [bytes, memoryview])
def test_texts_are_looked_at_byte_by_byte_and_eight_at_a_time(twin: ModuleType, buffer: type) -> None:
    """Texts of all lengths at all places of a word, with a byte anywhere that is not ASCII."""
    walk = walk_of(twin, None, {7: 0}, decodes=True)
    walk.value.set_program(array("i", (STRING, END)))
    texts = [b"x" * size for size in range(40)]
    for size in range(1, 40):
        for at in range(size):
            texts.append(b"x" * at + b"\xe9" + b"x" * (size - at - 1))
            texts.append((b"x" * at + "\u00e9".encode() + b"x" * size)[: size + 1])
    for ahead in range(8):
        # A key ahead moves the text.
        records = [Record(key=b"k" * ahead, value=with_id(7, uvarint(2 * len(text)) + text)) for text in texts]
        for first in range(0, len(records), 50):
            batch = encode_batch(records[first : first + 50])
            faults: list[WalkFault] = []
            header = parse_header(batch)
            row, position = 0, HEADER_SIZE
            while row < header.record_count:
                position = walk.check(buffer(batch), position, len(batch), row, header.record_count, 0, faults)
                row = walk.row
            found = [fault[0] for fault in faults]
            assert {fault[5] for fault in faults} <= {BAD_TEXT}
            assert found == [row for row, text in enumerate(texts[first : first + 50]) if not is_utf8(text)]


def is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
