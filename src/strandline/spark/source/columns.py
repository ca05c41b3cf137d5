"""The schema of the source in Spark's words, and in Arrow's (pure).

A user may name fewer columns in two ways: the option `columns`, or `.schema(...)` with the names and types of some.
PySpark tells a Python source of neither projection nor pruning, and what is not built costs nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from strandline.client.arrow_rows import FIELDS
from strandline.spark.source.source_spec import (
    COLUMNS,
    CORRUPT_COLUMN,
    CORRUPT_KEY_COLUMN,
    KEY_COLUMN,
    MADE_COLUMNS,
    OptionRefused,
    RowShape,
)

if TYPE_CHECKING:
    from strandline.spark.registry.reader_schema import ReaderSchema

_JSON_TYPES: Final = {"string": "STRING", "integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN"}
_KNOWN_TYPES: Final = (BooleanType, NumericType, StringType, TimestampType, TimestampNTZType, DateType, BinaryType)
_INSTEAD: Final[dict[type[DataType], str]] = {MapType: "say STRUCT<...>"}
_JSON_FORMATS: Final = {"date-time": "TIMESTAMP", "date": "DATE"}


def ddl(shape: RowShape) -> str:
    """The columns as Spark reads them: those of the value's schema first, then those of the record."""
    found = [f"`{name}` {COLUMNS[name]}" for name in shape.columns]
    if shape.value_schema is not None:
        of_value = _registry_ddl(shape) if shape.is_of_registry else value_ddl(shape.value_schema)
        found.insert(0, f"{_quoted(shape.value_column)} STRUCT<{of_value}>" if shape.value_column else of_value)
        if not shape.fails_on_corrupt:
            found.append(f"{CORRUPT_COLUMN} STRING")
    if shape.key_schema is not None:
        found.append(f"{KEY_COLUMN} STRUCT<{value_ddl(shape.key_schema, 'keySchema')}>")
        if not shape.fails_on_corrupt:
            found.append(f"{CORRUPT_KEY_COLUMN} STRING")
    return ", ".join(found)


def value_ddl(text: str, option: str = "valueSchema") -> str:
    """The option in Spark's words: it is either these already, or a JSON Schema of an object."""
    if not text.strip():
        raise OptionRefused(f"{option} is empty: say columns like 'id BIGINT, name STRING', or a JSON Schema")
    if not text.lstrip().startswith("{"):
        return text
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise OptionRefused(f"{option} begins like a JSON Schema and is no JSON: {error}") from None
    if "object" not in _types(schema) or not schema.get("properties"):
        raise OptionRefused(f'{option} is no JSON Schema of an object: it needs "type": "object" and "properties"')
    return ", ".join(f"{_quoted(name)} {_type(name, of)}" for name, of in schema["properties"].items())


def _registry_ddl(shape: RowShape) -> str:
    """The columns of the version of a subject that values are read by."""
    from strandline.schemas.types import InvalidSchema
    from strandline.spark.registry.reader_schema import ReaderSchema

    assert shape.reader_schema is not None, "a version was chosen"
    try:
        return reader_ddl(ReaderSchema.of_option(shape.reader_schema))
    except InvalidSchema as error:
        raise OptionRefused(f"readerSchema is no schema: {error}") from None


def reader_ddl(reader: ReaderSchema) -> str:
    """The columns of a version of a subject, in Spark's words. Raises OptionRefused if values of it have none."""
    # Most readers have no need of schemas of a registry.
    from strandline.schemas.arrow.columns import ColumnTree, columns_ddl
    from strandline.schemas.records import AVRO
    from strandline.schemas.types import InvalidSchema
    from strandline.spark.registry.reader_schema import JSON_SCHEMA
    from strandline.spark.registry.values import avro_node

    if reader.type == JSON_SCHEMA:
        return value_ddl(reader.source.text, f"{reader.words}, a JSON Schema,")
    if reader.type != AVRO:
        raise OptionRefused(
            f"{reader.words} is of the type {reader.type}, and values of Avro and JSON schemas are read: leave out "
            "valueSchema, and decode the column value in a function"
        )
    try:
        return columns_ddl(ColumnTree(avro_node(reader.source).node))
    except InvalidSchema as error:
        raise OptionRefused(f"{reader.words} has no columns: {error}") from None


def _types(schema: Any) -> list[str]:
    told = schema.get("type", []) if isinstance(schema, dict) else []
    return [each for each in (told if isinstance(told, list) else [told]) if each != "null"]


def _type(name: str, schema: Any) -> str:
    types = _types(schema)
    if len(types) == 1:
        kind = types[0]
        if kind == "string":
            return _JSON_FORMATS.get(schema.get("format", ""), "STRING")
        if kind in _JSON_TYPES:
            return _JSON_TYPES[kind]
        if kind == "array" and "items" in schema:
            return f"ARRAY<{_type(name, schema['items'])}>"
        if kind == "object" and schema.get("properties"):
            inner = ", ".join(f"{_quoted(each)}: {_type(each, of)}" for each, of in schema["properties"].items())
            return f"STRUCT<{inner}>"
    raise OptionRefused(
        f"valueSchema: {name!r} has no one type that a column can have (string, integer, number, boolean, array with "
        "items, object with properties): name its columns in Spark's words instead"
    )


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def arrow_schema(schema: StructType, shape: RowShape) -> pa.Schema:
    """What tasks build for the schema that Spark settled on; OptionRefused if it is not one that a log can have."""
    names = schema.fieldNames()
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise OptionRefused(
            f"the column {twice[0]} is there twice, of the record and of valueSchema: choose with the option columns"
        )
    arrow = to_arrow_schema(schema, timezone="UTC")
    for field in schema.fields:
        if shape.is_of_record(field.name):
            if not arrow.field(field.name).type.equals(FIELDS[field.name].type):
                raise OptionRefused(
                    f"the column {field.name} of a log is {COLUMNS[field.name]}, not {field.dataType.simpleString()}: "
                    "convert it in a select"
                )
        elif shape.value_schema is None and (shape.key_schema is None or field.name not in MADE_COLUMNS):
            raise OptionRefused(
                f"a log has no column {field.name}: it has {', '.join(COLUMNS)}; columns of JSON values come with the "
                "option valueSchema"
            )
        elif not shape.is_of_registry and (strange := _strange_type(field.dataType)) is not None:
            raise OptionRefused(
                f"valueSchema: {field.name} has the type {strange.simpleString().upper()}, which is not supported: "
                f"{_INSTEAD.get(type(strange), 'say STRING, and convert it in a select')}"
            )
    return arrow


def _strange_type(of: DataType) -> DataType | None:
    """A type, in whatever depth, that JSON values cannot be made."""
    if isinstance(of, StructType):
        return next((found for field in of.fields if (found := _strange_type(field.dataType)) is not None), None)
    if isinstance(of, ArrayType):
        return _strange_type(of.elementType)
    return None if isinstance(of, _KNOWN_TYPES) else of
