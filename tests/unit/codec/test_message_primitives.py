"""Varints, UUIDs and tagged fields: the pieces below the messages."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.codec.primitives import (
    UVARINT_MAX,
    read_uvarint,
    read_varint,
    read_varlong,
    skip_tagged_fields,
    uuid_of,
    write_uvarint,
)
from strandline.errors import MalformedMessage

UVARINTS = [
    (0, "00"),
    (1, "01"),
    (127, "7f"),
    (128, "8001"),
    (300, "ac02"),
    (16_383, "ff7f"),
    (16_384, "808001"),
    (2**31 - 1, "ffffffff07"),
    (UVARINT_MAX, "ffffffff0f"),
]


@pytest.mark.parametrize(("value", "text"), UVARINTS)
def test_known_uvarints(value: int, text: str) -> None:
    out = bytearray()
    write_uvarint(out, value)
    assert out.hex() == text
    assert read_uvarint(out, 0) == (value, len(out))
    assert read_uvarint(b"\xff" + bytes(out) + b"\xff", 1) == (value, len(out) + 1)


@given(st.integers(0, UVARINT_MAX))
def test_uvarint_round_trip(value: int) -> None:
    out = bytearray()
    write_uvarint(out, value)
    assert read_uvarint(bytes(out), 0) == (value, len(out))


@pytest.mark.parametrize("value", [-1, UVARINT_MAX + 1])
def test_numbers_that_are_no_uvarint_are_our_mistake(value: int) -> None:
    with pytest.raises(ValueError, match="unsigned 32-bit"):
        write_uvarint(bytearray(), value)


@pytest.mark.parametrize("text", ["808080808000", "ffffffffff", "ffffffff10", "ffffffff7f"])
def test_uvarints_of_too_many_bytes_or_bits(text: str) -> None:
    with pytest.raises(MalformedMessage):
        read_uvarint(bytes.fromhex(text + "00"), 0)


@pytest.mark.parametrize(("value", "text"), [(0, "00"), (-1, "01"), (1, "02"), (-2, "03"), (300, "d804")])
def test_signed_varints(value: int, text: str) -> None:
    assert read_varint(bytes.fromhex(text), 0) == (value, len(text) // 2)
    assert read_varlong(bytes.fromhex(text), 0) == (value, len(text) // 2)


def test_the_widest_varlongs() -> None:
    assert read_varlong(bytes.fromhex("feffffffffffffffff01"), 0) == (2**63 - 1, 10)
    assert read_varlong(bytes.fromhex("ffffffffffffffffff01"), 0) == (-(2**63), 10)
    for text in ("ffffffffffffffffff02", "8080808080808080808000", "ffffffffffffffffffff01"):
        with pytest.raises(MalformedMessage):
            read_varlong(bytes.fromhex(text), 0)


def test_tagged_fields_are_skipped_by_their_size() -> None:
    raw = bytes.fromhex("05 02 aabb c801 00 ff")
    assert skip_tagged_fields(raw, 0, len(raw), 2) == len(raw) - 1
    with pytest.raises(MalformedMessage, match="2 bytes runs beyond"):
        skip_tagged_fields(raw, 0, 3, 1)


def test_uuids() -> None:
    assert uuid_of(bytes(range(16))) == uuid.UUID(bytes=bytes(range(16)))
