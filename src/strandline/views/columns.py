"""From the bytes of a record to the columns of a row, as expressions of DuckDB's SQL (pure).

The value is a JSON object; what it lacks, or what does not fit the column's type, is null, and so is every column of a
value that is no JSON at all. The key is the text of the one key column, or a JSON object of several.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from hashlib import sha256
from typing import Any

from strandline.views.definition import ViewDefinition
from strandline.views.failures import ViewFailed
from strandline.views.schema import Column, quoted

Key = str | int | float | Decimal | date | bytes | Mapping[str, Any]
"""What a row has in its key column, or has there in words; of several columns a mapping, or words for it."""


def rows_sql(definition: ViewDefinition, source: str, *, kept: Sequence[str] = ()) -> str:
    """A SELECT of the view's columns, and of the columns `kept` before them, from records in `source`."""
    if definition.is_plain:
        columns = ["try(decode(_key)) AS key", "try(decode(_value)) AS value"]
        return f"SELECT {', '.join([*kept, *columns])} FROM {source}"
    key = _key_expressions(definition)
    of_value = _read_expression if definition.reader_schema else _value_expression
    columns = [*kept, *(key.get(each.name) or of_value(each) for each in definition.columns)]
    if definition.reader_schema:
        parsed = [f"{function_of(definition)}(_value) AS _v"]
    else:
        parsed = [f"{_object('_value_text', definition.value_columns)} AS _v"]
    if not definition.has_plain_key:
        parsed.append(f"{_object('_key_text', definition.key_columns)} AS _k")
    texts = f"SELECT *, try(decode(_key)) AS _key_text, try(decode(_value)) AS _value_text FROM {source}"
    return f"SELECT {', '.join(columns)} FROM (SELECT *, {', '.join(parsed)} FROM ({texts}))"


def _object(text: str, columns: Sequence[Column]) -> str:
    if not columns:
        return "NULL"
    # JSON has no bytes; Spark writes them as base64.
    shape = {each.name: "VARCHAR" if each.spark_type == "binary" else each.duckdb_type for each in columns}
    literal = json.dumps(shape).replace("'", "''")
    return f"CASE WHEN json_valid({text}) THEN json_transform({text}, '{literal}') END"


def _value_expression(column: Column) -> str:
    return f"{_field('_v', column)} AS {quoted(column.name)}"


def function_of(definition: ViewDefinition) -> str:
    """Return the function that makes structs of values with schema ids."""
    return f"registry_{sha256(definition.reader_schema.encode()).hexdigest()[:16]}"


def _read_expression(column: Column) -> str:
    """Return a column of such a struct. Pipelines may have another type for it than the schema."""
    field = f"_v.{quoted(column.name)}"
    typed = f"try_cast({field} AS {column.duckdb_type})" if isinstance(column.spark_type, str) else field
    return f"{typed} AS {quoted(column.name)}"


def _field(struct: str, column: Column) -> str:
    field = f"{struct}.{quoted(column.name)}"
    return f"try(from_base64({field}))" if column.spark_type == "binary" else field


def _key_expressions(definition: ViewDefinition) -> dict[str, str]:
    if definition.has_plain_key:
        # Pipelines write a null in a key of text like a null in any other.
        null = json.dumps({definition.key[0]: None}, separators=(",", ":"), ensure_ascii=False).replace("'", "''")
        return {definition.key[0]: f"nullif(_key_text, '{null}') AS {quoted(definition.key[0])}"}
    if len(definition.key) == 1:
        # Most topics have a number as plain text; pipelines write an object.
        column = definition.key_columns[0]
        plain = f"try_cast(_key_text AS {column.duckdb_type})"
        return {column.name: f"coalesce({_field('_k', column)}, {plain}) AS {quoted(column.name)}"}
    return {each.name: f"{_field('_k', each)} AS {quoted(each.name)}" for each in definition.key_columns}


