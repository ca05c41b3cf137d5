"""Converters: against what Kafka's own gave, and those with a registry against a running one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from bench.kafka_jars import KafkaUnavailable
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.clients.broker import shared_broker
from tests.connect.golden.ours import ours, same
from tests.connect.golden.record import RECORDED, record, recorded
from tests.registry.running_registry import RunningRegistry, running_registry

from strandline.connect import InvalidConnectorConfig, RecordFailed, RetriableFailure, Schema
from strandline.connect.convert.choosing import CONVERTERS, converter_class, converter_of
from strandline.connect.convert.interface import Converter
from strandline.connect.convert.java_text import double_text, single_text
from strandline.connect.schema import (
    BOOLEAN,
    BYTES,
    DATE_SCHEMA,
    FLOAT64,
    INT32,
    INT64,
    OPTIONAL_STRING,
    STRING,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    ConnectType,
    SchemaField,
    array,
    decimal_schema,
    map_of,
    struct,
)

KEPT = {
    "read 39": "an envelope where schema.content describes the payload is an error, and not 0",
    "read_header 3": "the recorder cannot show null",
    "read_header 57": "the recorder cannot show an empty map",
    "parse 5": "years before 1582 are Gregorian",
}
"""Differences to Kafka that are meant."""
CONVERTER_KINDS = ("write", "read", "read_hex", "write_header", "read_header", "format", "parse")

ROW = struct(
    {
        "i8": Schema(ConnectType.INT8),
        "i16": Schema(ConnectType.INT16, optional=True),
        "i32": INT32,
        "i64": INT64,
        "f32": Schema(ConnectType.FLOAT32),
        "f64": FLOAT64,
        "flag": BOOLEAN,
        "text": STRING,
        "raw": BYTES,
        "maybe": OPTIONAL_STRING,
        "list": array(STRING),
        "words": map_of(STRING, INT64),
        "inner": struct({"a": INT32}, name="shop.Inner", optional=True),
        "price": decimal_schema(2),
        "day": DATE_SCHEMA,
        "hour": TIME_SCHEMA,
        "at": TIMESTAMP_SCHEMA,
    },
    name="shop.Row",
)
VALUE: dict[str, Any] = {
    "i8": -5,
    "i16": 300,
    "i32": 70_000,
    "i64": 2**40,
    "f32": 0.5,
    "f64": 0.1,
    "flag": True,
    "text": "é \U0001f600",
    "raw": b"\x00\xff",
    "maybe": None,
    "list": ["a", ""],
    "words": {"one": 1},
    "inner": {"a": 7},
    "price": Decimal("-12.50"),
    "day": date(2024, 2, 29),
    "hour": time(12, 34, 56, 789_000),
    "at": datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
}


def made(name: str, is_key: bool = False, /, **settings: str) -> Converter:
    return converter_of(name, {key.replace("_", "."): each for key, each in settings.items()}, is_key)


@pytest.mark.parametrize("kind", CONVERTER_KINDS)
def test_results_are_those_of_kafka(kind: str) -> None:
    found = [(case, expected, ours(case)) for case, expected in recorded() if case["kind"] == kind]
    unlike = {case["label"]: (expected, mine) for case, expected, mine in found if not same(case, expected, mine)}
    meant = {each for each in KEPT if each.startswith(f"{kind} ")}
    assert unlike.keys() == meant, {label: each for label, each in unlike.items() if label not in meant}
    assert len(found) >= 10


@pytest.mark.slow
@pytest.mark.java
def test_kafka_gives_the_same_again() -> None:
    try:
        found = record()
    except KafkaUnavailable as reason:
        pytest.skip(f"no jars of Apache Kafka: {reason}")
    assert found == json.loads(RECORDED.read_text())


# Names and settings


def test_short_names_are_those_of_kafka() -> None:
    for name in CONVERTERS:
        short = name.rpartition(".")[2]
        assert converter_class(name) is converter_class(short) is converter_class(short.removesuffix("Converter"))


def test_an_unknown_converter_is_named_in_the_message() -> None:
    with pytest.raises(InvalidConnectorConfig, match=r"which name matches no\.such\.Converter"):
        made("no.such.Converter")


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("Json", {"schemas_enable": "maybe"}, "schemas.enable: Expected value to be either true or false"),
        ("Json", {"decimal_format": "roman"}, "String must be one of (case insensitive): BASE64, NUMERIC"),
        ("String", {"converter_encoding": "klingon"}, "converter.encoding: Unknown encoding"),
        ("Avro", {}, 'Missing required configuration "schema.registry.url"'),
        ("Json", {"schema_content": "{"}, "schema.content"),
    ],
)
def test_wrong_settings_are_named(name: str, settings: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConnectorConfig) as raised:
        made(name, **settings)
    assert message in str(raised.value)


# JSON


def test_bulk_forms_give_what_single_ones_give() -> None:
    payloads = {
        "Json": [b'{"a":1}', None, b"[]", b'"x"', b""],
        "String": [b"a", None, b"\xff", b""],
        "ByteArray": [b"a", None, b""],
        "Long": [(5).to_bytes(8, "big"), None],
        "Boolean": [b"\1", None],
    }
    for name, each in payloads.items():
        converter = made(name, schemas_enable="false")
        assert converter.has_bulk
        assert converter.to_values("t", each) == [converter.to_connect("t", payload)[1] for payload in each]
        assert converter.to_connect("t", each[0])[0] == converter.bulk_schema
        values = converter.to_values("t", [payload for payload in each if payload])
        singles = [converter.from_connect("t", None, value) for value in values]
        assert converter.from_values("t", [*values, None]) == [*singles, None]
    assert not made("Json").has_bulk


def test_a_known_beginning_does_not_hide_another_schema() -> None:
    converter = made("Json")
    first = b'{"schema":{"type":"int32","optional":false},"payload":5}'
    assert [converter.to_connect("t", first)[1] for _ in range(2)] == [5, 5]
    schema = converter.to_connect("t", first)[0]
    assert converter.to_connect("t", first)[0] is schema
    for data, value in [
        (b'{"schema":{"type":"int32","optional":true},"payload":null}', None),
        (b'{"schema":{"type":"string","optional":false},"payload":"5"}', "5"),
        (b'{"payload":7,"schema":{"type":"int32","optional":false}}', 7),
        (b'{ "schema" : {"type":"int32"} , "payload" : 8 }', 8),
        (b'{ "schema" : {"type":"int32"} , "payload" : 9 }', 9),
    ]:
        assert converter.to_connect("t", data)[1] == value
    for data in (first[:-1] + b',"x":1}', first[:-1], first + b"}", first.replace(b"5", b'"a"')):
        with pytest.raises(RecordFailed):
            converter.to_connect("t", data)


def test_decimals_keep_their_digits_in_known_schemas() -> None:
    converter = made("Json", decimal_format="NUMERIC")
    schema = struct({"price": decimal_schema(20), "rate": FLOAT64})
    value = {"price": Decimal("123456789012345678.12345678901234567890"), "rate": 0.1}
    data = converter.from_connect("t", schema, value)
    for _ in range(2):
        assert converter.to_connect("t", data) == (schema, value)
        assert isinstance(converter.to_connect("t", data)[1]["rate"], float)


def test_moments_beyond_the_calendar_pass_through() -> None:
    converter = made("Json")
    schema = struct({"at": TIMESTAMP_SCHEMA, "day": DATE_SCHEMA, "hour": TIME_SCHEMA})
    value = {"at": 2**60, "day": 2**30, "hour": 86_400_000}
    assert converter.to_connect("t", converter.from_connect("t", schema, value)) == (schema, value)


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        (INT32, 2**31, "does not fit into INT32"),
        (INT32, "5", "Invalid type for INT32: str"),
        (INT32, True, "Invalid type for INT32: bool"),
        (STRING, 5, "Invalid type for STRING: int"),
        (STRING, None, "null value for field that is required"),
        (struct({"a": INT32}), {"a": 1, "b": 2}, "no field 'b'"),
        (struct({"a": struct({"b": INT32})}), {"a": {"b": "x"}}, "(field 'b') (field 'a')"),
        (decimal_schema(2), Decimal("1.234"), "mismatching scale"),
        (decimal_schema(2), Decimal("1E+1000000000"), "more than 100,000 digits"),
        (decimal_schema(2), Decimal("NaN"), "cannot be NaN"),
        (STRING, "\ud800", "surrogates not allowed"),
        (None, object(), "no corresponding schema type"),
    ],
)
def test_values_that_do_not_fit_are_refused(schema: Schema | None, value: Any, message: str) -> None:
    with pytest.raises(RecordFailed) as raised:
        made("Json").from_connect("t", schema, value)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "payload"),
    [("int32", '"5"'), ("int32", "1.5"), ("int8", "300"), ("boolean", "1"), ("string", "5"), ("double", '"x"')],
)
def test_wrong_json_types_are_refused_where_kafka_makes_zeros(kind: str, payload: str) -> None:
    with pytest.raises(RecordFailed):
        made("Json").to_connect("t", f'{{"schema":{{"type":"{kind}"}},"payload":{payload}}}'.encode())


@pytest.mark.parametrize(
    "value", [{"a": float("nan")}, {"a": Decimal("1.50")}, {"a": date(2024, 1, 1)}, {"a": b"x"}, [float("inf")]]
)
def test_values_without_a_schema_become_valid_json(value: Any) -> None:
    data = made("Json", schemas_enable="false").from_connect("t", None, value)
    assert data is not None
    json.loads(data, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_deep_json_is_refused_and_not_a_crash() -> None:
    converter = made("Json", schemas_enable="false")
    with pytest.raises(RecordFailed):
        converter.to_connect("t", b"[" * 100_000)
    nested: Any = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(RecordFailed):
        converter.from_connect("t", None, nested)
    while nested:
        nested = nested.pop()


def test_hostile_headers_are_read_in_no_time() -> None:
    converter = made("SimpleHeaderConverter")
    for data in (b"[" * 20_000, b"{" * 20_000, b"1e999999999", b"9" * 200_000, b'"' * 20_000):
        schema, value = converter.to_connect("t", data)
        assert (schema, value) == (STRING, data.decode())
    assert converter.to_connect("t", b"\xff") == (BYTES, b"\xff")


def test_javas_floats() -> None:
    assert [double_text(each) for each in (0.001, 1e7, 123e-7, float("inf"))] == [
        "0.001",
        "1.0E7",
        "1.23E-5",
        "Infinity",
    ]
    assert [single_text(each) for each in (0.1, 3.4028235e38, 1e-4)] == ["0.1", "3.4028235E38", "1.0E-4"]


# With a registry


@pytest.fixture(scope="module")
def running() -> Iterator[RunningRegistry]:
    with shared_broker() as bootstrap, running_registry(bootstrap) as found:
        yield found


class Desk:
    """Makes converters with a registry, and closes them."""

    def __init__(self, running: RunningRegistry) -> None:
        self.url = running.url
        self.ask = running.ask
        self.register = running.register
        self.made: list[Converter] = []

    def converter(self, name: str, *, is_key: bool = False, url: str = "", **settings: str) -> Converter:
        self.made.append(made(name, is_key, schema_registry_url=url or self.url, **settings))
        return self.made[-1]


@pytest.fixture
def registry(running: RunningRegistry) -> Iterator[Desk]:
    desk = Desk(running)
    yield desk
    for each in desk.made:
        each.close()


@pytest.mark.parametrize("name", ["Avro", "JsonSchema", "Protobuf"])
def test_all_types_come_back_through_a_registry(name: str, registry: Desk) -> None:
    writer, reader = registry.converter(name), registry.converter(name)
    for value in (VALUE, {**VALUE, "i16": None, "inner": None, "maybe": "x", "list": [], "words": {}}):
        data = writer.from_connect(f"all-{name}", ROW, value)
        assert data is not None
        assert data[0] == 0
        schema, found = reader.to_connect(f"all-{name}", data)
        assert found == value
        assert schema is not None
        for mine, theirs in zip(ROW.fields, schema.fields, strict=True):
            assert (theirs.name, theirs.schema.kind) == (mine.name, mine.schema.kind)
            assert theirs.schema.optional == mine.schema.optional or name == "Protobuf"
            assert theirs.schema.parameters == mine.schema.parameters
    assert writer.from_connect("t", ROW, None) is None
    assert reader.to_connect("t", None) == (None, None)
    status, versions = registry.ask("GET", f"/subjects/all-{name}-value/versions")
    assert (status, versions) == (200, [1])


@pytest.mark.parametrize("name", ["Avro", "JsonSchema"])
def test_schemas_come_back_whole(name: str, registry: Desk) -> None:
    schema = Schema(
        ConnectType.STRUCT,
        name="a.B",
        version=3,
        doc="words",
        parameters={"x": "y"},
        fields=(
            SchemaField("plain", Schema(ConnectType.INT16, name="small", version=2, parameters={"p": "q"})),
            SchemaField("with_default", Schema(ConnectType.STRING, default="d")),
            SchemaField("optional_default", Schema(ConnectType.INT64, optional=True, default=5)),
            SchemaField(
                "price",
                Schema(ConnectType.BYTES, True, decimal_schema(3).name, 1, None, Decimal("1.500"), {"scale": "3"}),
            ),
            SchemaField("numbers", map_of(INT32, STRING)),
            SchemaField("list", array(Schema(ConnectType.STRING, optional=True), optional=True)),
        ),
    )
    converter = registry.converter(name)
    value = {
        "plain": 1,
        "with_default": None,
        "optional_default": 6,
        "price": None,
        "numbers": {1: "a"},
        "list": ["x", None],
    }
    found_schema, found = registry.converter(name).to_connect(
        "whole", converter.from_connect(f"whole-{name}", schema, value)
    )
    assert found_schema == schema
    assert found == {**value, "with_default": "d", "price": Decimal("1.500")}


def test_confluents_client_reads_ours_and_we_read_its(registry: Desk) -> None:
    converter = registry.converter("Avro")
    data = converter.from_connect("both", ROW, VALUE)
    text = json.dumps(
        {
            "type": "record",
            "name": "Theirs",
            "fields": [
                {"name": "choice", "type": ["null", "string", "long"]},
                {"name": "color", "type": {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}},
                {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
                {"name": "four", "type": {"type": "fixed", "name": "Four", "size": 4}},
                {"name": "note", "type": ["null", "string"], "default": None, "doc": "a note"},
            ],
        }
    )
    moment = datetime(2024, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    row = {"choice": 5, "color": "BLUE", "at": moment, "four": b"\0\1\2\xff", "note": None}
    with SchemaRegistryClient({"url": registry.url}) as client:
        theirs = AvroDeserializer(client)(data, SerializationContext("both", MessageField.VALUE))
        written = AvroSerializer(client, text)(row, SerializationContext("theirs", MessageField.VALUE))
    assert theirs == VALUE
    schema, found = converter.to_connect("theirs", written)
    assert found == {
        "choice": {"long": 5},
        "color": "BLUE",
        "at": int(moment.timestamp()) * 1_000_000 + 678_901,
        "four": b"\0\1\2\xff",
        "note": None,
    }
    assert schema is not None
    note = schema.field("note")
    assert note is not None
    assert (note.schema.optional, note.schema.doc) == (True, "a note")


def test_keys_have_a_subject_of_their_own(registry: Desk) -> None:
    converter = registry.converter("Avro", is_key=True)
    data = converter.from_connect("keyed", None, "a text")
    assert converter.to_connect("keyed", data) == (STRING, "a text")
    assert registry.ask("GET", "/subjects/keyed-key/versions") == (200, [1])


def test_schemas_are_only_registered_if_that_is_wanted(registry: Desk) -> None:
    careful = registry.converter("Avro", auto_register_schemas="false")
    schema = struct({"a": INT64}, name="careful")
    with pytest.raises(RecordFailed, match="not found"):
        careful.from_connect("careful", schema, {"a": 1})
    data = registry.converter("Avro").from_connect("careful", schema, {"a": 1})
    assert careful.from_connect("careful", schema, {"a": 1}) == data
    text = {
        "type": "record",
        "name": "careful",
        "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "int", "default": 7}],
    }
    assert registry.register("careful-value", text)[0] == 200
    latest = registry.converter("Avro", auto_register_schemas="false", use_latest_version="true")
    written = latest.from_connect("careful", schema, {"a": 1})
    assert latest.to_connect("careful", written)[1] == {"a": 1, "b": 7}


def test_an_incompatible_schema_is_a_failure_of_the_record(registry: Desk) -> None:
    converter = registry.converter("Avro")
    converter.from_connect("strict", struct({"a": INT64}, name="s"), {"a": 1})
    with pytest.raises(RecordFailed, match="incompatible"):
        converter.from_connect("strict", struct({"a": INT64, "b": STRING}, name="s"), {"a": 1, "b": ""})


@pytest.mark.parametrize("name", ["Avro", "JsonSchema", "Protobuf"])
@pytest.mark.parametrize("data", [b"", b"plain", b"\0\0", b"\0\xff\xff\xff\xffx", b"\0\0\0\0\x01\xff"])
def test_records_that_name_no_schema_are_failures_of_the_record(name: str, data: bytes, registry: Desk) -> None:
    with pytest.raises(RecordFailed):
        registry.converter(name).to_connect("t", data)


def test_another_url_is_tried_and_a_registry_that_is_away_is_waited_for(registry: Desk) -> None:
    both = registry.converter("Avro", url=f"http://127.0.0.1:1,{registry.url}")
    assert both.from_connect("urls", None, 5) is not None
    away = registry.converter("Avro", url="http://127.0.0.1:1")
    with pytest.raises(RetriableFailure, match="cannot be reached"):
        away.from_connect("urls", None, 5)


def test_a_connection_that_was_closed_is_opened_again(registry: Desk) -> None:
    converter = registry.converter("Avro")
    assert converter.from_connect("idle", None, 5) is not None
    converter.close()
    assert converter.from_connect("idle-too", None, 5) is not None
