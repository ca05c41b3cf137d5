"""What all databases have in common: tables as a stream of changes describes them, and the changes of their rows.

A database's own package reads its log and makes these; `events` turns them into records. Values stay as the database
sent them until `events` converts a whole row, so a column that is left out costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal, Protocol

from strandline.connect.records import SourceRecord
from strandline.connect.schema import Schema

Operation = Literal["c", "u", "d", "r", "t"]
"""Create, update, delete, read (by a snapshot), truncate: Debezium's letters."""


class Absent(Enum):
    """What stands in a row instead of a value; `None` is SQL's NULL."""

    UNCHANGED = "unchanged"
    """The value is as before, and large: PostgreSQL did not send it (TOAST)."""
    UNKNOWN = "unknown"
    """The database did not send it, as all columns but the key of a deleted row."""


UNCHANGED: Final = Absent.UNCHANGED
UNKNOWN: Final = Absent.UNKNOWN


@dataclass(frozen=True, eq=False)
class CapturedColumn:
    """A column that is captured."""

    name: str
    schema: Schema
    """That of the field; optional if the column may be NULL."""
    convert: Callable[[Any], Any]
    """Makes the field's value of what the stream has; not called for NULL, UNCHANGED and UNKNOWN."""
    placeholder: Any = None
    """The field's value for UNCHANGED."""


@dataclass(frozen=True)
class SourceType:
    """The type of a column as the database names it, for `column.propagate.source.type`."""

    name: str
    length: int
    scale: int | None = None


@dataclass(frozen=True, eq=False)
class CapturedTable:
    """A table in one shape; a change of its columns makes a new object."""

    database: str
    schema: str
    """Empty where the database has none (MariaDB)."""
    name: str
    columns: tuple[CapturedColumn | None, ...]
    """In the order of the stream's rows; None for one that is left out."""
    key: tuple[str, ...]
    """Names of the key's columns; empty if it has no key."""
    is_before_whole: bool = False
    """Whether `before` of an update or delete has every column (replica identity full; MariaDB always)."""

    @property
    def full_name(self) -> str:
        """`schema.table`, or `database.table` where there are no schemas: what lists of tables are matched with."""
        return f"{self.schema or self.database}.{self.name}"


class SourceMark(Protocol):
    """A position of a database's log."""

    @property
    def text(self) -> str:
        """The position as people and the database write it."""


class ComparableSource(Protocol):
    """A source whose database can be read as it is at one position."""

    def rows_now(self) -> tuple[SourceMark, Iterator[Sequence[SourceRecord]]]:
        """Return a position, and every captured row as it was there, as a snapshot would give it."""

    def has_reached(self, offset: Mapping[str, Any], mark: SourceMark) -> bool:
        """Return whether a stored offset of the source is at or behind a position."""


Row = Sequence[Any]
"""Values by the place of their column, as the database sent them."""


@dataclass(slots=True)
class RowChange:
    """One change of one row. `source` is the block of the same name in the envelope."""

    table: CapturedTable
    op: Operation
    before: Row | None
    after: Row | None
    source: Mapping[str, Any]
    transaction: TransactionPlace | None = None


@dataclass(slots=True)
class TransactionPlace:
    """Where in its transaction a change stands, for `provide.transaction.metadata`."""

    id: str
    total_order: int
    data_collection_order: int
