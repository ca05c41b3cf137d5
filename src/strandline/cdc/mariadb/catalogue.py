"""What the server's catalogue knows of tables: the snapshot needs it, and the stream for types that binlogs lack."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, get_args

import pymysql

from strandline.cdc.mariadb import row_values
from strandline.cdc.mariadb.connection import query
from strandline.cdc.mariadb.shapes import ColumnKind, ColumnShape, MariadbTableShape

SYSTEM: Final = frozenset(("mysql", "information_schema", "performance_schema", "sys"))
_TEXTS: Final = frozenset(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"))
_KINDS: Final = frozenset(get_args(ColumnKind))
_GEOMETRIES: Final = frozenset(
    f"{multi}{each}" for multi in ("", "multi") for each in ("point", "linestring", "polygon")
)
_GENERAL_GEOMETRIES: Final = frozenset(("geometry", "geometrycollection"))
_LABEL: Final = re.compile(r"'((?:[^']|'')*)'")
_STORED_AS_BINARY: Final = {
    "uuid": row_values.uuid_text,
    "inet6": row_values.inet6_text,
    "inet4": row_values.inet4_text,
}
_BINARY_LENGTHS: Final = (4, 16)


def charsets(connection: Any) -> dict[int, str]:
    """Return the character set of each collation, by the number that table maps have."""
    found = query(connection, "select id, character_set_name from information_schema.collations where id is not null")
    numbers = {int(number): name for number, name in found}
    # Since 10.10 a collation may belong to several character sets; before, the table has no numbers.
    with suppress(pymysql.OperationalError):
        table = "information_schema.collation_character_set_applicability"
        numbers |= {
            int(number): name for number, name in query(connection, f"select id, character_set_name from {table}")
        }
    return numbers


def table_names(connection: Any) -> list[tuple[str, str]]:
    """Return all tables that may be captured, as pairs of database and name."""
    found = query(
        connection,
        "select table_schema, table_name from information_schema.tables "
        "where table_type in ('BASE TABLE', 'SYSTEM VERSIONED') order by 1, 2",
    )
    return [(database, name) for database, name in found if database not in SYSTEM]


def table(connection: Any, database: str, name: str) -> MariadbTableShape | None:
    """Return the shape of a table; None if there is none."""
    columns = query(
        connection,
        "select column_name, data_type, column_type, is_nullable, character_maximum_length, numeric_precision, "
        "numeric_scale, datetime_precision, character_set_name from information_schema.columns "
        "where table_schema=%s and table_name=%s order by ordinal_position",
        database,
        name,
    )
    if not columns:
        return None
    key = query(
        connection,
        "select column_name from information_schema.statistics "
        "where table_schema=%s and table_name=%s and index_name='PRIMARY' order by seq_in_index",
        database,
        name,
    )
    return MariadbTableShape(database, name, tuple(_column(each) for each in columns), tuple(each for (each,) in key))


def _column(row: Sequence[Any]) -> ColumnShape:
    name, kind, full_type, nullable, characters, precision, scale, digits, charset = row
    if kind in _TEXTS:
        kind, length = "text", int(characters or 0)
    elif kind in _GEOMETRIES | _GENERAL_GEOMETRIES:
        return ColumnShape(name, "geometry", nullable == "YES", is_point=kind == "point")
    elif kind in ("decimal", "bit"):
        length = int(precision)
    elif kind in ("time", "datetime", "timestamp"):
        length = int(digits or 0)
    elif kind in _KINDS:
        length = 0
    else:
        # All others are stored as bytes: BINARY, VARBINARY, BLOBs, and types of plugins.
        kind, length = "bytes" if charset is None else "text", int(characters or 0)
    labels = tuple(each.replace("''", "'") for each in _LABEL.findall(full_type)) if kind in ("enum", "set") else ()
    decimals = int(scale) if kind == "decimal" else 0
    return ColumnShape(name, kind, nullable == "YES", "unsigned" in full_type.split(), length, decimals, labels=labels)


def may_be_refined(shape: MariadbTableShape) -> bool:
    """Return whether a column of a table map may have a type that is stored as BINARY."""
    return any(each.kind == "bytes" and each.length in _BINARY_LENGTHS for each in shape.columns)


def refined(shape: MariadbTableShape, known: MariadbTableShape | None) -> MariadbTableShape:
    """Return a table map's shape with the types that are stored as BINARY, as the catalogue has them now."""
    if known is None:
        return shape
    kinds = {each.name: each.kind for each in known.columns}
    columns, readers = list(shape.columns), list(shape.readers)
    for at, column in enumerate(columns):
        kind = kinds.get(column.name)
        if column.kind == "bytes" and column.length in _BINARY_LENGTHS and kind in _STORED_AS_BINARY:
            columns[at] = replace(column, kind=kind)
            readers[at] = row_values.sized(1, _STORED_AS_BINARY[kind])
    return replace(shape, columns=tuple(columns), readers=tuple(readers))
