"""What a table or query looks like: its columns, its key, and the expressions of a position in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import TypeEngine

from strandline.connect.failures import ConnectFailed, InvalidConnectorConfig
from strandline.connect.schema import Schema
from strandline.connect.sources.sql_columns import ColumnRules, SqlColumn, struct_of

QUERY: Final = "strandline_query"
"""The name of a query as a table, in SQL."""
_POSTGRES_TYPES: Final[dict[str, TypeEngine[Any]]] = {
    "bool": sa.Boolean(),
    "int2": sa.SmallInteger(),
    "int4": sa.Integer(),
    "int8": sa.BigInteger(),
    "float4": sa.Double(),
    "float8": sa.Double(),
    "date": sa.Date(),
    "time": sa.Time(),
    "timestamp": sa.DateTime(),
    "timestamptz": sa.DateTime(timezone=True),
    "bytea": sa.LargeBinary(),
    "json": sa.JSON(),
    "jsonb": sa.JSON(),
    "text": sa.String(),
    "varchar": sa.String(),
    "bpchar": sa.String(),
}


class _Verbatim(sa.TextClause):
    """SQL as it was given. `sa.text` would take a colon in it for a parameter."""

    inherit_cache = False

    def __init__(self, verbatim: str) -> None:
        super().__init__("")
        self.verbatim = verbatim


@compiles(_Verbatim)
def _compile_verbatim(element: _Verbatim, compiler: SQLCompiler, **_: Any) -> str:
    return str(compiler.post_process_text(element.verbatim))  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class SqlShape:
    """A table or query. `timestamp` and `id` are the expressions of the position, if the mode has them."""

    name: str
    selected: tuple[Any, ...]
    columns: tuple[SqlColumn, ...]
    key_columns: tuple[SqlColumn, ...]
    timestamp: Any = None
    id: Any = None
    has_zone: bool = False
    """Whether the timestamp has a zone."""

    @cached_property
    def value_schema(self) -> Schema:
        return struct_of(self.name, self.columns)

    @cached_property
    def key_schema(self) -> Schema | None:
        return struct_of(f"{self.name}.Key", self.key_columns) if self.key_columns else None

    def with_columns(self, columns: Sequence[SqlColumn]) -> SqlShape:
        """Return the same shape with columns of other types."""
        keys = {each.name for each in self.key_columns}
        key_columns = tuple(each for each in columns if each.name in keys)
        return replace(self, columns=tuple(columns), key_columns=key_columns)

    def position(self) -> tuple[Any, ...]:
        """Return the expressions of the position, the most significant first."""
        return tuple(each for each in (self.timestamp, self.id) if each is not None)


@dataclass(frozen=True)
class PositionColumns:
    """What the settings say about positions and keys. None for `key` is the primary key."""

    timestamps: Sequence[str]
    has_id: bool
    id: str | None
    key: Sequence[str] | None


def find_table(inspector: sa.Inspector, name: str) -> tuple[str | None, str]:
    """Return schema and name of a table; the setting may have `schema.table`. Raise ConnectFailed."""
    if inspector.has_table(name):
        return None, name
    schema, dot, table = name.partition(".")
    if dot and inspector.has_table(table, schema=schema):
        return schema, table
    raise ConnectFailed(f"the database has no table {name}")


def table_shape(connection: sa.Connection, name: str, rules: ColumnRules, positions: PositionColumns) -> SqlShape:
    """Return what the database says about a table."""
    schema, plain_name = find_table(sa.inspect(connection), name)
    table = sa.Table(plain_name, sa.MetaData(), schema=schema, autoload_with=connection, resolve_fks=False)
    columns = [rules.column(each.name, each.type, optional=bool(each.nullable)) for each in table.columns]
    primary = [each.name for each in table.primary_key.columns]
    id_column = positions.id or (primary[0] if len(primary) == 1 else None)
    return _shape(name, list(table.columns), columns, positions, rules, id_column, primary)


def query_shape(connection: sa.Connection, query: str, rules: ColumnRules, positions: PositionColumns) -> SqlShape:
    """Return the shape of a query's result. A column whose type the driver does not tell is guessed."""
    # A line of its own for the bracket behind it, because the query may end in a comment.
    verbatim = _Verbatim(query.strip().rstrip(";") + "\n")
    probe = sa.select(sa.text("*")).select_from(verbatim.columns().subquery(QUERY)).where(sa.literal_column("1 = 0"))
    with connection.execute(probe) as result:
        names = list(result.keys())
        types = _types_of(connection, result)
    if len(set(names)) < len(names):
        raise InvalidConnectorConfig("query has two columns of one name; give one of them another with AS")
    columns = [
        rules.inferred(name, None) if kind is None else rules.column(name, kind, optional=True)
        for name, kind in zip(names, types, strict=True)
    ]
    selectable = verbatim.columns(*(sa.column(name) for name in names)).subquery(QUERY)
    return _shape("query", list(selectable.c), columns, positions, rules, positions.id, [])


def _types_of(connection: sa.Connection, result: sa.CursorResult[Any]) -> list[TypeEngine[Any] | None]:
    """Return the types of a result's columns; None for those that the driver does not tell."""
    description: Any = result.cursor.description if result.cursor is not None else ()
    if connection.dialect.driver != "psycopg":
        return [None for _ in description]
    from psycopg.postgres import types

    found: list[TypeEngine[Any] | None] = []
    for each in description:
        kind = types.get(each.type_code)
        name = "" if kind is None else kind.name
        numeric = sa.Numeric(each.precision, each.scale)
        found.append(numeric if name == "numeric" else _POSTGRES_TYPES.get(name, sa.types.NullType()))
    return found


def _shape(
    name: str,
    given: list[sa.ColumnElement[Any]],
    columns: list[SqlColumn],
    positions: PositionColumns,
    rules: ColumnRules,
    id_column: str | None,
    primary: list[str],
) -> SqlShape:
    by_name = {column.name: expression for column, expression in zip(columns, given, strict=True)}
    by_key = {column.name: column for column in columns}

    def find(setting: str, column: str) -> Any:
        if column not in by_name:
            raise ConnectFailed(f"{setting} names {column}, which {name} does not have")
        # SQLite compares what is stored, so positions are that, too: texts of several forms, or numbers.
        return sa.type_coerce(by_name[column], sa.types.NullType()) if rules.is_sqlite else by_name[column]

    timestamps = [find("timestamp.column.name", each) for each in positions.timestamps]
    if positions.has_id and id_column is None:
        raise ConnectFailed(f"incrementing.column.name is not set, and {name} has no primary key of one column")
    keys = primary if positions.key is None else positions.key
    for each in keys:
        find("key.columns", each)
    return SqlShape(
        name,
        tuple(sa.type_coerce(each, sa.types.NullType()) if rules.is_sqlite else each for each in given),
        tuple(columns),
        tuple(by_key[each] for each in keys),
        (timestamps[0] if len(timestamps) == 1 else sa.func.coalesce(*timestamps)) if timestamps else None,
        find("incrementing.column.name", id_column) if positions.has_id and id_column is not None else None,
        any(getattr(by_name[each].type, "timezone", False) for each in positions.timestamps),
    )
