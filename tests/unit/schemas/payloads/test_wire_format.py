"""How a record names its schema, beside Confluent's own reading of the same bytes."""

from __future__ import annotations

import io
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.schemas.payloads.failures import PayloadFailed
from strandline.schemas.payloads.wire_format import (
    read_indexes,
    read_long,
    split_payload,
    with_prefix,
    write_indexes,
    write_long,
)

serde = pytest.importorskip("confluent_kafka.schema_registry.common.serde")

GUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"
PLACES = st.lists(st.integers(0, 300), min_size=1, max_size=4).map(tuple)


@given(st.integers(0, 2**31 - 1), PLACES, st.binary(max_size=10))
def test_confluents_bytes_are_ours(schema_id: int, place: tuple[int, ...], message: bytes) -> None:
    theirs = serde.SchemaId("PROTOBUF", schema_id, message_indexes=list(place)).id_to_bytes() + message
    assert with_prefix(schema_id, write_indexes(place) + message) == theirs
    assert split_payload(theirs) == (schema_id, write_indexes(place) + message)
    assert read_indexes(write_indexes(place) + message) == (place, len(write_indexes(place)))
    read = serde.SchemaId("PROTOBUF")
    rest = read.from_bytes(io.BytesIO(with_prefix(schema_id, write_indexes(place) + message)))
    assert (read.id, read.message_indexes, rest.read()) == (schema_id, list(place), message)


def test_a_guid_in_front_or_in_a_header() -> None:
    guid = b"\1" + UUID(GUID).bytes
    assert split_payload(guid + b"abc") == (GUID, b"abc")
    assert split_payload(b"abc", guid) == (GUID, b"abc")
    assert split_payload(b"abc", guid + b"\x02\x04") == (GUID, b"\x02\x04abc")
    assert split_payload(b"abc", b"\0\0\0\0\x07") == (7, b"abc")


@pytest.mark.parametrize("content", [b"", b"\0", b"\0\0\0\0", b"{}", b"plain text", b"\1short", b"\x02\0\0\0\1x"])
def test_what_names_no_schema(content: bytes) -> None:
    assert split_payload(content) is None
    assert split_payload(b"abc", content) is None


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers(number: int) -> None:
    out = bytearray(b"x")
    write_long(number, out)
    assert read_long(bytes(out), 1) == (number, len(out))


@pytest.mark.parametrize(
    "payload", [b"", b"\x80", b"\xff" * 11, b"\xff" * 9 + b"\x7f", b"\xc9\x01", b"\x01", b"\x04\x02"]
)
def test_bad_places_of_messages(payload: bytes) -> None:
    with pytest.raises(PayloadFailed):
        read_indexes(payload)
