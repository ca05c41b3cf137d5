"""A writer's schema and the columns of a reader become a program: Avro's schema resolution, done before any value.

What a value would meet and can not be read is a node that fails with a reason: it harms only values that meet it, such
as those of one branch of a union.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from strandline.schemas.arrow import ops
from strandline.schemas.arrow.columns import TIMES, ArrowColumn, ColumnTree, logical_type
from strandline.schemas.arrow.encoding import encoded
from strandline.schemas.avro.nodes import AvroField, AvroNode
from strandline.schemas.avro.resolution import incompatibilities
from strandline.schemas.types import InvalidSchema

NODES_MAX: Final = 50_000
"""Nodes of one program."""

_PROMOTIONS: Final = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}
_PASSED: Final[dict[str, tuple[int, int]]] = {
    "null": (ops.NOTHING, 0),
    "boolean": (ops.PASS_FIXED, 1),
    "int": (ops.PASS_VARINT, 0),
    "long": (ops.PASS_VARINT, 0),
    "enum": (ops.PASS_VARINT, 0),
    "float": (ops.PASS_FIXED, 4),
    "double": (ops.PASS_FIXED, 8),
    "bytes": (ops.PASS_BYTES, 0),
    "string": (ops.PASS_BYTES, 0),
}
_RECORDS: Final = ("record", "error")


@dataclass(frozen=True)
class Program:
    """How values of one writer's schema become rows of a reader's columns."""

    tree: ColumnTree
    root: int
    nodes: Any
    numbers: Any
    bounds: Any
    constants: bytes
    """Defaults of the reader, as values."""
    reasons: tuple[str, ...]

    def reason(self, code: int) -> str:
        """Return why a value can not be read."""
        own = code - ops.FIRST_REASON
        return ops.REASONS[code] if own < 0 else self.reasons[own]


def compile_program(writer: AvroNode, tree: ColumnTree) -> Program:
    """Resolve a writer's schema to a reader's. Raise InvalidSchema if that takes too many nodes."""
    compiler = _Compiler()
    try:
        root = compiler.read(writer, tree.root)
    except RecursionError:
        raise InvalidSchema("the schema is nested too deep to be resolved to that of the reader") from None
    return Program(
        tree,
        root,
        np.array(compiler.nodes, np.int64).reshape(-1),
        np.array(compiler.numbers or [0], np.int64),
        np.array(compiler.bounds or [0], np.uint64),
        bytes(compiler.constants),
        tuple(compiler.reasons),
    )


class _Compiler:
    def __init__(self) -> None:
        self.nodes: list[list[int]] = []
        self.numbers: list[int] = []
        self.bounds: list[int] = []
        self.constants = bytearray()
        self.reasons: list[str] = []
        self._known: dict[tuple[int, int], int] = {}
        self._kept: list[AvroNode] = []
        """Keeps the nodes alive whose ids are in `_known`."""

    # Nodes

    def read(self, writer: AvroNode, column: ArrowColumn) -> int:
        """Return the node that reads a writer's type into a column."""
        return self._once(writer, column.number, lambda: self._read(writer, column))

    def _once(self, writer: AvroNode, number: int, make: Callable[[], list[int]]) -> int:
        known = self._known.get((id(writer), number))
        if known is not None:
            return known
        # It is known before what is inside, because a type may contain itself.
        at = self._known[id(writer), number] = self._add([ops.NOTHING])
        self._kept.append(writer)
        self.nodes[at] = _padded(make())
        return at

    def _add(self, node: list[int]) -> int:
        if len(self.nodes) >= NODES_MAX:
            raise InvalidSchema(f"it takes more than {NODES_MAX:,} steps to resolve the schema to that of the reader")
        self.nodes.append(_padded(node))
        return len(self.nodes) - 1

    def _part(self, numbers: list[int]) -> tuple[int, int]:
        """Return where a part of the table of numbers begins, and how long it is."""
        self.numbers += numbers
        return len(self.numbers) - len(numbers), len(numbers)

    def _of_part(self, operation: int, numbers: list[int], column: ArrowColumn | None = None) -> list[int]:
        place = [0, 0] if column is None else [column.number, column.level]
        return [operation, *place, 0, 0, 0, *self._part(numbers)]

    def _fail(self, reason: str) -> list[int]:
        if reason not in self.reasons:
            self.reasons.append(reason)
        return [ops.FAIL, 0, 0, ops.FIRST_REASON + self.reasons.index(reason)]

    # Resolution

    def _read(self, writer: AvroNode, column: ArrowColumn) -> list[int]:
        if writer.kind == "union":
            return self._of_part(ops.UNION, [self.read(each, column) for each in writer.branches])
        if writer.kind == "null" and column.nullable:
            return [ops.NOTHING]
        if column.node.kind == "union":
            return self._read_member(writer, column)
        reason = _mismatch(column, writer)
        if reason is not None:
            return self._fail(reason)
        found = self._value(writer, column)
        return self._valid(column, found) if column.nullable else found

    def _valid(self, column: ArrowColumn, inside: list[int]) -> list[int]:
        return [ops.VALID, column.number, column.level, 0, self._add(inside)]

    def _read_member(self, writer: AvroNode, column: ArrowColumn) -> list[int]:
        same = [each for each in column.children if _is_same(each.node, writer)]
        fitting = same or [each for each in column.children if not incompatibilities(each.node, writer)]
        if not fitting:
            return self._fail(f"the reader's union lacks the type {writer.label} of the writer")
        member = self._read(writer, fitting[0])
        return self._valid(column, member) if column.nullable else member

    def _value(self, writer: AvroNode, column: ArrowColumn) -> list[int]:
        place = [column.number, column.level]
        match column.node.kind:
            case "record" | "error":
                return self._record(writer, column)
            case "array" | "map" as kind:
                assert writer.items is not None
                item = self.read(writer.items, column.children[0])
                operation = ops.ARRAY if kind == "array" else ops.MAP
                return [operation, *place, column.item_level, item, column.key_number]
            case "enum":
                known = {symbol: number for number, symbol in enumerate(column.node.symbols)}
                other = known.get(column.node.default_symbol or "", -1)
                return self._of_part(ops.ENUM, [known.get(each, other) for each in writer.symbols], column)
            case "boolean":
                return [ops.BOOLEAN, *place, 1]
            case "float" | "double":
                written = {"float": ops.FLOAT, "double": ops.DOUBLE}
                return [written.get(writer.kind, ops.REAL_INT), *place]
            case "int" | "long":
                return [ops.INT if writer.kind == "int" else ops.LONG, *place, _factor(writer, column)]
        return self._bytes(writer, column)

    def _bytes(self, writer: AvroNode, column: ArrowColumn) -> list[int]:
        place = [column.number, column.level]
        size = writer.size if writer.kind == "fixed" else -1
        if column.ddl.startswith("DECIMAL"):
            assert column.node.decimal is not None
            beyond = 10 ** column.node.decimal[0]
            self.bounds += [*_words(beyond), *_words(-beyond)]
            return [ops.DECIMAL, *place, size, len(self.bounds) - 4]
        if column.node.kind == "fixed":
            return [ops.FIXED, *place, size]
        return [ops.TEXT if column.node.kind == "string" else ops.BYTES, *place]

    def _record(self, writer: AvroNode, column: ArrowColumn) -> list[int]:
        written = {each.name: each for each in writer.fields}
        children: dict[int, ArrowColumn] = {}
        missing: list[tuple[AvroField, ArrowColumn]] = []
        for wanted, child in zip(column.node.fields, column.children, strict=True):
            names = (each for each in (wanted.name, *wanted.aliases) if each in written)
            source = next((written[each] for each in names), None)
            if source is None or id(source) in children:
                missing.append((wanted, child))
            else:
                children[id(source)] = child
        steps = [
            self.read(each.type, children[id(each)]) if id(each) in children else self.pass_over(each.type)
            for each in writer.fields
        ]
        steps += [self._add(self._default(wanted, child)) for wanted, child in missing]
        return self._of_part(ops.RECORD, steps)

    def _default(self, wanted: AvroField, child: ArrowColumn) -> list[int]:
        default = wanted.default
        if not wanted.has_default:
            default = wanted.type.default_symbol if wanted.type.kind == "enum" else None
            if default is None:
                return self._fail(f"the field {wanted.name} has no default, and the writer did not write it")
        constant = encoded(default, wanted.type, is_default=True)
        inside = self.read(wanted.type, child)
        self.constants += constant
        return [ops.DEFAULT, 0, 0, len(self.constants) - len(constant), inside, len(constant)]

    def pass_over(self, writer: AvroNode) -> int:
        """Return the node that passes over a writer's type."""
        return self._once(writer, -1, lambda: self._passed(writer))

    def _passed(self, writer: AvroNode) -> list[int]:
        match writer.kind:
            case "record" | "error":
                return self._of_part(ops.RECORD, [self.pass_over(each.type) for each in writer.fields])
            case "union":
                return self._of_part(ops.UNION, [self.pass_over(each) for each in writer.branches])
            case "array" | "map" as kind:
                assert writer.items is not None
                operation = ops.PASS_ARRAY if kind == "array" else ops.PASS_MAP
                return [operation, 0, 0, 0, self.pass_over(writer.items)]
            case "fixed":
                return [ops.PASS_FIXED, 0, 0, writer.size]
        operation, size = _PASSED[writer.kind]
        return [operation, 0, 0, size]


