"""Payloads of JSON Schema and Protobuf."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.schemas.engines import SchemaSource
from strandline.schemas.payloads.codecs import PayloadCodec, codec_of
from strandline.schemas.payloads.failures import PayloadFailed
from strandline.schemas.types import InvalidSchema

ORDER = """{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "required": ["id"],
  "properties": {"id": {"type": "integer"}, "to": {"$ref": "address.json"}, "note": {"pattern": "^(a+)+$"}}}"""
ADDRESS = '{"type": "object", "properties": {"city": {"type": "string"}}}'
PROTO = """syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto"; import "address.proto";
message Line { message Item { string sku = 1; } repeated Item items = 1; map<string, int64> counts = 2; }
message Order { int32 id = 1; int64 total_cents = 2; google.protobuf.Timestamp at = 3; Address to = 4; Colour c = 5; }
enum Colour { RED = 0; BLUE = 1; }"""
ADDRESS_PROTO = 'syntax = "proto3"; package shop; message Address { string city = 1; }'


def json_codec() -> PayloadCodec:
    return codec_of(SchemaSource("JSON", ORDER, (("address.json", ADDRESS),)))


def protobuf_codec(message: str | None = None) -> PayloadCodec:
    return codec_of(SchemaSource("PROTOBUF", PROTO, (("address.proto", ADDRESS_PROTO),)), message=message)


def test_json_that_is_valid_passes_as_it_is() -> None:
    codec = json_codec()
    row = {"id": 7, "to": {"city": "Köln"}}
    assert codec.encode(row) == '{"id":7,"to":{"city":"Köln"}}'.encode()
    assert codec.decode(b' {"id": 7, "to": {"city": "K\xc3\xb6ln"}} ') == row


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b'{"to": {}}', "id"),
        (b'{"id": "7"}', "at id: "),
        (b'{"id": 7, "to": {"city": 5}}', "at to.city: "),
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b'{"id": NaN}', "NaN is not a number"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"id": 7, "x": "\\ud800"}', "surrogate"),
        (b'{"id": 7, "note": "' + b"a" * 40 + b'b"}', "at note: "),
    ],
)
def test_json_that_is_not(payload: bytes, reason: str) -> None:
    with pytest.raises(PayloadFailed) as failed:
        json_codec().decode(payload)
    assert reason in str(failed.value)


@pytest.mark.parametrize(
    ("message", "place", "row"),
    [
        ("Order", b"\x02\x02", {"id": 1, "total_cents": "250", "at": "2026-03-01T12:00:00Z", "to": {"city": "Kiel"}}),
        ("shop.Order", b"\x02\x02", {"id": 0, "total_cents": "0"}),
        ("Line.Item", b"\x04\0\0", {"sku": "x-1"}),
        (None, b"\0", {"items": [{"sku": "a"}], "counts": {"a": "5"}}),
    ],
)
def test_a_protobuf_row_and_its_message(message: str | None, place: bytes, row: dict[str, Any]) -> None:
    payload = protobuf_codec(message).encode(row)
    assert payload.startswith(place)
    shown = protobuf_codec().decode(payload)
    assert {name: shown[name] for name in row} == row
    assert protobuf_codec(message).encode(shown) == payload


def test_protobuf_failures_say_why() -> None:
    codec = protobuf_codec("Order")
    for row, reason in (
        ({"id": "x"}, "id"),
        ({"idd": 1}, "idd"),
        ({"c": "GREEN"}, "GREEN"),
        ([1], "no object with the fields of shop.Order"),
    ):
        with pytest.raises(PayloadFailed, match=reason):
            codec.encode(row)
    for payload in (b"", b"\x02", b"\x02\x06", b"\x04\x02\x02", b"\x02\x02\xff\xff", b"\x02\x01"):
        with pytest.raises(PayloadFailed):
            codec.decode(payload)
    with pytest.raises(PayloadFailed, match="did you mean 'Order'"):
        protobuf_codec("Ordre")
    with pytest.raises(PayloadFailed, match="has no messages"):
        codec_of(SchemaSource("AVRO", '"string"'), message="Order")


def test_a_schema_that_cannot_be_used_says_so() -> None:
    for source in (
        SchemaSource("AVRO", "{"),
        SchemaSource("JSON", '{"$ref": "none.json"}'),
        SchemaSource("JSON", "{"),
        SchemaSource("PROTOBUF", "message"),
        SchemaSource("THRIFT", ""),
    ):
        with pytest.raises(InvalidSchema):
            codec_of(source)
