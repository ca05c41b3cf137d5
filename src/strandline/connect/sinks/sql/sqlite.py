"""Writes records into tables of an SQLite file.

The names of types decide what SQLite makes of values: one with TEXT in it keeps texts as they are, so decimals and JSON
are called `DECIMAL TEXT` and `JSON TEXT`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Final

from strandline.connect.failures import ConnectFailed, RecordFailed, RetriableFailure
from strandline.connect.paths import PathRules
from strandline.connect.sinks.sql.columns import EXACT_DOUBLE_MAX, ColumnType
from strandline.connect.sinks.sql.database import Database, TableChanged
from strandline.connect.sinks.sql.settings import SqlSinkConfig
from strandline.connect.sinks.sql.sink import SqlSink
from strandline.connect.sinks.sql.tables import NewColumn, TableColumn, TableName, TableShape, WiderColumn

BUSY_TIMEOUT_S: Final = 5.0
_REFUSED: Final = (sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
_CHANGED: Final = ("no such table", "no such column", "has no column named", "already exists", "duplicate column")


class SqliteDatabase(Database):
    """An SQLite file by the standard library's driver."""

    title = "SQLite"
    errors = sqlite3.Error
    types: ClassVar = {
        ColumnType.BOOLEAN: "BOOLEAN",
        ColumnType.SMALLINT: "SMALLINT",
        ColumnType.INTEGER: "INTEGER",
        ColumnType.BIGINT: "BIGINT",
        ColumnType.REAL: "REAL",
        ColumnType.DOUBLE: "DOUBLE",
        ColumnType.NUMERIC: "DECIMAL TEXT",
        ColumnType.TEXT: "TEXT",
        ColumnType.BYTES: "BLOB",
        ColumnType.DATE: "DATE",
        ColumnType.TIME: "TIME",
        ColumnType.TIMESTAMP: "TIMESTAMP",
        ColumnType.JSON: "JSON TEXT",
    }
    _by_sql_type: ClassVar = {name: kind for kind, name in types.items()}

    def __init__(self, config: SqlSinkConfig) -> None:
        super().__init__()
        self._path = config.connection_url.removeprefix("jdbc:").removeprefix("sqlite:")

    def allow(self, paths: PathRules) -> None:
        self._path = str(paths.check(self._path))

    def connect(self) -> Any:
        connection = None
        try:
            # Each call may come from another thread, but never two at a time.
            connection = sqlite3.connect(
                self._path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
            # With a write-ahead log, readers do not wait for the sink; FULL keeps what is committed after a power cut.
            connection.execute("pragma journal_mode = wal")
            connection.execute("pragma synchronous = full")
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            raise self.failure_of(error) from error
        return connection

    def failure_of(self, error: Exception) -> ConnectFailed:
        said = f"SQLite: {error}"
        if isinstance(error, sqlite3.IntegrityError | sqlite3.DataError):
            return RecordFailed(said)
        if any(each in str(error) for each in _CHANGED):
            return TableChanged(said)
        code = getattr(error, "sqlite_errorcode", None)
        # What is left of operational errors is a locked, full, read-only or unreachable file; code 1 is bad SQL.
        primary = sqlite3.SQLITE_ERROR if code is None else code & 0xFF
        if primary == sqlite3.SQLITE_ERROR or primary in _REFUSED:
            return ConnectFailed(said)
        return RetriableFailure(said)

    def begin(self) -> None:
        # Takes the lock of writers at once: what is read inside cannot change any more.
        self.run("begin immediate")

    def run(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return list(self.connection.execute(statement, tuple(parameters)).fetchall())

    def shape(self, name: TableName) -> TableShape | None:
        schema = "main" if name.schema is None else name.schema
        found = self.run(
            'select name, type, "notnull", dflt_value, pk, hidden from pragma_table_xinfo(?, ?)', (name.table, schema)
        )
        if not found:
            return None
        columns = [
            TableColumn(
                column,
                self._kind(kind.upper()),
                kind,
                is_nullable=not is_required and not (key and kind.upper() == "INTEGER"),
                has_default=default is not None or bool(hidden),
            )
            for column, kind, is_required, default, key, hidden in found
        ]
        keys = sorted((key, column) for column, _, _, _, key, _ in found if key)
        return TableShape(columns, tuple(column for _, column in keys), self.fold)

    def _kind(self, sql_type: str) -> ColumnType:
        """Return the type for a name of one, by SQLite's rules where it is not one of ours."""
        known = self._by_sql_type.get(sql_type)
        if known is not None:
            return known
        if "INT" in sql_type:
            return ColumnType.BIGINT
        if any(each in sql_type for each in ("CHAR", "CLOB", "TEXT")):
            return ColumnType.TEXT
        if any(each in sql_type for each in ("REAL", "FLOA", "DOUB")):
            return ColumnType.DOUBLE
        return ColumnType.OTHER

    def widen(self, name: TableName, column: WiderColumn) -> None:
        old, table = self.quoted(column.column.name), self.table(name)
        kind = column.type
        if kind == ColumnType.DOUBLE and column.column.type == ColumnType.BIGINT:
            outside = f"{old} not between {-EXACT_DOUBLE_MAX} and {EXACT_DOUBLE_MAX}"
            if self.run(f"select 1 from {table} where {outside} limit 1"):
                kind = ColumnType.TEXT
        # A column's type cannot be altered: a new column takes its place, behind the others.
        new = NewColumn("strandline widened", kind)
        self.add(name, new)
        self.run(f"update {table} set {self.quoted(new.name)} = {_as_text(old, column.column.type, kind)}")
        self.run(f"alter table {table} drop column {old}")
        self.run(f"alter table {table} rename column {self.quoted(new.name)} to {old}")

    def upsert(self, name: TableName, keys: Sequence[str], columns: Sequence[TableColumn], values: list[Any]) -> None:
        names = [self.quoted(each.name) for each in columns]
        statement = f"insert into {self.table(name)} ({', '.join(names)}) values ({', '.join('?' * len(names))})"
        if keys:
            changed = [self.quoted(each.name) for each in columns if each.name not in keys]
            action = (
                f"update set {', '.join(f'{each} = excluded.{each}' for each in changed)}" if changed else "nothing"
            )
            statement += f" on conflict ({', '.join(map(self.quoted, keys))}) do {action}"
        self._run_rows(statement, columns, values)

    def update(self, name: TableName, keys: Sequence[str], columns: Sequence[TableColumn], values: list[Any]) -> None:
        changed = [index for index, each in enumerate(columns) if each.name not in keys]
        if changed:
            order = changed + [index for index, each in enumerate(columns) if each.name in keys]
            new = ", ".join(f"{self.quoted(columns[index].name)} = ?" for index in changed)
            same = " and ".join(f"{self.quoted(columns[index].name)} = ?" for index in order[len(changed) :])
            statement = f"update {self.table(name)} set {new} where {same}"
            self._run_rows(statement, [columns[index] for index in order], [values[index] for index in order])

    def delete(self, name: TableName, columns: Sequence[TableColumn], values: list[Any]) -> None:
        self._run_rows(f"delete from {self.table(name)} where {self._same(columns)}", columns, values)

    def rows(
        self, name: TableName, columns: Sequence[TableColumn], keys: Sequence[TableColumn] = (), values: Any = ()
    ) -> Iterator[tuple[Any, ...]]:
        statement = f"select {', '.join(self.quoted(each.name) for each in columns)} from {self.table(name)}"
        if not keys:
            yield from self.connection.execute(statement)
            return
        for parameters in zip(*_native(keys, values), strict=True):
            yield from self.run(f"{statement} where {self._same(keys)}", parameters)

    def _same(self, columns: Sequence[TableColumn]) -> str:
        return " and ".join(f"{self.quoted(each.name)} = ?" for each in columns)

    def _run_rows(self, statement: str, columns: Sequence[TableColumn], values: list[Any]) -> None:
        self.connection.executemany(statement, zip(*_native(columns, values), strict=True))


def _as_text(column: str, old: ColumnType, new: ColumnType) -> str:
    """Return the expression that makes texts of a column as `columns` does."""
    if new != ColumnType.TEXT:
        return column
    if old == ColumnType.BOOLEAN:
        return f"case {column} when 0 then 'false' else 'true' end"
    whole = f"{column} = cast({column} as integer) and abs({column}) < 1e15"
    if old in (ColumnType.REAL, ColumnType.DOUBLE):
        # printf, because a cast to text keeps only 15 digits.
        shortest = f"printf('%!.17g', {column})"
        return f"case when {whole} then cast(cast({column} as integer) as text) else {shortest} end"
    return f"cast({column} as text)"


_NATIVE: Final[dict[ColumnType, Callable[[Any], Any]]] = {
    ColumnType.BOOLEAN: int,
    ColumnType.NUMERIC: lambda value: format(value, "f"),
    ColumnType.DATE: str,
    ColumnType.TIME: lambda value: value.isoformat(),
    ColumnType.TIMESTAMP: lambda value: value.isoformat(),
    ColumnType.OTHER: lambda value: value if isinstance(value, bytes) else str(value),
}
"""What SQLite has no type for."""


def _native(columns: Sequence[TableColumn], values: list[Any]) -> list[list[Any]]:
    found = []
    for column, encoded in zip(columns, values, strict=True):
        native = _NATIVE.get(column.type)
        found.append(encoded if native is None else [None if each is None else native(each) for each in encoded])
    return found


class SqliteSink(SqlSink):
    """Writes records into tables of an SQLite file, each once: rows and offsets are in one transaction."""

    def database(self) -> Database:
        return SqliteDatabase(self.config)
