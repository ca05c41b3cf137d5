"""Columns and tables as the binlog's table maps and the catalogue describe them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

ColumnKind = Literal[
    "tinyint",
    "smallint",
    "mediumint",
    "int",
    "bigint",
    "float",
    "double",
    "decimal",
    "bit",
    "year",
    "date",
    "time",
    "datetime",
    "timestamp",
    "text",
    "bytes",
    "enum",
    "set",
    "geometry",
    "uuid",
    "inet6",
    "inet4",
]
"""A column's type, without its size: `text` are all with a character set, `bytes` all without."""

ReadValue = Callable[[bytes, int], tuple[Any, int]]
"""Takes a row's bytes and where a value begins. Returns the value and where the next one begins."""


@dataclass(frozen=True)
class ColumnShape:
    """The type of a column.

    Values are numbers, `Decimal`, texts or bytes. Dates are days since 1970; `time`, `datetime` and `timestamp` are
    microseconds, a `datetime` as if its zone were UTC. `bit` is bytes, big-endian. `enum` and `set` are texts.
    """

    name: str
    kind: ColumnKind
    is_nullable: bool
    is_unsigned: bool = False
    length: int = 0
    """Digits of a decimal, bits of a `bit`, digits behind the second of a time, characters or bytes of the rest."""
    scale: int = 0
    labels: tuple[str, ...] = ()
    """What an `enum` or a `set` may have."""
    is_point: bool = False
    """Whether a geometry is declared as POINT."""


@dataclass(frozen=True, eq=False)
class MariadbTableShape:
    """A table in one shape, and how its rows are read from the binlog."""

    database: str
    name: str
    columns: tuple[ColumnShape, ...]
    key: tuple[str, ...]
    readers: tuple[ReadValue, ...] = ()
    """One for each column; none if the shape is the catalogue's."""

    @property
    def full_name(self) -> str:
        return f"{self.database}.{self.name}"
