"""The two faces of a record: JSON, which must bring every byte back, and kcat's format strings."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.cli.records.record import ReadRecord, compile_format, from_json, to_json

CONTENTS = st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode)
HEADER_KEYS = st.text(st.characters(codec="utf-8"), max_size=10)


@given(
    CONTENTS, CONTENTS, st.lists(st.tuples(HEADER_KEYS, CONTENTS), max_size=4), st.integers(0, 9), st.integers(0, 2**62)
)
def test_json_brings_every_byte_back(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    partition: int,
    timestamp_ms: int,
) -> None:
    line = json.dumps(to_json(ReadRecord("t", partition, 7, timestamp_ms, key, value, headers))).encode()
    back = from_json(line)
    assert (back.key, back.value, back.headers) == (key, value, headers)
    assert (back.partition, back.timestamp_ms) == (partition, timestamp_ms)


def test_json_as_people_write_it() -> None:
    record = from_json(b'{"key": "k", "value": {"a": [1, "\xc3\xa9"]}, "headers": {"h": "x", "n": null}}')
    assert record.key == b"k"
    assert record.value == '{"a":[1,"é"]}'.encode()
    assert record.headers == [("h", b"x"), ("n", None)]
    assert (record.partition, record.timestamp_ms) == (None, None)
    assert from_json(b"{}").value is None


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"valeu": 1}', "unknown field 'valeu'"),
        (b'{"value_base64": "?"}', "value_base64 is not base64"),
        (b'{"value_base64": 5}', "value_base64 is not base64"),
        (b'{"partition": -1}', "partition -1"),
        (b'{"partition": "0"}', "partition '0'"),
        (b'{"timestamp": true}', "timestamp True"),
        (b'{"headers": 5}', "headers"),
        (b'{"headers": [5]}', "a header"),
        (b'{"headers": [{"value": "x"}]}', "a header"),
    ],
)
def test_json_that_is_wrong_is_named(line: bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        from_json(line)


RECORD = ReadRecord("orders", 2, 41, 1_000, b"k\x00", b"v\xff", [("a", b"1"), ("b", None)])
TOMBSTONE = ReadRecord("orders", 0, 0, -1, None, None, [])


@pytest.mark.parametrize(
    ("pattern", "record", "printed"),
    [
        (r"%s\n", RECORD, b"v\xff\n"),
        (r"%t[%p]@%o %T", RECORD, b"orders[2]@41 1000"),
        (r"%k:%K:%S", RECORD, b"k\x00:2:2"),
        (r"%h", RECORD, b"a=1,b=NULL"),
        (r"%R%s", RECORD, b"\x00\x00\x00\x02v\xff"),
        (r"%k|%s|%K|%S|%R|%h", TOMBSTONE, b"||-1|-1|\xff\xff\xff\xff|"),
        (r"100%% \x41\t\\\q", RECORD, b"100% A\t\\\\q"),
        ("", RECORD, b""),
        ("é", RECORD, "é".encode()),
        ("\\", RECORD, b"\\"),
        ("%", RECORD, b"%"),
    ],
)
def test_format(pattern: str, record: ReadRecord, printed: bytes) -> None:
    assert compile_format(pattern)(record) == printed


def test_format_names_what_is_unknown() -> None:
    with pytest.raises(ValueError, match="%y is unknown"):
        compile_format("%s %y")
