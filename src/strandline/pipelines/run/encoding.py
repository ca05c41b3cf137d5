"""Rows to records and back: what lies in the topic of a dataset.

    key      of one key column that is a string: its text; else JSON of the key columns, {"a":1,"b":"x"}
    value    JSON of all other columns, nulls kept; null (a tombstone) where the column `_deleted` is true

A compacted topic refuses a record without a key, so a table's row with a null in its one key column has three ways: it
is kept under the dataset's `null_key`, or goes to dead letters with a reason, or, where there are none, is kept under
the key {"a":null}.

Times are in UTC with microseconds, 2026-01-31T09:30:00.000000Z. A frame of a record's own columns (`value` as text or
bytes, perhaps `key`, `headers`, `topic`, `partition`) for which no key is declared is written as it is. What is special
beside that: `headers`, if it has the type of headers; in a stream `topic`, which sends a row to another topic (null:
the dataset's own); `_deleted`, where there is a key.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, BooleanType, DataType, NullType, StringType, StructType

from strandline.pipelines.failures import guess, refused
from strandline.pipelines.language.json_values import READ
from strandline.pipelines.language.model import Dataset, Kind
from strandline.spark.error_translation import SparkFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from strandline.spark.registry.reader_schema import ReaderSchema

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
    """Return whether rows of this schema are records already."""
    types = {field.name: field.dataType for field in schema.fields}
    if key or not _is_text(types.get("value")):
        return False
    if "key" not in types:
        return set(types) <= _RECORD
    return _is_text(types["key"]) and set(types) <= _RECORD | _OF_A_READ


def routes(schema: StructType, dataset: Dataset) -> bool:
    """Return whether the rows themselves say which topic they go to."""
    return dataset.kind is Kind.STREAM and _has(schema, "topic", StringType())


def row_schema(schema: StructType, dataset: Dataset) -> StructType:
    """Return what a reader of the dataset gets back: the frame's columns without those that only steer the writing."""
    if not dataset.is_of_registry and is_record(schema, dataset.key):
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


def encode(
    frame: DataFrame, dataset: Dataset, *, letters: str | None = None, written_by: ReaderSchema | None = None
) -> DataFrame:
    """Return the sink's columns for a frame of the dataset; `letters` is the topic for a table's rows without a key.

    `written_by` is the schema of a registry that values are written by; None: they are JSON.
    """
    schema = frame.schema
    _check_columns(schema, dataset)
    if written_by is None and is_record(schema, dataset.key):
        return frame.select(*(each for each in frame.columns if each in _RECORD))
    steering = _steering(schema, dataset)
    rest = [each for each in frame.columns if each not in steering and each not in dataset.key]
    # A null in `_deleted` is no deletion.
    is_deleted = F.coalesce(column(DELETED), F.lit(False)) if DELETED in steering else None
    has_letters = letters is not None and dataset.kind.has_keys and len(dataset.key) == 1 and dataset.null_key is None
    if written_by is not None:
        gone = [is_deleted] if is_deleted is not None else []
        gone += [column(dataset.key[0]).isNull()] if has_letters else []
        value = _by_schema(frame, dataset, steering, written_by, gone)
    else:
        value = F.to_json(F.struct(*(column(each) for each in rest)), _WRITE) if rest else F.lit("{}")
        if is_deleted is not None:
            value = F.when(is_deleted, F.lit(None).cast("string")).otherwise(value)
    columns = {"key": _key(schema, dataset)} if dataset.key else {}
    columns |= {"value": value} | {each: column(each) for each in ("headers", "topic") if each in steering}
    if has_letters:
        assert letters is not None
        whole = F.to_json(F.struct(*(column(each) for each in frame.columns if each not in steering)), _WRITE)
        whole = whole if written_by is None else whole.cast("binary")
        columns = _with_letters(columns, dataset, whole, letters)
    return frame.select(*(each.alias(name) for name, each in columns.items()))


