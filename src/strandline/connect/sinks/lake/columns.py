"""Connect's values as Arrow columns.

A struct becomes a column for each field, every other value one column `value`. Every column may be null, because
tombstones and fields that are added later need that. A column without any value has no type and is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from strandline.connect.failures import RecordFailed
from strandline.connect.records import SinkRecord
from strandline.connect.schema import DATE, DECIMAL, SCALE, TIME, TIMESTAMP, ConnectType, Schema
from strandline.connect.sinks.plain_json import json_bytes

VALUE: Final = "value"
"""The column of values that are no struct."""
NOT_CONVERTED: Final = (pa.ArrowException, OverflowError, TypeError, ValueError)
"""What Arrow raises for a value that has no column; text that is not Unicode raises a ValueError."""
_DECIMAL_DIGITS: Final = 38
_PLAIN: Final = {
    ConnectType.INT8: pa.int8(),
    ConnectType.INT16: pa.int16(),
    ConnectType.INT32: pa.int32(),
    ConnectType.INT64: pa.int64(),
    ConnectType.FLOAT32: pa.float32(),
    ConnectType.FLOAT64: pa.float64(),
    ConnectType.BOOLEAN: pa.bool_(),
    ConnectType.STRING: pa.string(),
    ConnectType.BYTES: pa.binary(),
}
_LOGICAL: Final = {DATE: pa.date32(), TIME: pa.time64("us"), TIMESTAMP: pa.timestamp("us", tz="UTC")}
_BY_CLASS: Final[dict[type, str]] = {
    bytes: "bytes",
    bytearray: "bytes",
    memoryview: "bytes",
    str: "text",
    dict: "struct",
}
_FIXED: Final = {"bytes": pa.binary(), "text": pa.string()}
Shape = Schema | str
"""What records of one object have in common: their schema, or without one the class of their values."""

METADATA: Final = pa.schema(
    [
        ("__key", pa.string()),
        ("__topic", pa.string()),
        ("__partition", pa.int32()),
        ("__offset", pa.int64()),
        ("__timestamp", pa.timestamp("ms", tz="UTC")),
        ("__headers", pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))),
    ]
)
"""The columns of `include.metadata`."""


def arrow_type(schema: Schema) -> pa.DataType:
    """Return the Arrow type of a Connect schema."""
    if schema.name == DECIMAL:
        return pa.decimal128(_DECIMAL_DIGITS, int(schema.parameters.get(SCALE, "0")))
    if schema.name in _LOGICAL:
        return _LOGICAL[schema.name]
    if schema.kind is ConnectType.STRUCT:
        return pa.struct([(each.name, arrow_type(each.schema)) for each in schema.fields])
    if schema.kind is ConnectType.ARRAY:
        assert schema.value_schema is not None
        return pa.list_(arrow_type(schema.value_schema))
    if schema.kind is ConnectType.MAP:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        return pa.map_(arrow_type(schema.key_schema), arrow_type(schema.value_schema))
    return _PLAIN[schema.kind]


def shape_of(record: SinkRecord) -> Shape | None:
    """Return what an object's records have in common; None for a tombstone, which fits everywhere."""
    if record.value is None:
        return None
    return record.value_schema or _BY_CLASS.get(type(record.value), "plain")


def is_same_shape(one: Shape, other: Shape) -> bool:
    return one is other or one == other


def is_inferred(shape: Shape | None) -> bool:
    """Return whether the types are known from the values alone."""
    return shape in ("struct", "plain")


def array_of(values: Sequence[Any], shape: Shape | None) -> pa.Array:
    """Return values as one array. Raise one of NOT_CONVERTED if one has no column, or two exclude each other."""
    if shape is None:
        return pa.nulls(len(values), pa.binary())
    return pa.array(values, type=arrow_type(shape) if isinstance(shape, Schema) else _FIXED.get(shape))


def table_of(values: Sequence[Any], shape: Shape | None) -> pa.Table:
    """Return values as a table, with a column for each field of a struct. Raise as `array_of` does."""
    array = array_of(values, shape)
    kept = typed(array.type)
    if kept is None:
        return pa.table({VALUE: pa.nulls(len(values), pa.binary())})
    if kept != array.type:
        array = pa.array(values, type=kept)
    if pa.types.is_struct(kept):
        return pa.Table.from_arrays(array.flatten(), names=[each.name for each in kept])
    return pa.table({VALUE: array})


def typed(kind: pa.DataType) -> pa.DataType | None:
    """Return a type without the parts that have none, because no value was seen there; None if nothing is left."""
    if pa.types.is_null(kind):
        return None
    if pa.types.is_struct(kind):
        fields = [(each.name, typed(each.type)) for each in kind]
        kept = [(name, each) for name, each in fields if each is not None]
        return pa.struct(kept) if kept else None
    if pa.types.is_list(kind):
        elements = typed(kind.value_type)
        return None if elements is None else pa.list_(elements)
    return kind


def metadata_of(records: Sequence[SinkRecord]) -> pa.Table:
    """Return the columns of `include.metadata`."""
    return pa.Table.from_arrays(
        [
            pa.array([text_of(each.key, each) for each in records], METADATA.field(0).type),
            pa.array([each.original_topic for each in records], METADATA.field(1).type),
            pa.array([each.original_partition for each in records], METADATA.field(2).type),
            pa.array([each.offset for each in records], METADATA.field(3).type),
            pa.array([each.timestamp_ms for each in records], METADATA.field(4).type),
            pa.array([_headers(each) for each in records], METADATA.field(5).type),
        ],
        schema=METADATA,
    )


def text_of(value: Any, record: SinkRecord) -> str | None:
    """Return a key or header as text: bytes that are no UTF-8 in hexadecimal after `\\x`, other values as JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        raw = bytes(value)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return f"\\x{raw.hex()}"
    return json_bytes(value, record).decode()


def _headers(record: SinkRecord) -> list[dict[str, str | None]]:
    return [{"name": each.name, "value": text_of(each.value, record)} for each in record.headers]


def check_records(records: Sequence[SinkRecord], convert: Callable[[Sequence[SinkRecord]], object]) -> None:
    """Convert records together. If that fails, raise RecordFailed for the first that cannot be converted alone."""
    try:
        convert(records)
    except NOT_CONVERTED:
        for each in records:
            try:
                convert([each])
            except NOT_CONVERTED as error:
                raise RecordFailed(f"the record of {each.place} has no Arrow columns: {error}", each) from None


def first_that_fails(records: Sequence[SinkRecord], convert: Callable[[Sequence[SinkRecord]], object]) -> SinkRecord:
    """Return the record with which the conversion of a list begins to fail."""
    low, high = 0, len(records)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            convert(records[:middle])
        except NOT_CONVERTED:
            high = middle
        else:
            low = middle
    return records[high - 1]


def converts(values: Sequence[Any], shape: Shape | None) -> bool:
    try:
        array_of(values, shape)
    except NOT_CONVERTED:
        return False
    return True


def longest_start(values: Sequence[Any], shape: Shape | None) -> int:
    """Return how many values from the first on fit into one table; at least one, which is known to fit alone."""
    # It begins with few, because values of alternating types make short tables.
    low, high = 1, 2
    while high < len(values) and converts(values[:high], shape):
        low, high = high, high * 2
    high = min(high, len(values) + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if converts(values[:middle], shape) else (low, middle)
    return low


def plain_names(properties: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the settings that begin with a prefix, without it; a library gets them as they are."""
    return {name.removeprefix(prefix): value for name, value in properties.items() if name.startswith(prefix)}
