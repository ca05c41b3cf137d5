"""Writes records into tables of a DuckDB file. One process at a time can have the file open for writing."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final

import duckdb

from strandline.connect.failures import ConnectFailed, RecordFailed, RetriableFailure
from strandline.connect.paths import PathRules
from strandline.connect.sinks.sql.columns import EXACT_DOUBLE_MAX, ColumnType
from strandline.connect.sinks.sql.database import ArrayDatabase, Database, TableChanged
from strandline.connect.sinks.sql.settings import SqlSinkConfig
from strandline.connect.sinks.sql.sink import SqlSink
from strandline.connect.sinks.sql.tables import NewColumn, TableColumn, TableName, TableShape, WiderColumn

_DECIMAL_DIGITS: Final = 38
_SCAN_ROWS: Final = 2000
_LOCKS: Final[defaultdict[str, threading.Lock]] = defaultdict(threading.Lock)
"""Held by the transaction of a task, by the path of the file."""
_TYPES: Final = {
    "BOOLEAN": ColumnType.BOOLEAN,
    "SMALLINT": ColumnType.SMALLINT,
    "INTEGER": ColumnType.INTEGER,
    "BIGINT": ColumnType.BIGINT,
    "FLOAT": ColumnType.REAL,
    "DOUBLE": ColumnType.DOUBLE,
    "VARCHAR": ColumnType.TEXT,
    "BLOB": ColumnType.BYTES,
    "DATE": ColumnType.DATE,
    "TIME": ColumnType.TIME,
    "TIMESTAMP": ColumnType.TIMESTAMP,
    "TIMESTAMP WITH TIME ZONE": ColumnType.TIMESTAMP,
    "JSON": ColumnType.JSON,
}


class DuckdbDatabase(ArrayDatabase):
    """A DuckDB file. Tasks of one worker share it; another process is refused while they have it."""

    title = "DuckDB"
    errors = duckdb.Error
    types: ClassVar = {
        ColumnType.BOOLEAN: "boolean",
        ColumnType.SMALLINT: "smallint",
        ColumnType.INTEGER: "integer",
        ColumnType.BIGINT: "bigint",
        ColumnType.REAL: "float",
        ColumnType.DOUBLE: "double",
        ColumnType.TEXT: "varchar",
        ColumnType.BYTES: "blob",
        ColumnType.DATE: "date",
        ColumnType.TIME: "time",
        ColumnType.TIMESTAMP: "timestamptz",
        ColumnType.JSON: "json",
    }

    def __init__(self, config: SqlSinkConfig) -> None:
        super().__init__()
        self._path = config.connection_url.removeprefix("jdbc:").removeprefix("duckdb:")

    def allow(self, paths: PathRules) -> None:
        self._path = str(paths.check(self._path))

    def connect(self) -> Any:
        try:
            return duckdb.connect(self._path)
        except duckdb.Error as error:
            raise self.failure_of(error) from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        # Two at a time would fail, also with constraints that they do not violate; and only this process writes.
        with _LOCKS[self._path], super().transaction():
            yield

    def failure_of(self, error: Exception) -> ConnectFailed:
        said = f"DuckDB: {str(error).splitlines()[0]}"
        match error:
            case duckdb.ConstraintException() | duckdb.DataError() | duckdb.InvalidInputException():
                return RecordFailed(said)
            case duckdb.CatalogException() | duckdb.BinderException():
                return TableChanged(said)
            case duckdb.PermissionException() | duckdb.ParserException() | duckdb.NotImplementedException():
                return ConnectFailed(said)
        # Conflicts of two tasks, a file that another process has open, a full disk, memory.
        return RetriableFailure(said)

    def run(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return list(self.connection.execute(statement, list(parameters)).fetchall())

    def shape(self, name: TableName) -> TableShape | None:
        schema = "main" if name.schema is None else name.schema
        found = self.run(
            "select column_name, data_type, is_nullable, column_default from duckdb_columns()"
            " where database_name = current_database() and lower(schema_name) = lower(?)"
            " and lower(table_name) = lower(?) order by column_index",
            (schema, name.table),
        )
        if not found:
            return None
        keys = self.run(
            "select constraint_column_names from duckdb_constraints() where database_name = current_database()"
            " and lower(schema_name) = lower(?) and lower(table_name) = lower(?) and constraint_type = 'PRIMARY KEY'",
            (schema, name.table),
        )
        columns = [
            TableColumn(column, _kind(kind), kind, is_nullable, default is not None)
            for column, kind, is_nullable, default in found
        ]
        return TableShape(columns, tuple(keys[0][0]) if keys else (), self.fold)

    def sql_type(self, column: NewColumn) -> str:
        if column.type == ColumnType.NUMERIC:
            places = column.scale or 0
            return f"decimal({_DECIMAL_DIGITS}, {places})" if 0 <= places <= _DECIMAL_DIGITS else "varchar"
        return super().sql_type(column)

    def widen(self, name: TableName, column: WiderColumn) -> None:
        quoted, kind = self.quoted(column.column.name), column.type
        if kind == ColumnType.DOUBLE and column.column.type == ColumnType.BIGINT:
            outside = f"{quoted} not between {-EXACT_DOUBLE_MAX} and {EXACT_DOUBLE_MAX}"
            if self.run(f"select 1 from {self.table(name)} where {outside} limit 1"):
                kind = ColumnType.TEXT
        using = f"{quoted}::{self.types[kind]}"
        if kind == ColumnType.TEXT and column.column.type in (ColumnType.REAL, ColumnType.DOUBLE):
            whole = f"{quoted} = trunc({quoted}) and abs({quoted}) < 1e15"
            using = f"case when {whole} then {quoted}::bigint::varchar else {using} end"
        self.run(f"alter table {self.table(name)} alter column {quoted} set data type {self.types[kind]} using {using}")

    def source(self, columns: Sequence[TableColumn]) -> str:
        made = ", ".join(f"unnest(?::varchar[]) as c{index}" for index in range(len(columns)))
        cast = ", ".join(
            f"{_cast(f'c{index}', each)} as {self.quoted(each.name)}" for index, each in enumerate(columns)
        )
        return f"select {cast} from (select {made})"

    def run_arrays(self, statement: str, columns: Sequence[TableColumn], values: list[Any]) -> list[tuple[Any, ...]]:
        return self.run(statement, _as_texts(columns, values))

    def readable(self, column: TableColumn) -> str:
        quoted = f"t.{self.quoted(column.name)}"
        if column.type == ColumnType.TIMESTAMP:
            # By numbers, because the driver needs a package of zones for values with one.
            return f"make_timestamp(epoch_us({quoted}))"
        return f"{quoted}::varchar" if column.type == ColumnType.OTHER else quoted

    def rows(
        self, name: TableName, columns: Sequence[TableColumn], keys: Sequence[TableColumn] = (), values: Any = ()
    ) -> Iterator[tuple[Any, ...]]:
        statement = self._selected(name, columns, keys)
        if keys:
            yield from self.run_arrays(statement, keys, values)
            return
        result = self.connection.cursor().execute(statement)
        while found := result.fetchmany(_SCAN_ROWS):
            yield from found


def _kind(sql_type: str) -> ColumnType:
    return ColumnType.NUMERIC if sql_type.startswith("DECIMAL") else _TYPES.get(sql_type, ColumnType.OTHER)


def _cast(expression: str, column: TableColumn) -> str:
    return f"from_hex({expression})" if column.type == ColumnType.BYTES else f"{expression}::{column.sql_type}"


def _as_texts(columns: Sequence[TableColumn], values: list[Any]) -> list[list[str | None]]:
    found = []
    for column, encoded in zip(columns, values, strict=True):
        text = _TEXTS.get(column.type, str)
        found.append([None if each is None else text(each) for each in encoded])
    return found


_TEXTS: Final[dict[ColumnType, Callable[[Any], str]]] = {
    ColumnType.BOOLEAN: lambda value: "true" if value else "false",
    ColumnType.REAL: repr,
    ColumnType.DOUBLE: repr,
    ColumnType.NUMERIC: lambda value: format(value, "f"),
    ColumnType.BYTES: lambda value: value.hex(),
}


class DuckdbSink(SqlSink):
    """Writes records into tables of a DuckDB file, each once: rows and offsets are in one transaction."""

    def database(self) -> Database:
        return DuckdbDatabase(self.config)