def _padded(node: list[int]) -> list[int]:
    return node + [0] * (ops.NODE_NUMBERS - len(node))


def _words(number: int) -> tuple[int, int]:
    """Return the high and the low word of a number of 128 bits."""
    return number >> 64 & 0xFFFFFFFFFFFFFFFF, number & 0xFFFFFFFFFFFFFFFF


def _is_same(reader: AvroNode, writer: AvroNode) -> bool:
    """Return whether two types are the same kind, and have the same name if they have one."""
    return _family(reader) == _family(writer) and reader.name == writer.name


def _family(node: AvroNode) -> str:
    return "record" if node.kind in _RECORDS else node.kind


def _mismatch(column: ArrowColumn, writer: AvroNode) -> str | None:
    """Return why a column can not hold a writer's type, whatever is inside of it; None if it can."""
    reader = column.node
    if _family(reader) != _family(writer):
        if writer.kind in _PROMOTIONS.get(reader.kind, ()):
            return _unit_mismatch(column, writer)
        return f"the reader has {reader.label} where the writer wrote {writer.label}"
    if reader.name and reader.short_name != writer.short_name and writer.name not in reader.aliases:
        return f"{reader.name} can not read what {writer.name} wrote: it is neither its name nor an alias"
    if reader.kind == "fixed" and reader.size != writer.size:
        return f"{reader.name} has {reader.size} bytes, and the writer wrote {writer.size}"
    if reader.decimal is not None and writer.decimal is not None and reader.decimal != writer.decimal:
        return f"the reader's decimal has (precision, scale) {reader.decimal}, the writer's {writer.decimal}"
    return _unit_mismatch(column, writer)


def _unit_mismatch(column: ArrowColumn, writer: AvroNode) -> str | None:
    is_nanos = logical_type(writer).endswith("timestamp-nanos")
    if is_nanos and logical_type(column.node) in TIMES:
        return "the writer's times are in nanoseconds, and the reader's are not"
    return None


def _factor(writer: AvroNode, column: ArrowColumn) -> int:
    """Return how many microseconds one is, if the column is a time: the writer says it, or else the reader."""
    of_reader = TIMES.get(logical_type(column.node)) if column.node.kind == "long" else None
    if of_reader is None:
        return 1
    of_writer = TIMES.get(logical_type(writer))
    return of_reader[0] if of_writer is None else of_writer[0]
