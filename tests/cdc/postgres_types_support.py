"""Columns of a real PostgreSQL as they are captured, with PostgreSQL's text of their values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

import psycopg
from psycopg import sql
from tests.connect.postgres_server import the_server

from strandline.cdc.model import CapturedColumn
from strandline.cdc.postgres.types import TypeCatalog, TypeSettings, captured_column, session_options
from strandline.connect.convert.json_schemas import schema_text
from strandline.connect.convert.json_writing import JsonWriting
from strandline.connect.schema import Schema

DEFAULTS: Final = TypeSettings()
_WRITING: Final = JsonWriting(numeric_decimals=False, replace_nulls=True)
_COLUMNS: Final = """
select a.attname, a.atttypid::int8, a.atttypmod, not a.attnotnull, pg_get_expr(d.adbin, d.adrelid)
from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
where a.attrelid = %s::regclass and a.attnum > 0 and not a.attisdropped order by a.attnum
"""


def connected(dsn: str | None = None) -> psycopg.Connection[tuple[Any, ...]]:
    """Return a connection to a fresh database with the session's settings that converters need."""
    return psycopg.connect(dsn or the_server().fresh_database(), autocommit=True, options=session_options())


def run(connection: psycopg.Connection[Any], statements: Iterable[str]) -> None:
    for each in statements:
        connection.execute(cast(Any, each))


def columns_of(
    connection: psycopg.Connection[Any], table: str, settings: TypeSettings, catalog: TypeCatalog | None = None
) -> dict[str, CapturedColumn | None]:
    """Return the columns of a table by name; None for one that is left out."""
    catalog = catalog or TypeCatalog.load(connection)
    return {
        name: captured_column(
            name, oid, modifier, is_optional=is_optional, default=default, catalog=catalog, settings=settings
        )
        for name, oid, modifier, is_optional, default in connection.execute(_COLUMNS, [table]).fetchall()
    }


def texts_of(connection: psycopg.Connection[Any], table: str) -> list[dict[str, bytes | None]]:
    """Return the rows of a table in PostgreSQL's text, as replication and COPY send it."""
    names = [row[0] for row in connection.execute(_COLUMNS, [table]).fetchall()]
    rows: list[Sequence[str | None]] = []
    # Not the table itself, because that leaves out generated columns.
    query = sql.SQL("copy (select * from {}) to stdout").format(sql.Identifier(table))
    with connection.cursor() as cursor, cursor.copy(query) as copy:
        rows.extend(copy.rows())
    return [
        {name: None if text is None else text.encode() for name, text in zip(names, row, strict=True)} for row in rows
    ]


def values_of(
    connection: psycopg.Connection[Any], table: str, settings: TypeSettings = DEFAULTS
) -> list[dict[str, Any]]:
    """Return the rows of a table as they are captured; columns that are left out are absent."""
    columns = columns_of(connection, table, settings)
    return [
        {name: converted(column, row[name]) for name, column in columns.items() if column is not None}
        for row in texts_of(connection, table)
    ]


def converted(column: CapturedColumn, text: bytes | None) -> Any:
    return None if text is None else column.convert(text)


def schema_json(schema: Schema) -> Any:
    """Return a schema as Kafka's JsonConverter writes it."""
    return json.loads(schema_text(schema, _WRITING.text))


def value_json(schema: Schema, value: Any) -> Any:
    """Return a value as Kafka's JsonConverter writes it. Raise RecordFailed if it does not fit its schema."""
    return json.loads(_WRITING.text(schema, value))