def key_values(definition: ViewDefinition, key: Key) -> dict[str, Any]:
    """Return the columns of a key, from the key itself, or for several from a mapping, JSON, or `a=1,b=x`.

    Each is what the JSON of a key has for it, apart from decimals, which stay exact.
    """
    if isinstance(key, Mapping):
        told = dict(key)
    elif not isinstance(key, str) or definition.has_plain_key:
        told = {definition.key[0]: key}
    else:
        told = _parsed_key(definition, key)
    if set(told) != set(definition.key):
        raise _wrong_key(definition, str(key))
    return {each.name: _typed(each, told[each.name], definition) for each in definition.key_columns}


def key_bytes(definition: ViewDefinition, values: Mapping[str, Any]) -> list[bytes]:
    """Return what the key of a row is in the log, most likely: numbers can be written in more ways than these."""
    first = values[definition.key[0]]
    if definition.has_plain_key:
        return [] if first is None else [first if isinstance(first, bytes) else str(first).encode()]
    written = "{" + ",".join(f"{_json(name)}:{_json(value)}" for name, value in values.items()) + "}"
    if len(definition.key) > 1 or definition.key_columns[0].duckdb_type == "BLOB":
        # Bytes that are no JSON are text, and base64 would be the text of other bytes.
        return [written.encode()]
    return [written.encode(), _json(first).strip('"').encode()]


def equal_sql(definition: ViewDefinition, values: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Return a condition on the columns of a key, and its parameters."""
    terms = []
    for column in definition.key_columns:
        value = "from_base64(?)" if column.duckdb_type == "BLOB" else f"?::{column.duckdb_type}"
        terms.append(f"{quoted(column.name)} {'IS NULL' if values[column.name] is None else f'= {value}'}")
    return " AND ".join(terms), [each for each in values.values() if each is not None]


def _json(value: Any) -> str:
    if isinstance(value, Decimal):
        return format(value, "f")
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)


def _parsed_key(definition: ViewDefinition, text: str) -> dict[str, Any]:
    if text.lstrip().startswith("{"):
        try:
            told = json.loads(text, parse_float=Decimal)
        except ValueError:
            raise _wrong_key(definition, text) from None
        assert isinstance(told, dict), "it begins with a brace"
        return told
    if len(definition.key) == 1:
        name, _, value = text.partition("=")
        return {definition.key[0]: value if name.strip() == definition.key[0] else text}
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(equals for _, equals, _ in pairs):
        raise _wrong_key(definition, text)
    return {name.strip(): value for name, _, value in pairs}


def _typed(column: Column, value: Any, definition: ViewDefinition) -> Any:
    """Return what JSON has for a value of a row, or for a word of the command line, in a column of this type."""
    kind = column.duckdb_type
    if value is None or kind == "VARCHAR":
        return value
    try:
        if kind.startswith("DECIMAL"):
            return Decimal(str(value))
        if kind in ("DATE", "TIMESTAMP", "TIMESTAMPTZ"):
            return _time_text(kind, value.isoformat() if isinstance(value, date) else value)
        if kind == "BLOB":
            return base64.b64encode(_bytes_of(value) if isinstance(value, str) else value).decode()
        if isinstance(value, Decimal):
            is_integral = value == value.to_integral_value() and kind not in ("DOUBLE", "FLOAT")
            return int(value) if is_integral else float(value)
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, TypeError, ArithmeticError):
        raise _wrong_key(definition, str(value)) from None


def _time_text(kind: str, text: str) -> str:
    """Return a date or time as pipelines write it: in UTC, with microseconds."""
    if kind == "DATE":
        return date.fromisoformat(text).isoformat()
    time = datetime.fromisoformat(text)
    time = (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC).replace(tzinfo=None)
    return time.isoformat(timespec="microseconds") + ("Z" if kind == "TIMESTAMPTZ" else "")


def _bytes_of(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return text.encode()


def _wrong_key(definition: ViewDefinition, said: str) -> ViewFailed:
    example = json.dumps({each.name: "..." for each in definition.key_columns})
    pairs = ",".join(f"{each.name}=..." for each in definition.key_columns)
    words = ", ".join(each.words for each in definition.key_columns)
    return ViewFailed(f"{said!r} is no key of {definition.name}, which is ({words}): say {pairs} or {example}")
