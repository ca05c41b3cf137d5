"""What a sink asks of a database: a connection, transactions, the shape of tables, and rows written in bulk."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final

from strandline.connect.failures import ConnectFailed, RecordFailed, RetriableFailure
from strandline.connect.paths import PathRules
from strandline.connect.sinks.sql.columns import ColumnType
from strandline.connect.sinks.sql.tables import NewColumn, TableColumn, TableName, TableShape, WiderColumn

_INSTEAD: Final = {
    ColumnType.ARRAY: ColumnType.JSON,
    ColumnType.DATETIME: ColumnType.TIMESTAMP,
    ColumnType.UUID: ColumnType.TEXT,
}
"""For databases without such a type."""


class TableChanged(ConnectFailed):
    """A statement found a table other than it was read before: it is read again, and the batch written again."""


class Database(ABC):
    """A connection that is opened when it is needed, and again after it was lost."""

    title: ClassVar[str]
    types: ClassVar[Mapping[ColumnType, str]]
    """The database's names of types, for columns that are created."""
    mark: ClassVar[str] = "?"
    """Of a parameter in a statement."""
    for_update: ClassVar[str] = ""
    """Behind a select whose rows are to be locked. SQLite locks the file; DuckDB refuses the later of two updates."""
    name_bytes_max: ClassVar[int] = 1024
    has_numeric: ClassVar[bool] = False
    """Whether numbers of any length have a type; otherwise they are texts."""
    widens_keys: ClassVar[bool] = False
    """Whether the type of a column can change that is part of the primary key."""
    errors: ClassVar[type[Exception]]
    """What the driver raises."""

    def __init__(self) -> None:
        self._connection: Any = None

    @property
    def connection(self) -> Any:
        """The driver's connection."""
        if self._connection is None:
            self._connection = self.connect()
        return self._connection

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Turn errors of the driver into failures of a connector. A connection that may be lost is closed."""
        try:
            yield
        except UnicodeEncodeError as error:
            # Half of a surrogate pair: JSON can hold it, UTF-8 cannot.
            raise RecordFailed(f"{self.title} cannot store {error.object[error.start : error.end]!r}") from error
        except self.errors as error:
            failure = self.failure_of(error)
            if isinstance(failure, RetriableFailure):
                self.discard()
            raise failure from error

    def discard(self) -> None:
        """Close the connection, which may be broken."""
        try:
            self.close()
        except self.errors:
            return

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit what is done inside, or nothing of it if an exception leaves."""
        self.begin()
        try:
            yield
            self.run("commit")
        except BaseException:
            self._rollback()
            raise

    @contextmanager
    def changing_tables(self) -> Iterator[None]:
        """A transaction in which tables are created or altered, one task at a time."""
        with self.transaction():
            yield

    def begin(self) -> None:
        self.run("begin")

    def _rollback(self) -> None:
        try:
            self.run("rollback")
        except self.errors:
            # A lost connection has rolled back; so has one that is closed.
            self.discard()

    def fold(self, name: str) -> str:
        """Return what is equal for names that the database does not distinguish."""
        return name.lower()

    def quoted(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def table(self, name: TableName) -> str:
        """Return a table's name for a statement."""
        table = self.quoted(name.table)
        return table if name.schema is None else f"{self.quoted(name.schema)}.{table}"

    def wrong_name(self, name: str) -> str | None:
        """Return why a name cannot be one; the database would cut it off, or refuse it in other words."""
        try:
            size = len(name.encode())
        except UnicodeEncodeError:
            size = 0
        if not size or "\0" in name:
            return f"{name!r} cannot be a name"
        if size > self.name_bytes_max:
            return f"the name {name} has {size} bytes, and {self.title} takes {self.name_bytes_max}"
        return None

    def sql_type(self, column: NewColumn) -> str:
        """Return the type of a column that is created."""
        kind = column.type
        return self.types[kind if kind in self.types else _INSTEAD[kind]]

    def create(self, name: TableName, columns: Sequence[NewColumn]) -> None:
        """Create a table, whose primary key has the columns that are one's."""
        parts = [
            f"{self.quoted(each.name)} {self.sql_type(each)}{' not null' if each.is_key else ''}" for each in columns
        ]
        keys = [self.quoted(each.name) for each in columns if each.is_key]
        if keys:
            parts.append(f"primary key ({', '.join(keys)})")
        self.run(f"create table if not exists {self.table(name)} ({', '.join(parts)})")

    def create_like(self, new: TableName, old: TableName) -> None:
        """Create a table like another, with its keys; PostgreSQL copies defaults and indexes, too."""
        shape = self.shape(old)
        assert shape is not None
        parts = [
            f"{self.quoted(each.name)} {each.sql_type}{'' if each.is_nullable else ' not null'}"
            for each in shape.columns
        ]
        if shape.keys:
            parts.append(f"primary key ({', '.join(map(self.quoted, shape.keys))})")
        self.run(f"create table if not exists {self.table(new)} ({', '.join(parts)})")

    def add(self, name: TableName, column: NewColumn) -> None:
        """Add a column to a table that lacks it."""
        added = f"{self.quoted(column.name)} {self.sql_type(column)}"
        self.run(f"alter table {self.table(name)} add column {added}")

    def fill(self, name: TableName, column: TableColumn, value: Any) -> None:
        """Give all rows of a table an encoded value."""
        statement = f"update {self.table(name)} set {self.quoted(column.name)} = {self.mark}"
        self.run(statement, [value])

    def rename(self, name: TableName, new: str) -> None:
        self.run(f"alter table {self.table(name)} rename to {self.quoted(new)}")

    def readable(self, column: TableColumn) -> str:
        """Return the expression that reads a column as `columns.canonical` understands it."""
        return self.quoted(column.name)

    @abstractmethod
    def allow(self, paths: PathRules) -> None:
        """Check the files that the settings name, and use no others. Raise InvalidConnectorConfig."""

    @abstractmethod
    def connect(self) -> Any:
        """Open a connection. Raise a failure of a connector."""

    @abstractmethod
    def failure_of(self, error: Exception) -> ConnectFailed:
        """Return what an error of the driver means for the task."""

    @abstractmethod
    def run(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement. Return its rows."""

    @abstractmethod
    def shape(self, name: TableName) -> TableShape | None:
        """Return the columns of a table; None if there is none."""

    @abstractmethod
    def widen(self, name: TableName, column: WiderColumn) -> None:
        """Give a column a wider type."""

    @abstractmethod
    def upsert(self, name: TableName, keys: Sequence[str], columns: Sequence[TableColumn], values: list[Any]) -> None:
        """Write rows, given column by column; those whose key exists are replaced. Without `keys`, insert."""

    @abstractmethod
    def update(self, name: TableName, keys: Sequence[str], columns: Sequence[TableColumn], values: list[Any]) -> None:
        """Write rows whose keys exist; ignore others."""

    @abstractmethod
    def delete(self, name: TableName, columns: Sequence[TableColumn], values: list[Any]) -> None:
        """Delete rows by their keys, which are given column by column."""

    @abstractmethod
    def rows(
        self, name: TableName, columns: Sequence[TableColumn], keys: Sequence[TableColumn] = (), values: Any = ()
    ) -> Iterator[tuple[Any, ...]]:
        """Yield these columns of every row, or of those with given keys."""


class ArrayDatabase(Database):
    """A database that takes whole columns as arrays of texts, which it casts: one statement for any number of rows."""

    def upsert(self, name: TableName, keys: Sequence[str], columns: Sequence[TableColumn], values: list[Any]) -> None:
        names = [self.quoted(each.name) for each in columns]
        statement = f"insert into {self.table(name)} ({', '.join(names)}) {self.source(columns)}"
        if keys:
            marked = set(keys)
            changed = [self.quoted(each.name) for each in columns if each.name not in marked]
            action = (
                f"update set {', '.join(f'{each} = excluded.{each}' for each in changed)}" if changed else "nothing"
            )
            statement += f" on conflict ({', '.join(map(self.quoted, keys))}) do {action}"
        self.run_arrays(statement, columns, values)

    def update(self, name: TableName, keys: Sequence[str], columns: Sequence[TableColumn], values: list[Any]) -> None:
        changed = [self.quoted(each.name) for each in columns if each.name not in keys]
        if changed:
            new = ", ".join(f"{each} = s.{each}" for each in changed)
            statement = f"update {self.table(name)} as t set {new} from ({self.source(columns)}) as s"
            self.run_arrays(f"{statement} where {self._same(keys)}", columns, values)

    def delete(self, name: TableName, columns: Sequence[TableColumn], values: list[Any]) -> None:
        same = self._same([each.name for each in columns])
        statement = f"delete from {self.table(name)} as t using ({self.source(columns)}) as s where {same}"
        self.run_arrays(statement, columns, values)

    def _same(self, keys: Sequence[str]) -> str:
        return " and ".join(f"t.{self.quoted(each)} = s.{self.quoted(each)}" for each in keys)

    def _selected(self, name: TableName, columns: Sequence[TableColumn], keys: Sequence[TableColumn]) -> str:
        """Return the statement that reads rows; `s` has the keys of those that are wanted."""
        wanted = ", ".join(self.readable(each) for each in columns)
        statement = f"select {wanted} from {self.table(name)} as t"
        if keys:
            found = f"select 1 from ({self.source(keys)}) as s where {self._same([each.name for each in keys])}"
            statement += f" where exists ({found})"
        return statement

    @abstractmethod
    def source(self, columns: Sequence[TableColumn]) -> str:
        """Return the query that makes rows of arrays, one parameter for each column, under the columns' names."""

    @abstractmethod
    def run_arrays(self, statement: str, columns: Sequence[TableColumn], values: list[Any]) -> list[tuple[Any, ...]]:
        """Run a statement whose parameters are columns of encoded values."""
