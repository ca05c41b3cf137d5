"""Tables as a sink sees them: their names, columns and keys."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from strandline.connect.sinks.sql.columns import ColumnType

_PART: Final = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')
TOPIC: Final = "${topic}"


@dataclass(frozen=True)
class TableName:
    """A table, in a schema if one is named."""

    table: str
    schema: str | None = None

    def __str__(self) -> str:
        return self.table if self.schema is None else f"{self.schema}.{self.table}"

    def with_suffix(self, suffix: str) -> TableName:
        return TableName(self.table + suffix, self.schema)


class NameFormat:
    """The setting table.name.format: a table, or a schema and a table, either in quotes if it has a dot."""

    def __init__(self, text: str, suffix: str = "") -> None:
        """Raise ValueError for a text that is no name."""
        # The topic is put in later, so that its dots do not part schema and table.
        parts: list[str] = []
        position = 0
        while True:
            found = _PART.match(text, position)
            if found is None:
                raise ValueError("Not the name of a table, or of a schema and a table with a dot between them")
            parts.append(found[1].replace('""', '"') if found[1] is not None else found[2])
            position = found.end()
            if position == len(text):
                break
            if text[position] != "." or len(parts) == 2:
                raise ValueError("Not the name of a table, or of a schema and a table with a dot between them")
            position += 1
        self._table = parts[-1] + suffix
        self._schema = parts[0] if len(parts) == 2 else None

    def name(self, topic: str) -> TableName:
        """Return the table of a topic."""
        schema = None if self._schema is None else self._schema.replace(TOPIC, topic)
        return TableName(self._table.replace(TOPIC, topic), schema)


@dataclass(frozen=True)
class TableColumn:
    """A column. `sql_type` is the database's own name of the type."""

    name: str
    type: ColumnType
    sql_type: str
    is_nullable: bool = True
    has_default: bool = False
    """It has a value of its own, or is computed: a record without the field leaves it alone."""

    @property
    def is_required(self) -> bool:
        """Whether each new row needs a value."""
        return not self.is_nullable and not self.has_default


class TableShape:
    """The columns of a table. Some databases do not distinguish `A` and `a`: `fold` makes them one."""

    def __init__(self, columns: list[TableColumn], keys: tuple[str, ...], fold: Callable[[str], str]) -> None:
        self.columns = columns
        self.keys = keys
        self.fold = fold
        self._by_name = {fold(each.name): each for each in columns}

    def find(self, name: str) -> TableColumn | None:
        return self._by_name.get(self.fold(name))


@dataclass(frozen=True)
class NewColumn:
    """A column that a table lacks. `scale` is that of a decimal, `element` the type of an array's elements."""

    name: str
    type: ColumnType
    scale: int | None = None
    is_key: bool = False
    element: ColumnType | None = None
    default: Any = None
    """What rows have that are there already."""


@dataclass(frozen=True)
class WiderColumn:
    """A column whose type is too narrow for a value."""

    column: TableColumn
    type: ColumnType