def _by_schema(
    frame: DataFrame, dataset: Dataset, steering: set[str], written_by: ReaderSchema, gone: list[Column]
) -> Column:
    """Return values by a schema of a registry: of all columns that it names, those of the key among them.

    A row for which one of `gone` holds has no value: a function in Python is called for every row, also for such.
    """
    from strandline.spark.registry.functions import encoding_column
    from strandline.spark.registry.row_encoding import RowEncoder

    try:
        encoder = RowEncoder(written_by)
        named = [
            each
            for each in frame.columns
            if each not in steering and (each not in dataset.key or each in encoder.names)
        ]
        encoder.check_names(named)
    except SparkFailed as error:
        raise refused(f"{dataset.name} can not be written: {error}", dataset.at) from error
    row = F.struct(*(column(each) for each in named))
    for each in gone:
        row = F.when(each, F.lit(None)).otherwise(row)
    return encoding_column(row, written_by)


def _key(schema: StructType, dataset: Dataset) -> Column:
    key = dataset.key
    if len(key) > 1 or not isinstance(schema[key[0]].dataType, StringType):
        return F.to_json(F.struct(*(column(each) for each in key)), _WRITE)
    if not dataset.kind.has_keys:
        return column(key[0])
    return F.coalesce(column(key[0]), F.lit(dataset.null_key or _null_text(key[0])))


def _null_text(key: str) -> str:
    """Return what stands for a null in the one key column that is a string: what is written for every other type."""
    return json.dumps({key: None}, separators=(",", ":"), ensure_ascii=False)


def _with_letters(columns: dict[str, Column], dataset: Dataset, whole: Column, letters: str) -> dict[str, Column]:
    """Return the columns with rows without a key sent to `letters`, whole and with the reason."""
    [key] = dataset.key
    why = {"dataset": dataset.name, "reason": f"the key {key} is null"}
    letter = {
        "key": F.lit(None).cast("string"),
        "value": whole,
        "headers": F.array(*(header(name, F.lit(value)) for name, value in why.items())),
        "topic": F.lit(letters),
    }
    absent = {"headers": F.lit(None).cast(_HEADERS), "topic": F.lit(None).cast("string")}
    return {
        name: F.when(column(key).isNull(), each).otherwise(columns[name] if name in columns else absent[name])
        for name, each in letter.items()
    }


def header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))


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
        if dataset.null_key is not None and not isinstance(schema[each].dataType, StringType):
            raise refused(
                f"{dataset.name} has a null_key, and its key {each} is no string: leave out null_key, a null is kept "
                f"as {_null_text(each)}",
                dataset.at,
            )


# Records to rows


def decode(frame: DataFrame, schema: StructType, key: Sequence[str], *, keep: Sequence[str] = ()) -> DataFrame:
    """Return the rows that `encode` wrote, from a frame with `key` and `value`; `keep` are columns that stay.

    The value of a tombstone is nulls.
    """
    if is_record(schema, key):
        columns = [column(field.name).cast(field.dataType).alias(field.name) for field in schema.fields]
        return frame.select(*columns, *keep)
    rest, in_key = split(schema, key)
    # Parsed in a select of its own: Spark would parse once for each column that is taken out.
    value = F.from_json(F.col("value").cast("string"), rest, READ) if rest.fields else F.lit(None)
    parsed = frame.select(
        value.alias("value"),
        (key_columns(in_key) if in_key.fields else F.lit(None)).alias("key"),
        F.struct(*keep).alias("kept") if keep else F.lit(None).alias("kept"),
    )
    columns = [F.col("key" if each.name in key else "value").getField(each.name).alias(each.name) for each in schema]
    return parsed.select(*columns, *(F.col("kept").getField(each).alias(each) for each in keep))


def split(schema: StructType, key: Sequence[str]) -> tuple[StructType, StructType]:
    """Return the columns that lie in a record's value, and those in its key."""
    rest = StructType([field for field in schema.fields if field.name not in key])
    return rest, StructType([schema[each] for each in key])


def key_columns(schema: StructType) -> Column:
    """Return the key's columns as a struct. Other programs may write a single column plainly: 42 for {"id":42}."""
    text = F.col("key").cast("string")
    only = schema[0] if len(schema.fields) == 1 else None
    if only is not None and isinstance(only.dataType, StringType):
        return F.struct(F.nullif(text, F.lit(_null_text(only.name))).alias(only.name))
    parsed = F.from_json(text, schema, READ)
    if only is None or only.dataType.simpleString().partition("(")[0] not in _PLAIN:
        return parsed
    return F.when(text.startswith("{"), parsed).otherwise(F.struct(text.try_cast(only.dataType).alias(only.name)))


def column(name: str) -> Column:
    """Return a column by its whole name, dots and backticks included."""
    return F.col("`" + name.replace("`", "``") + "`")
