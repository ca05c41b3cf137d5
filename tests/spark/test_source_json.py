"""JSON values to columns: what does not fit harms nobody but itself."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from strandline.spark.source.json_columns import JsonColumns, ValueDoesNotFit

SEED = random.randrange(2**32)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("tags", pa.list_(pa.string())),
        ("buyer", pa.struct([("vip", pa.bool_()), ("since", pa.list_(pa.date32()))])),
        ("born", pa.date32()),
        ("share", pa.float32()),
        ("price", pa.decimal128(8, 2)),
        ("photo", pa.binary()),
        ("offset", pa.int64()),
        ("_corrupt", pa.string()),
    ]
)
FIELDS = ["id", "name", "at", "tags", "buyer", "born", "share", "price", "photo"]


def columns(values: list[bytes | None], *, fails: bool = False) -> list[dict[str, object]]:
    batch = pa.record_batch(
        {"value": pa.array(values, pa.binary()), "offset": pa.array(range(100, 100 + len(values)), pa.int64())}
    )
    return JsonColumns(SCHEMA, FIELDS, topic="orders", partition=3, fails=fails).columns(batch).to_pylist()


def row(offset: int, **given: object) -> dict[str, object]:
    return dict.fromkeys(SCHEMA.names) | {"offset": offset} | given


def test_values_become_columns() -> None:
    values = [
        b'{"id": 1, "name": "a", "tags": ["x", "y"], "buyer": {"vip": true}, "unknown": [1, {"b": 2}]}',
        b'{\n  "name": "line\\nbreak \\u00e9",\n  "id": -5\n}',
        b"{}",
        None,
        b"null",
        b'{"at": "2026-01-01T12:00:00Z"}',
        b'{"born": "1999-12-31", "buyer": {"since": ["2026-02-28", null]}}',
    ]
    found = columns(values)
    assert found[0] == row(100, id=1, name="a", tags=["x", "y"], buyer={"vip": True, "since": None})
    assert found[1] == row(101, id=-5, name="line\nbreak é")
    assert found[2:5] == [row(102), row(103), row(104)]
    assert str(found[5]["at"]) == "2026-01-01 12:00:00+00:00"
    since = [date(2026, 2, 28), None]
    assert found[6] == row(106, born=date(1999, 12, 31), buyer={"vip": None, "since": since})


def test_a_decimal_is_exact_and_bytes_are_base64() -> None:
    texts = ("1.5", "1.50", "1.500", '"12.50"', "999999.99", "-999999.99", "1e2", "0")
    values: list[bytes | None] = [f'{{"price": {text}}}'.encode() for text in texts]
    assert [each["price"] for each in columns(values)] == [Decimal(text.strip('"')) for text in texts]
    found = columns([b'{"photo": "AP8="}', b'{"photo": ""}', b'{"photo": null}'])
    assert [each["photo"] for each in found] == [b"\x00\xff", b"", None]
    assert not any(each["_corrupt"] for each in found)


MISFITS = [
    b"",
    b"{",
    b"}",
    b"no json",
    b'{"id": "text"}',
    b'{"id": 1.5}',
    b'{"id": 1}{"id": 2}',
    b'{"id": 1},{"id": 2}',
    b'{"id": 1}\n{"value": {"id": 2}}',
    b'{"id": 1},"more":2',
    b'{"id": 1},null',
    b"]",
    b'{"name": "open',
    b'"',
    b"[1]",
    b"7",
    b'{"id": 99999999999999999999}',
    b'{"at": "yesterday"}',
    b"\xff\xfe",
    b'{"name": "\xff"}',
    b'{"unknown": "\xff", "id": 1}',
    b'{"born": 20000}',
    b'{"born": "2026-02-30"}',
    b'{"born": "2026"}',
    b'{"born": "2026-02"}',
    b'{"born": "2026-2-1"}',
    b'{"born": "2026-02-01T00:00:00Z"}',
    b'{"price": 1.005}',
    b'{"price": "1.005"}',
    b'{"price": 1000000}',
    b'{"price": -1e6}',
    b'{"price": true}',
    b'{"photo": "no base64"}',
    b'{"photo": 7}',
    b'{"id": 1, "id": 2}',
    b'{"name": "\\ud800"}',
    b'{"name": "tab\t"}',
    b'{"tags": ["a", 1]}',
    b'{"buyer": {"vip": 1}}',
]


@pytest.mark.parametrize("misfit", MISFITS)
def test_a_misfit_is_alone_with_its_trouble(misfit: bytes) -> None:
    fits = b'{"id": 1}'
    text = misfit.decode("utf-8", "replace")
    assert columns([fits, misfit, fits]) == [row(100, id=1), row(101, _corrupt=text), row(102, id=1)]


def test_no_neighbour_changes_what_a_value_becomes() -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    choices = [*MISFITS, None, b'{"id": 3}', b'{"name": "}{"}', b'{"id": 4, "tags": []}']
    values = [rng.choice(choices) for _ in range(300)]
    alone = [columns([value])[0] | {"offset": 100 + index} for index, value in enumerate(values)]
    assert columns(values) == alone


def test_values_that_are_nearly_json_are_judged_alike_alone_and_together() -> None:
    """Alone Arrow's parser judges; together most are told apart by Python's, which must not say otherwise."""
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    whole = [
        b'{"id": 12, "name": "caf\xc3\xa9 \\u00e9\\n", "at": "2026-01-01T12:00:00.25+02:00", "tags": ["x", null]}',
        b'{"buyer": {"vip": false, "since": ["2026-02-28"]}, "born": "1999-12-31", "other": {"id": [1, 2]}}',
        b'{"id": -7, "share": 1.5e3, "price": "12.50", "at": "2026-01-01 12:00:00", "name": "NaN"}',
        b' {"share": NaN, "price": 3.25, "tags": [], "id": null} ',
        b'{"share": -Infinity, "at": "2026-01-01", "born": null}',
    ]
    signs = b'{}[]",:\\ \n\t0123456789eE+-.tfnINa\x00\x7f\xc3\xff/*'
    values: list[bytes | None] = []
    for _ in range(500):
        value = bytearray(rng.choice(whole))
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            at, behind = rng.randrange(len(value)), rng.randrange(3)
            value[at : at + behind] = bytes(rng.choices(signs, k=rng.randrange(3)))
        values.append(bytes(value))
    alone = [columns([value])[0] | {"offset": 100 + index} for index, value in enumerate(values)]
    together = columns(values)
    # Written out: a NaN is not equal to itself.
    assert list(map(str, together)) == list(map(str, alone))
    assert any(each["_corrupt"] is None for each in alone)


def test_a_misfit_ends_the_query_if_the_user_says_so() -> None:
    words = 'the value of orders-3 at offset 102 does not fit valueSchema .*: correct the schema, or say option."mode"'
    with pytest.raises(ValueDoesNotFit, match=words):
        columns([b'{"id": 1}', b"{}", b'{"id": "x"}', b"{}"], fails=True)


NO: object = object()
"""A key that does not fit."""
KEYS: list[tuple[pa.DataType, dict[bytes, object]]] = [
    (
        pa.int64(),
        {
            b"42": 42,
            b"-7": -7,
            b'{"id":43}': 43,
            b'{"id":null}': None,
            b"abc": NO,
            b"": NO,
            b"null": NO,
            b"1.5": NO,
            b" 1": NO,
            b"true": NO,
            b"1}{": NO,
            b'1,"x":2': NO,
            b'{"id":"x"}': NO,
            b'{"id":1': NO,
            b"99999999999999999999": NO,
            b"\xff": NO,
        },
    ),
    (pa.string(), {b"ann": "ann", b"": "", b'{"id":1}': '{"id":1}', b"\xff": NO}),
    (pa.bool_(), {b"true": True, b"yes": NO, b"1": NO}),
    (pa.decimal128(10, 2), {b"1.5": Decimal("1.50"), b"1.005": NO, b'{"id":1.005}': NO}),
    (pa.date32(), {b"2026-01-31": date(2026, 1, 31), b"2026": NO, b"20484": NO}),
    (
        pa.timestamp("us", tz="UTC"),
        {b"2026-01-31T09:30:00Z": datetime(2026, 1, 31, 9, 30, tzinfo=UTC), b"yesterday": NO},
    ),
]


def keys_to_columns(of: pa.StructType, keys: list[bytes | None], *, fails: bool = False) -> list[dict[str, object]]:
    schema = pa.schema([("_key", of), ("_corrupt_key", pa.string()), ("offset", pa.int64())])
    offsets = pa.array(range(100, 100 + len(keys)), pa.int64())
    batch = pa.record_batch({"key": pa.array(keys, pa.binary()), "offset": offsets})
    return JsonColumns(schema, [], topic="orders", partition=3, fails=fails).columns(batch).to_pylist()


@pytest.mark.parametrize(("of", "expected"), KEYS, ids=[str(of) for of, _ in KEYS])
def test_a_key_fits_its_schema_or_is_kept_as_it_is(of: pa.DataType, expected: dict[bytes, object]) -> None:
    struct = pa.struct([("id", of)])
    found = keys_to_columns(struct, [*expected, None])
    for key, row in zip(expected, found, strict=False):
        text = key.decode("utf-8", "replace") if expected[key] is NO else None
        assert row["_corrupt_key"] == text, key
        parsed = row["_key"]["id"] if isinstance(row["_key"], dict) else None
        assert parsed == (None if expected[key] is NO else expected[key]), key
        assert keys_to_columns(struct, [key]) == [row | {"offset": 100}], "its neighbours must not matter"
    assert found[-1]["_corrupt_key"] is None


def test_a_key_of_several_columns_is_an_object() -> None:
    struct = pa.struct([("a", pa.int64()), ("b", pa.string())])
    found = keys_to_columns(struct, [b'{"a":1,"b":"x"}', b'{"b":"y"}', b"1", b'{"a":"1"}', b"null", b"[1]", None])
    assert [each["_key"] for each in found[:2]] == [{"a": 1, "b": "x"}, {"a": None, "b": "y"}]
    assert [each["_corrupt_key"] for each in found] == [None, None, "1", '{"a":"1"}', "null", "[1]", None]
    with pytest.raises(ValueDoesNotFit, match="the key of orders-3 at offset 101 does not fit keySchema"):
        keys_to_columns(struct, [b"{}", b"1"], fails=True)
    with pytest.raises(ValueDoesNotFit, match="the key of orders-3 at offset 100 does not fit keySchema"):
        keys_to_columns(pa.struct([("id", pa.string())]), [b"\xff"], fails=True)
