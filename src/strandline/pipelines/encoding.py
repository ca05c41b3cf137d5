"""Rows to records and back: what lies in the topic of a dataset.

    key      of one key column that is a string: its text; else JSON of the key columns, {"a":1,"b":"x"}
    value    JSON of all other columns, nulls kept; null (a tombstone) where the column `_deleted` is true

Times are in UTC with microseconds, 2026-01-31T09:30:00.000000Z. A frame of a record's own columns (`value` as text or
bytes, perhaps `key`, `headers`, `topic`, `partition`) for which no key is declared is written as it is. What is special
beside that: `headers`, if it has the type of headers; in a stream `topic`, which sends a row to another topic (null:
the dataset's own); `_deleted`, where there is a key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, BooleanType, DataType, NullType, StringType, StructField, StructType

from strandline.pipelines.failures import guess, refused
from strandline.pipelines.json_values import CORRUPT, READ
from strandline.pipelines.model import Dataset, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

DELETED: Final = "_deleted"
_RECORD: Final = frozenset({"key", "value", "headers", "topic", "partition"})
_OF_A_READ: Final = frozenset({"offset", "timestamp", "timestampType", "leaderEpoch"})
"""Columns that reading adds to a record; they are nothing that could be written."""
_HEADERS: Final = "array<struct<key:string,value:binary>>"
_WRITE: Final = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
}
_PLAIN: Final = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "boolean", "date", "timestamp")
"""Types of a single key column that others write without JSON around it."""


# Which columns are what


def is_record(schema: StructType, key: Sequence[str]) -> bool:
    """Whether rows of this schema are records already."""
    types = {field.name: field.dataType for field in schema.fields}
    if key or not _is_text(types.get("value")):
        return False
    if "key" not in types:
        return set(types) <= _RECORD
    return _is_text(types["key"]) and set(types) <= _RECORD | _OF_A_READ


def routes(schema: StructType, dataset: Dataset) -> bool:
    """Whether the rows themselves say which topic they go to."""
    return dataset.kind is Kind.STREAM and _has(schema, "topic", StringType())


def row_schema(schema: StructType, dataset: Dataset) -> StructType:
    """What a reader of the dataset gets back: the frame's columns without those that only steer the writing."""
    if is_record(schema, dataset.key):
        return StructType([field for field in schema.fields if field.name in ("key", "value")])
    return StructType([field for field in schema.fields if field.name not in _steering(schema, dataset)])


def _steering(schema: StructType, dataset: Dataset) -> set[str]:
    found = set()
    if dataset.key and _has(schema, DELETED, BooleanType()):
        found.add(DELETED)
    if routes(schema, dataset):
        found.add("topic")
    if "headers" in schema.names and schema["headers"].dataType.simpleString() == _HEADERS:
        found.add("headers")
    return found - set(dataset.key)


def _has(schema: StructType, name: str, of: DataType) -> bool:
    return name in schema.names and schema[name].dataType == of


def _is_text(of: DataType | None) -> bool:
    return isinstance(of, StringType | BinaryType)


# Rows to records


def encode(frame: DataFrame, dataset: Dataset) -> DataFrame:
    """The columns of the sink for a frame of the dataset."""
    schema = frame.schema
    _check_columns(schema, dataset)
    if is_record(schema, dataset.key):
        return frame.select(*(each for each in frame.columns if each in _RECORD))
    steering = _steering(schema, dataset)
    rest = [each for each in frame.columns if each not in steering and each not in dataset.key]
    value = F.to_json(F.struct(*(column(each) for each in rest)), _WRITE) if rest else F.lit("{}")
    if DELETED in steering:
        # A null in `_deleted` is no deletion.
        value = F.when(F.coalesce(column(DELETED), F.lit(False)), F.lit(None).cast("string")).otherwise(value)
    columns = [value.alias("value")]
    if dataset.key:
        columns.insert(0, _key(schema, dataset.key).alias("key"))
    return frame.select(*columns, *(each for each in ("headers", "topic") if each in steering))


