"""The columns that a reader's schema has in Arrow, and in Spark's words.

| Avro | Arrow | Spark |
|---|---|---|
| record | struct | STRUCT |
| array, map | list, map with text keys | ARRAY, MAP |
| union of null and one type | that type, nullable | that type |
| another union | struct of `member0`, `member1` ..., of which one is not null | STRUCT |
| string, enum, uuid | string | STRING |
| bytes, fixed | binary | BINARY |
| decimal of up to 38 digits | decimal128 | DECIMAL |
| date | date32 | DATE |
| timestamp-millis, timestamp-micros | timestamp in microseconds, UTC | TIMESTAMP |
| local-timestamp-millis, local-timestamp-micros | timestamp in microseconds | TIMESTAMP_NTZ |
| int, long, float, double, boolean | the same | INT, BIGINT, FLOAT, DOUBLE, BOOLEAN |
| null | string, always null | STRING |

Other logical types are read as the type below them. A recursive schema has no columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from strandline.schemas.avro.nodes import AvroNode
from strandline.schemas.types import InvalidSchema

COLUMNS_MAX: Final = 10_000
"""Columns of one schema, those inside others counted. A type that is used again has columns of its own each time."""
COLUMN_LEVELS_MAX: Final = 50
"""Columns inside columns."""
DIGITS_MAX: Final = 38
"""Of a decimal in 16 bytes."""

TIMES: Final = {
    "timestamp-millis": (1000, pa.timestamp("us", tz="UTC"), "TIMESTAMP"),
    "timestamp-micros": (1, pa.timestamp("us", tz="UTC"), "TIMESTAMP"),
    "local-timestamp-millis": (1000, pa.timestamp("us"), "TIMESTAMP_NTZ"),
    "local-timestamp-micros": (1, pa.timestamp("us"), "TIMESTAMP_NTZ"),
}
"""Of a long: microseconds that one is, and its types."""
_PLAIN: Final = {
    "null": (pa.string(), "STRING"),
    "boolean": (pa.bool_(), "BOOLEAN"),
    "int": (pa.int32(), "INT"),
    "long": (pa.int64(), "BIGINT"),
    "float": (pa.float32(), "FLOAT"),
    "double": (pa.float64(), "DOUBLE"),
    "bytes": (pa.binary(), "BINARY"),
    "fixed": (pa.binary(), "BINARY"),
    "string": (pa.string(), "STRING"),
    "enum": (pa.string(), "STRING"),
}


@dataclass(eq=False)
class ArrowColumn:
    """One column: a leaf, or one that has others inside."""

    name: str
    node: AvroNode
    """Of the reader's schema; a union only if it has several types that are not null."""
    number: int
    level: int
    """Which rows it has: 0 for values, or the items of one array or map."""
    nullable: bool
    type: Any = None
    ddl: str = ""
    """Its type in Spark's words."""
    children: list[ArrowColumn] = field(default_factory=list)
    """Fields of a record, members of a union, or the items of an array or map."""
    item_level: int = 0
    key_number: int = 0
    """The column of a map's keys."""


class ColumnTree:
    """All columns of a reader's schema."""

    def __init__(self, reader: AvroNode) -> None:
        """Raise InvalidSchema if it can not have columns."""
        self.levels: list[int] = []
        """By number of a column, its level."""
        self.level_count = 1
        self._above: list[AvroNode] = []
        self.root = self._column("", reader, 0, nullable=False)

    @property
    def count(self) -> int:
        return len(self.levels)

    def _number(self, level: int) -> int:
        if len(self.levels) >= COLUMNS_MAX:
            raise InvalidSchema(f"the schema has more than {COLUMNS_MAX:,} columns: use fewer types inside types")
        self.levels.append(level)
        return len(self.levels) - 1

    def _column(self, name: str, node: AvroNode, level: int, *, nullable: bool) -> ArrowColumn:
        if node in self._above:
            raise InvalidSchema(f"{node.label} contains itself, and columns can not: use bytes, or another schema")
        if len(self._above) >= COLUMN_LEVELS_MAX:
            raise InvalidSchema(f"the schema has more than {COLUMN_LEVELS_MAX} columns inside one another")
        self._above.append(node)
        found = self._union(name, node, level, nullable) if node.kind == "union" else None
        if found is None:
            found = ArrowColumn(name, node, self._number(level), level, nullable or node.kind == "null")
            self._fill(found)
        self._above.pop()
        return found

    def _union(self, name: str, node: AvroNode, level: int, nullable: bool) -> ArrowColumn:
        branches = [each for each in node.branches if each.kind != "null"]
        nullable = nullable or len(branches) < len(node.branches)
        if len(branches) <= 1:
            return self._column(name, branches[0] if branches else AvroNode("null"), level, nullable=nullable)
        column = ArrowColumn(name, node, self._number(level), level, nullable)
        column.children = [
            self._column(f"member{index}", each, level, nullable=True) for index, each in enumerate(branches)
        ]
        _make_struct(column)
        return column

    def _fill(self, column: ArrowColumn) -> None:
        node, level = column.node, column.level
        match node.kind:
            case "record" | "error":
                column.children = [self._column(each.name, each.type, level, nullable=False) for each in node.fields]
                _make_struct(column)
            case "array" | "map" as kind:
                assert node.items is not None
                column.item_level = self.level_count
                self.level_count += 1
                if kind == "map":
                    column.key_number = self._number(column.item_level)
                items = self._column("element", node.items, column.item_level, nullable=False)
                column.children = [items]
                if kind == "array":
                    column.type = pa.list_(pa.field("element", items.type))
                    column.ddl = f"ARRAY<{items.ddl}>"
                else:
                    column.type = pa.map_(pa.string(), items.type)
                    column.ddl = f"MAP<STRING, {items.ddl}>"
            case _:
                column.type, column.ddl = _leaf(node)
                if pa.types.is_decimal(column.type):
                    # Its low words are the next column.
                    self._number(level)


def columns_ddl(tree: ColumnTree) -> str:
    """Return the columns of a record in Spark's words. Raise InvalidSchema if it is no record."""
    root = tree.root
    if root.node.kind not in ("record", "error"):
        raise InvalidSchema(f"the schema is no record but {root.node.label}, so its values have no columns")
    if not root.children:
        raise InvalidSchema(f"the record {root.node.name} has no fields, so its values have no columns")
    return ", ".join(f"{_quoted(each.name)} {each.ddl}" for each in root.children)


def _make_struct(column: ArrowColumn) -> None:
    column.type = pa.struct([pa.field(each.name, each.type) for each in column.children])
    column.ddl = f"STRUCT<{', '.join(f'{_quoted(each.name)}: {each.ddl}' for each in column.children)}>"


def logical_type(node: AvroNode) -> str:
    """Return the logical type that a schema names; empty if it names none."""
    found = node.properties.get("logicalType")
    return found if isinstance(found, str) else ""


def _leaf(node: AvroNode) -> tuple[Any, str]:
    logical = logical_type(node)
    if node.kind == "long" and logical in TIMES:
        _, type_, ddl = TIMES[logical]
        return type_, ddl
    if node.kind == "int" and logical == "date":
        return pa.date32(), "DATE"
    if node.decimal is not None and node.decimal[0] <= DIGITS_MAX:
        precision, scale = node.decimal
        return pa.decimal128(precision, scale), f"DECIMAL({precision}, {scale})"
    return _PLAIN[node.kind]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
