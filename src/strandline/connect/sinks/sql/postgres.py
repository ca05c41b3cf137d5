"""Writes records into tables of PostgreSQL.

A column is sent as one array, of numbers as PostgreSQL holds them or of texts, and `insert ... select from unnest(...)
on conflict` makes rows of them: one statement and one round trip for a batch, without a staging table.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final, NamedTuple
from uuid import uuid4

import psycopg
from psycopg.adapt import Dumper
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Format

from strandline.connect.failures import ConnectFailed, InvalidConnectorConfig, RecordFailed, RetriableFailure
from strandline.connect.paths import PathRules
from strandline.connect.sinks.sql.columns import EXACT_DOUBLE_MAX, ColumnType
from strandline.connect.sinks.sql.database import ArrayDatabase, Database, TableChanged
from strandline.connect.sinks.sql.settings import SqlSinkConfig
from strandline.connect.sinks.sql.sink import SqlSink
from strandline.connect.sinks.sql.tables import NewColumn, TableColumn, TableName, TableShape, WiderColumn

CONNECT_TIMEOUT_S: Final = 10
_SCAN_ROWS: Final = 2000
_DDL_LOCK: Final = 0x7374726E646C696E
"""Of the advisory lock that tasks hold while they change tables."""
_TYPES: Final = {
    "boolean": ColumnType.BOOLEAN,
    "smallint": ColumnType.SMALLINT,
    "integer": ColumnType.INTEGER,
    "bigint": ColumnType.BIGINT,
    "real": ColumnType.REAL,
    "double precision": ColumnType.DOUBLE,
    "numeric": ColumnType.NUMERIC,
    "text": ColumnType.TEXT,
    "character varying": ColumnType.TEXT,
    "bpchar": ColumnType.TEXT,
    "bytea": ColumnType.BYTES,
    "date": ColumnType.DATE,
    "time without time zone": ColumnType.TIME,
    "timestamp without time zone": ColumnType.TIMESTAMP,
    "timestamp with time zone": ColumnType.TIMESTAMP,
    "json": ColumnType.JSON,
    "jsonb": ColumnType.JSON,
}
_FILES: Final = ("passfile", "servicefile", "sslcert", "sslcrl", "sslkey", "sslrootcert")
"""Settings of a connection that name files."""
_REFUSED: Final = ("authentication failed", "does not exist", "no pg_hba.conf entry", "is not permitted to log in")
"""In the message of a connection that will never succeed. The driver has no error codes for them."""
_PASSING: Final = ("08", "25006", "40", "53", "55P03", "57", "58")
"""Classes and codes of SQLSTATE that pass by themselves: connections, read only, conflicts, resources, shut-downs."""
_CHANGED: Final = ("42P01", "42703", "42804", "0A000", "42P07", "42701")
"""Tables or columns that are missing, have another type, or were just created by another task."""


class _BigintArray(bytes):
    """An array of bigint as PostgreSQL takes it."""


class _DoubleArray(bytes):
    """An array of double precision as PostgreSQL takes it."""


class _BigintArrayDumper(Dumper):
    format = Format.BINARY
    oid = 1016

    def dump(self, obj: Any) -> bytes:
        return bytes(obj)


class _DoubleArrayDumper(_BigintArrayDumper):
    oid = 1022


_ARRAY_HEAD: Final = struct.Struct(">iiiii")
"""Dimensions, whether there are nulls, the type of the elements, their number, and the first index."""
_NULL: Final = struct.pack(">i", -1)


class _Packing(NamedTuple):
    """How an array of numbers is packed."""

    element: int
    """The object id of the type of its elements."""
    letter: str
    """Their format, for `struct`."""
    kind: type[bytes]
    sql_type: str


_BIGINTS: Final = _Packing(20, "q", _BigintArray, "bigint[]")
_PACKED: Final = {
    ColumnType.SMALLINT: _BIGINTS,
    ColumnType.INTEGER: _BIGINTS,
    ColumnType.BIGINT: _BIGINTS,
    ColumnType.DOUBLE: _Packing(701, "d", _DoubleArray, "double precision[]"),
}
"""Types whose values are packed. Others are sent as texts."""


class PostgresDatabase(ArrayDatabase):
    """PostgreSQL by psycopg."""

    title = "PostgreSQL"
    mark = "%s"
    for_update = " for update"
    name_bytes_max = 63
    has_numeric = True
    widens_keys = True
    errors = psycopg.Error
    types: ClassVar = {
        ColumnType.BOOLEAN: "boolean",
        ColumnType.SMALLINT: "smallint",
        ColumnType.INTEGER: "integer",
        ColumnType.BIGINT: "bigint",
        ColumnType.REAL: "real",
        ColumnType.DOUBLE: "double precision",
        ColumnType.NUMERIC: "numeric",
        ColumnType.TEXT: "text",
        ColumnType.BYTES: "bytea",
        ColumnType.DATE: "date",
        ColumnType.TIME: "time",
        ColumnType.TIMESTAMP: "timestamptz",
        ColumnType.JSON: "jsonb",
        ColumnType.DATETIME: "timestamp",
        ColumnType.UUID: "uuid",
    }

    def __init__(self, config: SqlSinkConfig) -> None:
        super().__init__()
        self._url = config.connection_url.removeprefix("jdbc:")
        self._options: dict[str, Any] = {
            "user": config.connection_user,
            "password": config.connection_password,
            "connect_timeout": CONNECT_TIMEOUT_S,
            "application_name": "strandline",
        }

    def allow(self, paths: PathRules) -> None:
        for name in _FILES:
            path = self._given().get(name)
            if path and path != "system":
                paths.check(str(path))

    def _given(self) -> dict[str, Any]:
        try:
            return dict(conninfo_to_dict(self._url))
        except psycopg.ProgrammingError as error:
            raise InvalidConnectorConfig(f"Invalid value for configuration connection.url: {_said(error)}") from None

    def connect(self) -> Any:
        given = self._given()
        own = {name: value for name, value in self._options.items() if value is not None and name not in given}
        try:
            # Not prepared, because a pooler may give each transaction another server process.
            connection = psycopg.connect(self._url, autocommit=True, prepare_threshold=None, **own)
        except psycopg.OperationalError as error:
            kind = ConnectFailed if any(each in str(error) for each in _REFUSED) else RetriableFailure
            raise kind(f"PostgreSQL cannot be connected to: {_said(error)}") from error
        connection.adapters.register_dumper(_BigintArray, _BigintArrayDumper)
        connection.adapters.register_dumper(_DoubleArray, _DoubleArrayDumper)
        return connection

    def failure_of(self, error: Exception) -> ConnectFailed:
        state = getattr(error, "sqlstate", None) or ""
        said = f"PostgreSQL: {_said(error)}"
        if state in _CHANGED:
            return TableChanged(said)
        if state.startswith(_PASSING) or (isinstance(error, psycopg.OperationalError) and not state):
            return RetriableFailure(said)
        # 21000: two keys that differ here are one in the column's type, for example because it ignores case.
        if isinstance(error, psycopg.DataError | psycopg.IntegrityError) or state == "21000":
            return RecordFailed(said)
        if state == "42P10":
            return ConnectFailed(f"{said}; the columns of pk.fields need a primary key or unique index")
        if state == "42501":
            return ConnectFailed(
                f"{said}; the user of connection.url needs CREATE on the schema to make tables, and "
                f"SELECT, INSERT, UPDATE and DELETE on tables that exist: grant them"
            )
        return ConnectFailed(said)

    def begin(self) -> None:
        self.run("begin isolation level read committed")

    @contextmanager
    def changing_tables(self) -> Iterator[None]:
        # Without the lock two tasks that create the same table fail in the catalogue.
        with self.transaction():
            self.run("select pg_advisory_xact_lock(%s)", (_DDL_LOCK,))
            yield

    def run(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(statement, tuple(parameters))
        return list(cursor.fetchall()) if cursor.description is not None else []

    def fold(self, name: str) -> str:
        return name

    def quoted(self, name: str) -> str:
        # psycopg takes a single % for a parameter.
        return super().quoted(name).replace("%", "%%")

    def shape(self, name: TableName) -> TableShape | None:
        found = self.run("select to_regclass(%s)::oid", (self.table(name).replace("%%", "%"),))[0][0]
        if found is None:
            return None
        columns = self.run(
            "select attname, format_type(atttypid, -1), attnotnull,"
            " atthasdef or attidentity <> '' or attgenerated <> '' from pg_attribute"
            " where attrelid = %s and attnum > 0 and not attisdropped order by attnum",
            (found,),
        )
        keys = self.run(
            "select attname from pg_index, unnest(indkey::smallint[]) with ordinality as k(number, place), pg_attribute"
            " where indrelid = %s and indisprimary and attrelid = indrelid and attnum = number order by place",
            (found,),
        )
        shaped = [
            TableColumn(column, _kind(kind), kind, not is_required, has_default)
            for column, kind, is_required, has_default in columns
        ]
        return TableShape(shaped, tuple(each for (each,) in keys), self.fold)

    def sql_type(self, column: NewColumn) -> str:
        element = column.element
        if column.type == ColumnType.ARRAY and element is not None and element in self.types:
            return f"{self.types[element]}[]"
        return super().sql_type(column)

    def fill(self, name: TableName, column: TableColumn, value: Any) -> None:
        text = _TEXTS.get(column.type, str)
        super().fill(name, column, text(value))

    def widen(self, name: TableName, column: WiderColumn) -> None:
        quoted = self.quoted(column.column.name)
        kind = column.type
        if kind == ColumnType.DOUBLE and column.column.type == ColumnType.BIGINT:
            outside = f"{quoted} not between {-EXACT_DOUBLE_MAX} and {EXACT_DOUBLE_MAX}"
            if self.run(f"select 1 from {self.table(name)} where {outside} limit 1"):
                kind = ColumnType.NUMERIC
        # By its text, because a cast of a double to numeric keeps only 15 digits.
        using = f"{quoted}::text::{self.types[kind]}"
        changed = f"alter column {quoted} type {self.types[kind]} using {using}"
        self.run(f"alter table {self.table(name)} {changed}")

    def create_like(self, new: TableName, old: TableName) -> None:
        self.run(f"create table if not exists {self.table(new)} (like {self.table(old)} including all)")

    def source(self, columns: Sequence[TableColumn]) -> str:
        cast = ", ".join(f"c{index}::{each.sql_type} as {self.quoted(each.name)}" for index, each in enumerate(columns))
        names = ", ".join(f"c{index}" for index in range(len(columns)))
        arrays = ", ".join(
            f"%s::{_PACKED[each.type].sql_type}" if each.type in _PACKED else "string_to_array(%s::text, %s, %s)"
            for each in columns
        )
        return f"select {cast} from unnest({arrays}) as u({names}) limit %s"

    def run_arrays(self, statement: str, columns: Sequence[TableColumn], values: list[Any]) -> list[tuple[Any, ...]]:
        parameters: list[Any] = []
        for column, encoded in zip(columns, values, strict=True):
            if column.type in _PACKED:
                parameters.append(_packed(encoded, column.type))
            else:
                parameters += _joined(encoded, _TEXTS.get(column.type))
        return self.run(statement, [*parameters, len(values[0])])

    def readable(self, column: TableColumn) -> str:
        quoted = f"t.{self.quoted(column.name)}"
        if column.type == ColumnType.TIMESTAMP:
            # The session's zone and Python's range of years must not matter.
            return quoted if column.sql_type.endswith("without time zone") else f"({quoted} at time zone 'UTC')"
        if column.type == ColumnType.ARRAY:
            return f"{quoted}::text[]"
        return f"{quoted}::text" if column.type in (ColumnType.JSON, ColumnType.OTHER) else quoted

    def rows(
        self, name: TableName, columns: Sequence[TableColumn], keys: Sequence[TableColumn] = (), values: Any = ()
    ) -> Iterator[tuple[Any, ...]]:
        statement = self._selected(name, columns, keys)
        if keys:
            yield from self.run_arrays(statement, keys, values)
            return
        with self.transaction(), self.connection.cursor("strandline_rows") as cursor:
            cursor.itersize = _SCAN_ROWS
            yield from cursor.execute(statement, ())


def _kind(sql_type: str) -> ColumnType:
    return ColumnType.ARRAY if sql_type.endswith("[]") else _TYPES.get(sql_type, ColumnType.OTHER)


def _packed(values: Sequence[Any], kind: ColumnType) -> bytes:
    """Return a column of numbers as an array that the server need not parse."""
    packing = _PACKED[kind]
    has_nulls = None in values
    head = _ARRAY_HEAD.pack(1, has_nulls, packing.element, len(values), 1)
    if has_nulls:
        one = struct.Struct(f">i{packing.letter}")
        return packing.kind(head + b"".join(_NULL if each is None else one.pack(8, each) for each in values))
    # Each is preceded by its size.
    pairs = [8] * (2 * len(values))
    pairs[1::2] = values
    return packing.kind(head + struct.pack(f">{f'i{packing.letter}' * len(values)}", *pairs))


def _joined(values: Sequence[Any], text: Callable[[Any], str] | None) -> tuple[str, str, str]:
    """Return a column as one text, what separates its values, and what stands for null.

    The server splits it faster than the driver would make an array.
    """
    separator, null = "\x01", "\x02"
    nulls = values.count(None)
    while True:
        shown: Iterable[str]
        if nulls:
            shown = [null if each is None else each if text is None else text(each) for each in values]
        else:
            shown = values if text is None else map(text, values)
        joined = separator.join(shown)
        if joined.count(separator) == len(values) - 1 and joined.count(null) == nulls:
            # Nothing at all would be split into no value. The limit cuts off what is too much then.
            return joined or separator, separator, null
        separator, null = f"\x01{uuid4().hex}", f"\x02{uuid4().hex}"


def _other_text(value: Any) -> str:
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    return _array_text(value) if isinstance(value, list) else str(value)


def _array_text(value: Any) -> str:
    """Return the literal of an array, for a column whose type is one."""
    if isinstance(value, list):
        return "{" + ",".join(_array_text(each) for each in value) + "}"
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        value = f"\\x{value.hex()}"
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


_TEXTS: Final[dict[ColumnType, Callable[[Any], str]]] = {
    ColumnType.BOOLEAN: lambda value: "t" if value else "f",
    ColumnType.REAL: repr,
    ColumnType.NUMERIC: str,
    ColumnType.BYTES: _other_text,
    ColumnType.DATE: str,
    ColumnType.TIME: str,
    ColumnType.TIMESTAMP: str,
    ColumnType.ARRAY: _other_text,
    ColumnType.OTHER: _other_text,
}
"""Texts and JSON are texts already."""


def _said(error: Exception) -> str:
    """Return the server's words, in one line."""
    diagnosis = getattr(error, "diag", None)
    primary = None if diagnosis is None else diagnosis.message_primary
    return primary or " ".join(str(error).split())


class PostgresSink(SqlSink):
    """Writes records into tables of PostgreSQL, each once: rows and offsets are in one transaction."""

    def database(self) -> Database:
        return PostgresDatabase(self.config)
