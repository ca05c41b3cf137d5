"""Schemas of change events: names, versions and fields are Debezium's.

A source gives `RowChange.source` as it stands in the event, with every field of its schema that is known. `ts_us` and
`ts_ns` may be left out: `events` then makes them of `ts_ms`. A source that knows microseconds adds `source_times`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from strandline.cdc.names import schema_name
from strandline.connect.schema import (
    BYTES,
    INT32,
    INT64,
    OPTIONAL_STRING,
    STRING,
    ConnectType,
    Schema,
    array,
    struct,
)

ENVELOPE_VERSION: Final = 2
NEW_KEY: Final = "__debezium.newkey"
OLD_KEY: Final = "__debezium.oldkey"
"""Headers of the two events of a key that changed."""
OPTIONAL_INT64: Final = INT64.as_optional()

SNAPSHOT: Final = Schema(
    ConnectType.STRING,
    True,
    "io.debezium.data.Enum",
    1,
    default="false",
    parameters={"allowed": "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"},
)

_COMMON: Final[Mapping[str, Schema]] = {
    "version": STRING,
    "connector": STRING,
    "name": STRING,
    "ts_ms": INT64,
    "snapshot": SNAPSHOT,
    "db": STRING,
    "sequence": OPTIONAL_STRING,
    "ts_us": OPTIONAL_INT64,
    "ts_ns": OPTIONAL_INT64,
}

POSTGRES_SOURCE: Final = struct(
    {
        **_COMMON,
        "schema": STRING,
        "table": STRING,
        "txId": OPTIONAL_INT64,
        "lsn": OPTIONAL_INT64,
        "xmin": OPTIONAL_INT64,
        "origin": OPTIONAL_STRING,
        "origin_lsn": OPTIONAL_INT64,
    },
    name="io.debezium.connector.postgresql.Source",
    version=1,
)
MARIADB_SOURCE: Final = struct(
    {
        **_COMMON,
        "table": OPTIONAL_STRING,
        "server_id": INT64,
        "gtid": OPTIONAL_STRING,
        "file": STRING,
        "pos": INT64,
        "row": INT32,
        "thread": OPTIONAL_INT64,
        "query": OPTIONAL_STRING,
    },
    name="io.debezium.connector.mariadb.Source",
    version=1,
)

TRANSACTION_BLOCK: Final = struct(
    {"id": STRING, "total_order": INT64, "data_collection_order": INT64},
    name="event.block",
    version=1,
    optional=True,
)
_EVENTS_OF_COLLECTION: Final = struct(
    {"data_collection": STRING, "event_count": INT64}, name="event.collection", version=1, optional=True
)


def source_times(ts_us: int) -> dict[str, int]:
    """Return the three times of a source block."""
    return {"ts_ms": ts_us // 1000, "ts_us": ts_us, "ts_ns": ts_us * 1000}


def key_schema(topic: str, fields: Mapping[str, Schema], adjustment: str) -> Schema:
    """Return the schema of a table's keys."""
    return struct(fields, name=schema_name(f"{topic}.Key", adjustment))


def row_schema(topic: str, fields: Mapping[str, Schema], adjustment: str) -> Schema:
    """Return the schema of a table's rows."""
    return struct(fields, name=schema_name(f"{topic}.Value", adjustment), optional=True)


def partial_row_schema(row: Schema, key: Iterable[str]) -> Schema:
    """Return the schema of rows of which only the key is sure to be known. It is the same object if nothing differs.

    Fields have no defaults: a default is no value that the row had.
    """
    known = frozenset(key)
    fields = tuple(
        each
        if each.name in known or (each.schema.optional and each.schema.default is None)
        else replace(each, schema=replace(each.schema, optional=True, default=None))
        for each in row.fields
    )
    return (
        row if all(one is other for one, other in zip(fields, row.fields, strict=True)) else replace(row, fields=fields)
    )


def envelope_schema(topic: str, before: Schema, after: Schema, source: Schema, adjustment: str) -> Schema:
    """Return the schema of a table's events."""
    return struct(
        {
            "before": before,
            "after": after,
            "source": source,
            "transaction": TRANSACTION_BLOCK,
            "op": STRING,
            "ts_ms": OPTIONAL_INT64,
            "ts_us": OPTIONAL_INT64,
            "ts_ns": OPTIONAL_INT64,
        },
        name=schema_name(f"{topic}.Envelope", adjustment),
        version=ENVELOPE_VERSION,
    )


class FixedSchemas:
    """Schemas of records that belong to no table, with names as `schema.name.adjustment.mode` says."""

    def __init__(self, source: Schema, adjustment: str, binary_mode: str) -> None:
        def named(name: str, fields: Mapping[str, Schema]) -> Schema:
            return struct(fields, name=schema_name(name, adjustment), version=1)

        common, postgres = "io.debezium.connector.common", "io.debezium.connector.postgresql"
        self.heartbeat_key: Final = named(f"{common}.ServerNameKey", {"serverName": STRING})
        self.heartbeat: Final = named(f"{common}.Heartbeat", {"ts_ms": INT64})
        self.transaction_key: Final = named(f"{common}.TransactionMetadataKey", {"id": STRING})
        self.transaction: Final = named(
            f"{common}.TransactionMetadataValue",
            {
                "status": STRING,
                "id": STRING,
                "event_count": OPTIONAL_INT64,
                "data_collections": array(_EVENTS_OF_COLLECTION, optional=True),
                "ts_ms": INT64,
            },
        )
        self.message_key: Final = named(f"{postgres}.MessageKey", {"prefix": OPTIONAL_STRING})
        content = (BYTES if binary_mode == "bytes" else STRING).as_optional()
        block = named(f"{postgres}.Message", {"prefix": OPTIONAL_STRING, "content": content})
        self.message: Final = named(
            f"{postgres}.MessageValue",
            {
                "op": STRING,
                "ts_ms": OPTIONAL_INT64,
                "source": source,
                "transaction": TRANSACTION_BLOCK,
                "message": block,
            },
        )


def transaction_block(id: str, total_order: int, data_collection_order: int) -> dict[str, Any]:
    """Return the block that says where an event stands in its transaction."""
    return {"id": id, "total_order": total_order, "data_collection_order": data_collection_order}