def _key(schema: StructType, key: Sequence[str]) -> Column:
    if len(key) == 1 and isinstance(schema[key[0]].dataType, StringType):
        return column(key[0])
    return F.to_json(F.struct(*(column(each) for each in key)), _WRITE)


def _check_columns(schema: StructType, dataset: Dataset) -> None:
    names = schema.names
    if twice := [each for each in names if names.count(each) > 1]:
        raise refused(
            f"{dataset.name} has the column {twice[0]} twice: select or rename one of them (after a join, "
            "on='column' keeps one)",
            dataset.at,
        )
    for field in schema.fields:
        if isinstance(field.dataType, NullType):
            raise refused(
                f"{dataset.name} has the column {field.name}, which is null and has no type: say one, as in "
                "lit(None).cast('string')",
                dataset.at,
            )
    for each in dataset.key:
        if each not in names:
            raise refused(
                f"{dataset.name} has the key {each}, which is no column of what it returns "
                f"({', '.join(names)}){guess(each, names)}: select it, or choose another key",
                dataset.at,
            )


# Records to rows


def decode(frame: DataFrame, schema: StructType, key: Sequence[str], *, keep: Sequence[str] = ()) -> DataFrame:
    """The rows of a topic that `encode` wrote, from a frame with `key` and `value`; `keep` are columns that stay.

    The value of a tombstone is nulls.
    """
    if is_record(schema, key):
        columns = [column(field.name).cast(field.dataType).alias(field.name) for field in schema.fields]
        return frame.select(*columns, *keep)
    return decode_json(frame, schema, key, keep=keep)


def decode_json(
    frame: DataFrame, schema: StructType, key: Sequence[str], *, keep: Sequence[str] = (), with_corrupt: bool = False
) -> DataFrame:
    """As `decode`, for what others wrote; `with_corrupt` adds `_corrupt`, the value where it does not fit."""
    rest, in_key = split(schema, key)
    text = F.col("value").cast("string")
    whole = StructType([*rest.fields, StructField(CORRUPT, StringType())]) if with_corrupt else rest
    # Parsed in a select of its own: Spark would parse once for each column that is taken out.
    parsed = frame.select(
        F.from_json(text, whole, READ).alias("value") if whole.fields else F.lit(None).alias("value"),
        (key_columns(in_key) if in_key.fields else F.lit(None)).alias("key"),
        text.alias("text"),
        F.struct(*keep).alias("kept") if keep else F.lit(None).alias("kept"),
    )
    columns = [F.col("key" if each.name in key else "value").getField(each.name).alias(each.name) for each in schema]
    if with_corrupt:
        # An empty text is no JSON, and from_json answers it with null and no complaint.
        nothing = F.when(F.col("value").isNull(), F.col("text"))
        columns.append(F.coalesce(F.col("value").getField(CORRUPT), nothing).alias(CORRUPT))
    return parsed.select(*columns, *(F.col("kept").getField(each).alias(each) for each in keep))


def split(schema: StructType, key: Sequence[str]) -> tuple[StructType, StructType]:
    """The columns that lie in a record's value, and those in its key."""
    rest = StructType([field for field in schema.fields if field.name not in key])
    return rest, StructType([schema[each] for each in key])


def key_columns(schema: StructType) -> Column:
    """The key's columns as a struct. A single column may also be written plainly by others: 42 instead of {"id":42}."""
    text = F.col("key").cast("string")
    only = schema[0] if len(schema.fields) == 1 else None
    if only is not None and isinstance(only.dataType, StringType):
        return F.struct(text.alias(only.name))
    parsed = F.from_json(text, schema, READ)
    if only is None or only.dataType.simpleString().partition("(")[0] not in _PLAIN:
        return parsed
    return F.when(text.startswith("{"), parsed).otherwise(F.struct(text.try_cast(only.dataType).alias(only.name)))


def column(name: str) -> Column:
    """A column by its whole name, dots and backticks included."""
    return F.col("`" + name.replace("`", "``") + "`")
