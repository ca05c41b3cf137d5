"""JSON values to columns: what does not fit harms nobody but itself."""

from __future__ import annotations

import random
from datetime import date

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
        ("offset", pa.int64()),
        ("_corrupt", pa.string()),
    ]
)
FIELDS = ["id", "name", "at", "tags", "buyer", "born", "share", "price"]


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
