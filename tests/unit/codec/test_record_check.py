"""The checker of records that come in: it takes exactly what the decoder reads, and names what it refuses."""

from __future__ import annotations

import random
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from tests.hostile.batches import with_fields
from tests.unit.codec.columns_cases import BAD_PAYLOADS, RECORD, RECORDS, order_feed
from tests.unit.twins import as_parameters, load_plain

from strandline.codec.columns import Record, _check, decode, encode_batch
from strandline.codec.columns.decode import decode_batch
from strandline.codec.produce import RECORD_ERRORS_MAX
from strandline.codec.record_batch import HEADER_SIZE, parse_header
from strandline.errors import CorruptBatch, InvalidRecords

PLAIN = load_plain(Path(decode.__file__).with_name("_check.py"))
COMPILED = _check if _check.is_compiled() else None
TWINS = as_parameters(PLAIN, COMPILED)
BOTH = [PLAIN] if COMPILED is None else [PLAIN, COMPILED]
SEED = 20261116


def check(twin: ModuleType, batch: bytes, keyless: list[int] | None = None) -> str | None:
    """Why the twin refuses the batch, or None."""
    header = parse_header(batch)
    try:
        end = twin.check_records(batch, HEADER_SIZE, len(batch), 0, header.record_count, header.base_timestamp, keyless)
    except InvalidRecords as refusal:
        ((row, fault),) = refusal.record_errors
        return f"record {row} of the batch: {fault}"
    return None if end == len(batch) else f"{len(batch) - end} bytes follow"


def with_payload(payload: bytes, count: int = 1) -> bytes:
    empty = encode_batch([], last_offset_delta=count - 1)
    return with_fields(empty + payload, length=len(empty + payload) - 12, record_count=count)


@pytest.mark.lengthy("many examples, each of them costly")
@given(RECORDS)
@settings(max_examples=100, deadline=None)
def test_what_the_encoder_writes_is_taken(records: list[Record]) -> None:
    batch = encode_batch(records)
    expected = [row for row, record in enumerate(records) if record.key is None]
    for twin in BOTH:
        keyless: list[int] = []
        assert check(twin, batch, keyless) is None
        assert keyless == expected
        assert check(twin, batch) is None


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("payload", BAD_PAYLOADS.values(), ids=BAD_PAYLOADS)
def test_a_record_that_lies_is_refused(twin: ModuleType, payload: bytes) -> None:
    assert check(twin, with_payload(RECORD)) is None
    assert check(twin, with_payload(payload)) is not None


@pytest.mark.parametrize("twin", TWINS)
def test_a_batch_cut_at_any_byte_is_refused(twin: ModuleType) -> None:
    batch = encode_batch(order_feed(6))
    for size in range(HEADER_SIZE, len(batch)):
        assert check(twin, batch[:size]) is not None


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize(("deltas", "row"), [((0, 2), 1), ((1, 2), 0), ((0, 0), 1), ((1, 0), 0), ((0, -1), 1)])
def test_offset_deltas_count_the_records(twin: ModuleType, deltas: tuple[int, ...], row: int) -> None:
    records = [RECORD[:3] + bytes((delta << 1 if delta >= 0 else 1,)) + RECORD[4:] for delta in deltas]
    refusal = check(twin, with_payload(b"".join(records), 2))
    assert refusal == f"record {row} of the batch: its offset delta is not its place in the batch"


@pytest.mark.parametrize("twin", TWINS)
def test_some_records_at_a_time(twin: ModuleType) -> None:
    batch = encode_batch(order_feed(10))
    base = parse_header(batch).base_timestamp
    keyless: list[int] = []
    position = HEADER_SIZE
    for row in range(0, 10, 3):
        position = twin.check_records(batch, position, len(batch), row, min(row + 3, 10), base, keyless)
    assert position == len(batch)
    assert keyless == [3]


@pytest.mark.parametrize("twin", TWINS)
def test_only_so_many_records_are_named(twin: ModuleType) -> None:
    keyless: list[int] = []
    assert check(twin, encode_batch([Record(value=b"v")] * (twin.KEYLESS_MAX + 5)), keyless) is None
    assert len(keyless) == twin.KEYLESS_MAX == RECORD_ERRORS_MAX


def test_damage_is_refused_if_and_only_if_the_decoder_refuses_it() -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    batch = encode_batch(order_feed(12))
    verdicts = set()
    for _ in range(6000):
        damaged = bytearray(batch)
        for _ in range(rng.choice((1, 1, 2, 5))):
            damaged[rng.randrange(HEADER_SIZE, len(damaged))] = rng.choice((rng.randrange(256), 0, 1, 0x7F, 0x80, 0xFF))
        try:
            decode_batch(damaged, check_crc=False)
            is_read = True
        except CorruptBatch:
            is_read = False
        refusals = {check(twin, bytes(damaged)) for twin in BOTH}
        assert len(refusals) == 1, "the twins say the same"
        assert (refusals == {None}) == is_read
        verdicts.add(is_read)
    assert verdicts == {True, False}
