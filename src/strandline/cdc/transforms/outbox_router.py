"""Debezium's outbox event router: rows of an outbox table as the events that they describe."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from strandline.cdc.settings import NAME_ADJUSTMENTS, one_of
from strandline.cdc.transforms.change_events import is_change_event, parts_of, row_of
from strandline.cdc.transforms.expanded_json import ExpandedJson
from strandline.connect.config import Config as BaseConfig
from strandline.connect.config import option
from strandline.connect.convert.interface import SCHEMAS_KEPT_MAX
from strandline.connect.convert.logical import timestamp_ms_of
from strandline.connect.failures import RecordFailed
from strandline.connect.records import ConnectRecord, Header
from strandline.connect.schema import STRING, TIMESTAMP, Schema, struct
from strandline.connect.transforms.interface import Transform, type_name
from strandline.connect.transforms.patterns import JavaReplacement, compiled, wrong_pattern

PAYLOAD: Final = "payload"
PLACEMENTS: Final = ("header", "envelope", "partition")
_TIMES: Final[dict[str, Callable[[Any], int]]] = {
    "io.debezium.time.Timestamp": int,
    "io.debezium.time.MicroTimestamp": lambda value: value // 1_000,
    "io.debezium.time.NanoTimestamp": lambda value: value // 1_000_000,
    "io.debezium.time.ZonedTimestamp": lambda value: _ms_of_text(value),
    TIMESTAMP: timestamp_ms_of,
}
log = logging.getLogger("strandline.cdc")


class Placement(NamedTuple):
    """Where a further column goes."""

    field: str
    place: str
    alias: str


def _placements(values: Sequence[str]) -> list[Placement]:
    found = []
    for each in values:
        parts = [part.strip() for part in each.split(":")]
        found.append(Placement(parts[0], parts[1].lower(), parts[-1] if len(parts) == 3 else parts[0]))
    return found


def _wrong_placements(values: Sequence[str]) -> str | None:
    if any(each.count(":") not in (1, 2) for each in values):
        return f"A comma-separated list of valid String pairs or trios is expected but got: [{', '.join(values)}]"
    wrong = next((each for each in _placements(values) if each.place not in PLACEMENTS), None)
    return None if wrong is None else f"The place of {wrong.field} must be one of {', '.join(PLACEMENTS)}"


class EventRouter(Transform):
    """Makes an event of each new row of an outbox table: topic, key, payload and headers come from its columns.

    Deleted rows are dropped. Records that are no events of rows, as heartbeats, pass.
    """

    class Config(BaseConfig):
        table_field_event_id: str = option("Column with the id of the event.", default="id", importance="LOW")
        table_field_event_key: str = option("Column with the key.", default="aggregateid", importance="LOW")
        table_field_event_type: str = option("Column with the type.", default="type", importance="LOW")
        table_field_event_payload: str = option("Column with the payload.", default="payload", importance="LOW")
        table_field_event_timestamp: str | None = option(
            "Column with the timestamp of the record; that of the change event without it.", default=None
        )
        table_fields_additional_placement: list[str] = option(
            "Further columns, as column:header, column:envelope:alias or column:partition.",
            default=[],
            importance="HIGH",
            check=_wrong_placements,
        )
        table_field_additional_missing: str = option(
            "What is done if a row has no such column: error or ignore.",
            default="error",
            check=one_of("error", "ignore"),
        )
        table_field_event_schema_version: str | None = option(
            "Column with the version of the value's schema.", default=None, importance="LOW"
        )
        table_op_invalid_behavior: str = option(
            "What is done with updates: warn and error drop them and log, fatal fails.",
            default="warn",
            check=one_of("warn", "error", "fatal"),
        )
        table_expand_json_payload: bool = option("Make a struct of a payload that is JSON text.", default=False)
        table_json_payload_null_behavior: str = option(
            "Nulls of such a payload: ignore leaves them out, optional_bytes keeps them.",
            default="ignore",
            check=one_of("ignore", "optional_bytes"),
        )
        table_json_payload_empty_array_behavior: str = option(
            "Empty arrays of such a payload: ignore leaves them out, optional_string keeps them.",
            default="ignore",
            check=one_of("ignore", "optional_string"),
        )
        field_name_adjustment_mode: str = option(
            "Replace characters of such a payload's fields that Avro does not have.",
            default="none",
            importance="LOW",
            check=one_of(*NAME_ADJUSTMENTS),
        )
        route_by_field: str = option("Column that names the topic.", default="aggregatetype", importance="HIGH")
        route_topic_regex: str = option(
            "What is taken of that column.", default="(?<routedByValue>.*)", importance="LOW", check=wrong_pattern
        )
        route_topic_replacement: str = option(
            "The topic that is made of it.", default="outbox.event.${routedByValue}", importance="HIGH"
        )
        route_tombstone_on_empty_payload: bool = option(
            "Write a tombstone for an empty payload.", default=False, importance="HIGH"
        )
        tracing_span_context_field: str = option(
            "Accepted for Debezium's configs.", default="tracingspancontext", importance="LOW"
        )
        tracing_operation_name: str = option(
            "Accepted for Debezium's configs.", default="debezium-read", importance="LOW"
        )
        tracing_with_context_field_only: bool = option(
            "Accepted for Debezium's configs.", default=False, importance="LOW"
        )

        def check_all(self) -> Sequence[tuple[str, str]]:
            try:
                JavaReplacement(self.route_topic_replacement, compiled(self.route_topic_regex))
            except ValueError as error:
                name = "route.topic.replacement"
                return [(name, f"Invalid value {self.route_topic_replacement} for configuration {name}: {error}")]
            return ()

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._pattern = compiled(config.route_topic_regex)
        self._replacement = JavaReplacement(config.route_topic_replacement, self._pattern)
        self._placements = _placements(config.table_fields_additional_placement)
        self._has_envelope = any(each.place == "envelope" for each in self._placements)
        self._ignores_missing = config.table_field_additional_missing.lower() == "ignore"
        self._json = ExpandedJson(
            keeps_nulls=config.table_json_payload_null_behavior.lower() == "optional_bytes",
            keeps_empty_arrays=config.table_json_payload_empty_array_behavior.lower() == "optional_string",
            adjustment=config.field_name_adjustment_mode.lower(),
        )
        self._schemas: dict[tuple[int, int, str, Any], tuple[Schema, Schema, Schema]] = {}

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        if record.value is None:
            return None
        if not is_change_event(record):
            return record
        event = parts_of(record)
        if event["op"] == "d":
            return None
        schema, values = row_of(record, "after")
        if event["op"] not in ("c", "r") or values is None:
            self._refuse(record, event["op"])
            return None
        return self._routed(record, _OutboxRow(record, schema, values))

    def _refuse(self, record: ConnectRecord, op: str) -> None:
        message = f"an outbox table has new and deleted rows only, and this event has the operation {op}"
        behavior = self.config.table_op_invalid_behavior.lower()
        if behavior == "fatal":
            raise RecordFailed(f"{message}: stop the statement, or set table.op.invalid.behavior", record)
        level = logging.WARNING if behavior == "warn" else logging.ERROR
        log.log(level, "%s: dropped a record of %s", message, record.topic)

    def _routed(self, record: ConnectRecord, row: _OutboxRow) -> ConnectRecord:
        config = self.config
        payload_schema, payload = row.get(config.table_field_event_payload, "payload field")
        id_schema, event_id = row.get(config.table_field_event_id, "event-id field")
        key_schema, key = row.get(config.table_field_event_key, "key field")
        _, route = row.get(config.route_by_field, "field of route.by.field,")
        if not isinstance(route, str) or not route:
            raise RecordFailed(
                f"the column {config.route_by_field} of an outbox row names no topic: it is {route!r}", record
            )
        timestamp = self._timestamp(record, row)
        if config.table_expand_json_payload:
            payload_schema, payload = self._expanded(record, payload_schema, payload)
        headers = [*record.headers, Header("id", event_id, id_schema)]
        extra: dict[str, tuple[Schema | None, Any]] = {}
        partition = None
        for field, place, alias in self._placements:
            if self._ignores_missing and not row.has(field):
                continue
            column_schema, value = row.get(field, "field")
            if place == "header":
                headers.append(Header(alias, value, column_schema))
            elif place == "envelope":
                extra[alias] = column_schema, value
            else:
                partition = _partition(record, field, value)
        value_schema, value = payload_schema, payload
        if config.route_tombstone_on_empty_payload and _is_empty(payload):
            value_schema, value = None, None
        elif self._has_envelope:
            value_schema = self._value_schema(row, payload_schema, extra, route)
            value = {PAYLOAD: payload, **{alias: each for alias, (_, each) in extra.items()}}
        return record.with_(
            topic=self._topic(route),
            partition=partition,
            key_schema=key_schema if key_schema is not None or row.schema is None else STRING,
            key=key,
            value_schema=value_schema,
            value=value,
            timestamp_ms=timestamp,
            headers=headers,
        )

    def _topic(self, route: str) -> str:
        if self._pattern.fullmatch(route) is None:
            return route
        return self._replacement.first_in(route, self._pattern.search(route))

    def _timestamp(self, record: ConnectRecord, row: _OutboxRow) -> int | None:
        changed = record.value.get("ts_ms")
        name = self.config.table_field_event_timestamp
        if not name:
            return changed if isinstance(changed, int) else None
        schema, value = row.get(name, "timestamp field")
        if value is None:
            return changed if isinstance(changed, int) else None
        convert = (
            _TIMES.get(schema.name or "") if schema is not None else _ms_of_text if isinstance(value, str) else None
        )
        if convert is None:
            kind = schema.name or schema.kind if schema is not None else f"{type_name(value)} without a schema"
            raise RecordFailed(f"Unsupported field type {kind} for event timestamp (column {name})", record)
        try:
            return convert(value)
        except (ValueError, TypeError):
            raise RecordFailed(f"the column {name} of an outbox row is no timestamp: {value!r}", record) from None

    def _expanded(self, record: ConnectRecord, schema: Schema | None, payload: Any) -> tuple[Schema | None, Any]:
        if not isinstance(payload, str):
            if payload is not None:
                log.warning("the payload of an outbox row of %s is no text: it is not expanded", record.topic)
            return schema, payload
        try:
            if schema is None:
                return None, self._json.parsed(payload)
            return self._json.expand(self.config.table_field_event_payload, payload)
        except (ValueError, RecursionError) as error:
            log.warning("the payload of an outbox row of %s is not expanded: %s", record.topic, error)
            return schema, payload

    def _value_schema(
        self, row: _OutboxRow, payload: Schema | None, extra: dict[str, tuple[Schema | None, Any]], route: str
    ) -> Schema | None:
        if row.schema is None or payload is None:
            return None
        version = None
        if self.config.table_field_event_schema_version:
            _, version = row.get(self.config.table_field_event_schema_version, "schema version field")
        known = id(row.schema), id(payload), route, version
        found = self._schemas.get(known)
        if found is None:
            fields = {PAYLOAD: payload, **{alias: each for alias, (each, _) in extra.items() if each is not None}}
            made = struct(fields, name=_inserted(row.schema.name, route), version=version)
            if len(self._schemas) >= SCHEMAS_KEPT_MAX:
                self._schemas.clear()
            # The schemas of the key are kept too: otherwise others could get their ids.
            found = self._schemas[known] = made, row.schema, payload
        return found[0]


class _OutboxRow:
    """A row with the schema of its columns, if it has one."""

    def __init__(self, record: ConnectRecord, schema: Schema | None, values: dict[str, Any]) -> None:
        self._record = record
        self._values = values
        self.schema: Final = schema

    def has(self, name: str) -> bool:
        return name in self._values if self.schema is None else self.schema.field(name) is not None

    def get(self, name: str, what: str) -> tuple[Schema | None, Any]:
        """Return a column's schema and value. Raise RecordFailed if there is none."""
        if self.schema is None:
            if name in self._values:
                return None, self._values[name]
        else:
            field = self.schema.field(name)
            if field is not None:
                value = self._values.get(name)
                return field.schema, field.schema.default if value is None else value
        raise RecordFailed(
            f"Unable to find {what} {name} in event: {self._record.topic} is no outbox table with that column; name "
            "the right one in the settings of EventRouter, or choose records with a predicate",
            self._record,
        )


def _inserted(name: str | None, route: str) -> str:
    """Return the name of a row's schema with the route before its last part."""
    if name is None:
        return route
    begin, dot, last = name.rpartition(".")
    return f"{begin}{dot}{route}.{last}"


def _partition(record: ConnectRecord, field: str, value: Any) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise RecordFailed(f"the column {field} of an outbox row is no number of a partition: {value!r}", record)
    return value


def _is_empty(payload: Any) -> bool:
    return payload is None or (isinstance(payload, str) and not payload.strip())


def _ms_of_text(text: str) -> int:
    moment = datetime.datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return timestamp_ms_of(moment)
