"""Debezium's outbox event router, with and without schemas."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.cdc.change_records import SOURCE

from strandline.cdc.envelope import POSTGRES_SOURCE, envelope_schema, row_schema
from strandline.connect.failures import InvalidConnectorConfig, RecordFailed
from strandline.connect.records import ConnectRecord, Header, SourceRecord
from strandline.connect.schema import INT32, INT64, OPTIONAL_STRING, STRING, ConnectType, Schema
from strandline.connect.transforms.chain import transform_chain, transform_options

UUID = Schema(ConnectType.STRING, name="io.debezium.data.Uuid", version=1)
JSON = Schema(ConnectType.STRING, True, "io.debezium.data.Json", 1)
MICROS = Schema(ConnectType.INT64, True, "io.debezium.time.MicroTimestamp", 1)
ROW = row_schema(
    "shop.public.outbox",
    {
        "id": UUID,
        "aggregatetype": STRING,
        "aggregateid": STRING,
        "type": STRING,
        "payload": JSON,
        "version": INT32.as_optional(),
        "at": MICROS,
        "part": INT32.as_optional(),
        "untyped": INT64.as_optional(),
        "moment": Schema(ConnectType.STRING, True, "io.debezium.time.ZonedTimestamp", 1),
    },
    "none",
)
ENVELOPE = envelope_schema("shop.public.outbox", ROW, ROW, POSTGRES_SOURCE, "none")
VALUES = {
    "id": "u-1",
    "aggregatetype": "order",
    "aggregateid": "7",
    "type": "OrderCreated",
    "payload": '{"id": 7, "lines": [{"a": 1.5}]}',
    "version": 3,
    "at": 1_767_225_600_000_000,
    "part": 4,
    "untyped": 1,
    "moment": "2026-01-01T00:00:01.5Z",
}
TYPE = "io.debezium.transforms.outbox.EventRouter"


def event(op: str = "c", *, has_schema: bool = True, **changes: Any) -> SourceRecord:
    row = {**VALUES, **changes}
    value = {
        "before": row if op == "d" else None,
        "after": None if op in ("d", "t") else row,
        "source": SOURCE,
        "transaction": None,
        "op": op,
        "ts_ms": 1000,
    }
    headers = [Header("old", 1)]
    schema = ENVELOPE if has_schema else None
    return SourceRecord("shop.public.outbox", value, {"id": "u-1"}, headers=headers, value_schema=schema)


def routed(record: ConnectRecord, name: str = TYPE, **settings: str) -> ConnectRecord | None:
    given = {f"transforms.a.{key.replace('_', '.')}": each for key, each in settings.items()}
    chain = transform_chain({"transforms": "a", "transforms.a.type": name, **given})
    assert chain is not None
    return chain(record)


def made(record: ConnectRecord, **settings: str) -> ConnectRecord:
    found = routed(record, **settings)
    assert found is not None
    return found


@pytest.mark.parametrize("has_schema", [True, False])
@pytest.mark.parametrize("name", [TYPE, "EventRouter"])
def test_a_new_row_is_the_event_that_it_describes(name: str, has_schema: bool) -> None:
    found = routed(event(has_schema=has_schema), name)
    assert found is not None
    assert (found.topic, found.key, found.value) == ("outbox.event.order", "7", VALUES["payload"])
    assert (found.timestamp_ms, found.partition) == (1000, None)
    assert found.headers == [Header("old", 1), Header("id", "u-1", UUID if has_schema else None)]
    assert (found.key_schema, found.value_schema) == ((STRING, JSON) if has_schema else (None, None))


def test_rows_that_a_snapshot_reads_are_events_too() -> None:
    assert made(event("r")).topic == "outbox.event.order"


def test_deleted_rows_and_tombstones_are_dropped() -> None:
    assert routed(event("d")) is None
    assert routed(SourceRecord("t", None, {"id": 1})) is None


@pytest.mark.parametrize("value", [{"ts_ms": 1}, "text", {"op": "c", "after": {}}])
def test_a_record_that_is_no_change_event_passes(value: Any) -> None:
    record = SourceRecord("t", value)
    assert routed(record) is record
    heartbeat = SourceRecord("t", value, value_schema=Schema(ConnectType.STRUCT, name="a.Heartbeat"))
    assert routed(heartbeat) is heartbeat


@pytest.mark.parametrize("op", ["u", "t"])
@pytest.mark.parametrize(("behavior", "level"), [("warn", logging.WARNING), ("error", logging.ERROR)])
def test_other_operations_are_logged_and_dropped(
    op: str, behavior: str, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert routed(event(op), table_op_invalid_behavior=behavior) is None
    (logged,) = caplog.records
    assert logged.levelno == level
    assert f"operation {op}" in logged.getMessage()


def test_other_operations_can_be_fatal() -> None:
    with pytest.raises(RecordFailed, match="has the operation u"):
        routed(event("u"), table_op_invalid_behavior="fatal")


def test_columns_and_topics_can_be_chosen() -> None:
    found = made(
        event(),
        table_field_event_id="type",
        table_field_event_key="version",
        table_field_event_payload="aggregateid",
        route_by_field="type",
        route_topic_regex="(.*)Created",
        route_topic_replacement="new.$1",
    )
    assert (found.topic, found.key, found.key_schema, found.value) == ("new.Order", 3, INT32.as_optional(), "7")
    assert found.headers[-1] == Header("id", "OrderCreated", STRING)
    assert made(event(), route_topic_regex="x.*", route_topic_replacement="y").topic == "order", (
        "a route that does not match is the topic"
    )


@pytest.mark.parametrize("has_schema", [True, False])
def test_further_columns_become_headers_fields_and_the_partition(has_schema: bool) -> None:
    found = made(
        event(has_schema=has_schema),
        table_fields_additional_placement="type:header:eventType,version:envelope,at:header,part:partition,type:envelope:kind",
        table_field_event_schema_version="version",
    )
    assert found.partition == 4
    assert [each[:2] for each in found.headers[2:]] == [("eventType", "OrderCreated"), ("at", VALUES["at"])]
    assert found.value == {"payload": VALUES["payload"], "version": 3, "kind": "OrderCreated"}
    if has_schema:
        assert found.value_schema is not None
        assert (found.value_schema.name, found.value_schema.version) == ("shop.public.outbox.order.Value", 3)
        assert {each.name: each.schema for each in found.value_schema.fields} == {
            "payload": JSON,
            "version": INT32.as_optional(),
            "kind": STRING,
        }
        assert found.headers[2].schema is STRING
    else:
        assert found.value_schema is None


def test_schemas_of_values_are_the_same_objects() -> None:
    chain = transform_chain(
        {
            "transforms": "a",
            "transforms.a.type": TYPE,
            "transforms.a.table.fields.additional.placement": "version:envelope",
            "transforms.a.table.expand.json.payload": "true",
        }
    )
    assert chain is not None
    one, other = chain(event()), chain(event(payload='{"id": 8, "lines": [{"a": 2.5}]}'))
    assert one is not None
    assert other is not None
    assert one.value_schema is other.value_schema
    third = chain(event(payload='{"id": "8"}'))
    assert third is not None
    assert third.value_schema is not one.value_schema


@pytest.mark.parametrize("has_schema", [True, False])
def test_a_column_that_is_missing_fails_or_is_left_out(has_schema: bool) -> None:
    record = event(has_schema=has_schema)
    with pytest.raises(RecordFailed, match="Unable to find field gone in event"):
        routed(record, table_fields_additional_placement="gone:header")
    found = made(record, table_fields_additional_placement="gone:header", table_field_additional_missing="ignore")
    assert [each.name for each in found.headers] == ["old", "id"]


@pytest.mark.parametrize("has_schema", [True, False])
@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("table_field_event_payload", "Unable to find payload field gone in event"),
        ("table_field_event_id", "Unable to find event-id field gone in event"),
        ("table_field_event_key", "Unable to find key field gone in event"),
        ("route_by_field", "Unable to find field of route.by.field, gone in event"),
        ("table_field_event_timestamp", "Unable to find timestamp field gone in event"),
    ],
)
def test_a_table_that_is_no_outbox_is_named(setting: str, words: str, has_schema: bool) -> None:
    with pytest.raises(RecordFailed, match=words) as caught:
        routed(event(has_schema=has_schema), **{setting: "gone"})
    assert "shop.public.outbox is no outbox table" in str(caught.value)


def test_a_row_without_a_route_fails() -> None:
    with pytest.raises(RecordFailed, match="the column aggregatetype of an outbox row names no topic: it is None"):
        routed(event(aggregatetype=None))
    with pytest.raises(RecordFailed, match="is no number of a partition: 'x'"):
        routed(event(part="x"), table_fields_additional_placement="part:partition")


@pytest.mark.parametrize("payload", [None, "", "  "])
def test_an_empty_payload_can_be_a_tombstone(payload: str | None) -> None:
    found = made(event(payload=payload), route_tombstone_on_empty_payload="true")
    assert (found.value, found.value_schema) == (None, None)
    kept = made(event(payload=payload))
    assert (kept.value, kept.value_schema) == (payload, JSON)


@pytest.mark.parametrize(
    ("column", "expected"), [("at", 1_767_225_600_000), ("moment", 1_767_225_601_500), ("type", None)]
)
def test_the_timestamp_can_be_that_of_a_column(column: str, expected: int | None) -> None:
    if expected is None:
        with pytest.raises(RecordFailed, match="Unsupported field type string for event timestamp"):
            routed(event(), table_field_event_timestamp=column)
        return
    assert made(event(), table_field_event_timestamp=column).timestamp_ms == expected
    assert made(event(at=None, moment=None), table_field_event_timestamp=column).timestamp_ms == 1000


def test_a_timestamp_without_a_unit_fails() -> None:
    with pytest.raises(RecordFailed, match=r"Unsupported field type .*int64"):
        routed(event(), table_field_event_timestamp="untyped")
    with pytest.raises(RecordFailed, match="int without a schema"):
        routed(event(has_schema=False), table_field_event_timestamp="at")
    text = event(has_schema=False)
    assert made(text, table_field_event_timestamp="moment").timestamp_ms == 1_767_225_601_500
    with pytest.raises(RecordFailed, match="is no timestamp: 'soon'"):
        routed(event(moment="soon"), table_field_event_timestamp="moment")


def test_a_payload_of_json_can_be_expanded() -> None:
    text = '{"a":1,"b":3000000000,"c":1.5,"d":[{"x":1},{"y":"z"}],"e":{"f":true},"g":null,"h":[],"i":["q",null]}'
    found = made(event(payload=text), table_expand_json_payload="true")
    assert found.value == {
        "a": 1,
        "b": 3_000_000_000,
        "c": 1.5,
        "d": [{"x": 1, "y": None}, {"x": None, "y": "z"}],
        "e": {"f": True},
        "i": ["q", None],
    }
    schema = found.value_schema
    assert schema is not None
    assert (schema.name, schema.optional) == ("payload", True)
    kinds = {each.name: each.schema.kind.value for each in schema.fields}
    assert kinds == {"a": "int32", "b": "int64", "c": "double", "d": "array", "e": "struct", "i": "array"}
    inner = schema.fields[4].schema
    assert (inner.name, inner.optional) == ("payload.e", True)
    assert schema.fields[3].schema.value_schema is not None
    assert schema.fields[3].schema.value_schema.name == "payload.d"
    bare = made(event(payload=text, has_schema=False), table_expand_json_payload="true")
    assert bare.value["g"] is None
    assert bare.value["d"] == [{"x": 1}, {"y": "z"}]


def test_nulls_and_empty_arrays_of_a_payload_can_be_kept() -> None:
    found = made(
        event(payload='{"g": null, "h": [], "a b": [[1], [2]]}'),
        table_expand_json_payload="true",
        table_json_payload_null_behavior="optional_bytes",
        table_json_payload_empty_array_behavior="optional_string",
        field_name_adjustment_mode="avro",
    )
    assert found.value == {"g": None, "h": [], "a_b": [[1], [2]]}
    assert found.value_schema is not None
    assert [each.schema.kind.value for each in found.value_schema.fields] == ["bytes", "array", "array"]
    assert found.value_schema.fields[1].schema.value_schema == OPTIONAL_STRING


@pytest.mark.parametrize(
    "payload", ["plain", "{", "7", '{"a": [1, "x"]}', '{"a": [1, 2.5]}', '[{"a": 1}, {"a": "x"}]', "[]", "[null]"]
)
def test_a_payload_that_cannot_be_expanded_stays(payload: str, caplog: pytest.LogCaptureFixture) -> None:
    found = made(event(payload=payload), table_expand_json_payload="true")
    assert (found.value, found.value_schema) == (payload, JSON)
    assert "is not expanded" in caplog.text


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("table.fields.additional.placement", "a", "A comma-separated list of valid String pairs or trios"),
        ("table.fields.additional.placement", "a:cellar", "must be one of header, envelope, partition"),
        ("table.op.invalid.behavior", "shrug", "Value must be one of warn, error, fatal"),
        ("route.topic.regex", "(", "Invalid regex"),
        ("route.topic.replacement", "$2", "No group 2"),
    ],
)
def test_a_wrong_setting_is_refused(setting: str, value: str, words: str) -> None:
    config = {"transforms": "a", "transforms.a.type": TYPE, f"transforms.a.{setting}": value}
    (stage,) = transform_options(config)
    assert words in stage.errors[f"transforms.a.{setting}"][0]
    with pytest.raises(InvalidConnectorConfig, match="transforms"):
        transform_chain(config)


def test_a_value_that_is_not_what_its_schema_says_fails() -> None:
    with pytest.raises(RecordFailed, match="its value has no field op"):
        routed(SourceRecord("t", {"x": 1}, value_schema=ENVELOPE))
    with pytest.raises(RecordFailed, match="the field after of a change event is no struct: 'x'"):
        routed(SourceRecord("t", {"op": "c", "after": "x"}, value_schema=ENVELOPE))
