"""Arrow arrays of what a program found in values.

Where a program has no arrays or maps, one pass fills the columns. Else a first pass counts items, so that each column
is made with the room that it needs. Bytes and texts are copied out of the values in one sweep per column.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from strandline.schemas.arrow import _decode
from strandline.schemas.arrow.buffers import bitmap, gathered, texts, view_of
from strandline.schemas.arrow.columns import ArrowColumn
from strandline.schemas.arrow.program import Program

SLOTS_MAX: Final = 4_000_000
"""Rows times columns that are decoded at once; items of arrays and maps come on top."""

Decoded = tuple[pa.Array, Any]
"""An array of the root's type with nulls where a value can not be read, and a code for each row: 0, or why."""


def decode(program: Program, data: Any, starts: Any, ends: Any) -> Decoded:
    """Decode the values that lie at `starts` up to `ends` of `data`."""
    rows_max = max(1, SLOTS_MAX // program.tree.count)
    if len(starts) <= rows_max:
        return _decode_some(program, data, starts, ends)
    parts = [
        _decode_some(program, data, starts[at : at + rows_max], ends[at : at + rows_max])
        for at in range(0, len(starts), rows_max)
    ]
    return pa.concat_arrays([part for part, _ in parts]), np.concatenate([codes for _, codes in parts])


def _decode_some(program: Program, data: Any, starts: Any, ends: Any) -> Decoded:
    constants_at = len(data)
    if program.constants:
        data = np.concatenate([data, np.frombuffer(program.constants, np.uint8)])
    try:
        return _Rows(program, data, constants_at, starts, ends, checks_text=False).decoded()
    except pa.ArrowInvalid:
        # A text is not UTF-8. Now each is looked at, and rows that have such a text are found.
        return _Rows(program, data, constants_at, starts, ends, checks_text=True).decoded()


class _Rows:
    """Values while they are decoded."""

    def __init__(
        self, program: Program, data: Any, constants_at: int, starts: Any, ends: Any, *, checks_text: bool
    ) -> None:
        self._tree = program.tree
        self._data = data
        self._codes = np.zeros(len(starts), np.int32)
        levels = np.zeros(self._tree.level_count, np.int64)
        reader = _decode.PayloadReader(
            view_of(program.nodes),
            view_of(program.numbers),
            view_of(program.bounds),
            view_of(data),
            constants_at,
        )
        float_bits = np.zeros(1, np.uint32)
        scratch = (view_of(float_bits), view_of(float_bits.view(np.float32)))
        self._bases = np.zeros(self._tree.count, np.int64)
        self._make_room(0)

        def run(*, fills: bool) -> None:
            wide = self._wide
            reader.put_into(
                view_of(self._bases),
                view_of(levels),
                view_of(wide),
                view_of(wide.view(np.uint64)),
                view_of(wide.view(np.float64)),
                view_of(self._flags),
                *scratch,
            )
            before = view_of(np.zeros_like(levels))
            reader.read_rows(
                view_of(np.ascontiguousarray(starts, np.int64)),
                view_of(np.ascontiguousarray(ends, np.int64)),
                view_of(self._codes),
                before,
                program.root,
                fills,
                checks_text,
            )

        if self._tree.level_count > 1:
            run(fills=False)
        self._counts = levels.copy()
        self._counts[0] = len(starts)
        levels[:] = 0
        rooms = self._counts[self._tree.levels]
        self._bases[1:] = np.cumsum(rooms)[:-1]
        self._make_room(int(rooms.sum()))
        run(fills=True)

    def _make_room(self, slots: int) -> None:
        self._wide: Any = np.zeros(slots, np.int64)
        self._flags: Any = np.zeros(slots, np.uint8)

    def decoded(self) -> Decoded:
        """Build the arrays. Raise ArrowInvalid if a text is not UTF-8."""
        root = self._tree.root
        is_read = self._codes == 0
        if root.nullable:
            is_read &= self._flag(root) != 0
        return self._array(root, None if is_read.all() else is_read), self._codes

    # Columns

    def _slots(self, number: int) -> Any:
        base = self._bases[number]
        return self._wide[base : base + self._counts[self._tree.levels[number]]]

    def _flag(self, column: ArrowColumn) -> Any:
        base = self._bases[column.number]
        return self._flags[base : base + self._counts[column.level]]

    def _nullable_array(self, column: ArrowColumn) -> pa.Array:
        flags = self._flag(column)
        return self._array(column, None if not column.nullable or flags.all() else flags)

    def _array(self, column: ArrowColumn, present: Any) -> pa.Array:
        """Build a column; rows that are not `present` are null, and None says that all are."""
        count = int(self._counts[column.level])
        validity = None if present is None else bitmap(present)
        match column.node.kind:
            case "record" | "error" | "union":
                children = [self._nullable_array(each) for each in column.children]
                return pa.Array.from_buffers(column.type, count, [validity], children=children)
            case "array" | "map" as kind:
                items = self._nullable_array(column.children[0])
                if kind == "map":
                    keys = self._bytes(column.key_number, None).cast(pa.string())
                    pair = [pa.field("key", pa.string(), nullable=False), pa.field("value", items.type)]
                    items = pa.StructArray.from_arrays([keys, items], fields=pair)
                bounds = np.zeros(count + 1, np.int32)
                np.cumsum(self._slots(column.number), out=bounds[1:])
                return pa.Array.from_buffers(column.type, count, [validity, pa.py_buffer(bounds)], children=[items])
            case "string":
                return self._bytes(column.number, present).cast(pa.string())
            case "enum":
                return self._symbols(column, count, validity)
            case "null":
                return pa.nulls(count, pa.string())
        if pa.types.is_binary(column.type):
            return self._bytes(column.number, present)
        return pa.Array.from_buffers(column.type, count, [validity, self._numbers(column)])

    def _numbers(self, column: ArrowColumn) -> pa.Buffer:
        slots, is_narrow = self._slots(column.number), column.type.bit_width == 32
        if pa.types.is_boolean(column.type):
            return bitmap(slots)
        if pa.types.is_decimal(column.type):
            low = self._slots(column.number + 1)
            return pa.py_buffer(np.stack([low, slots], axis=1).reshape(-1))
        if pa.types.is_floating(column.type):
            return pa.py_buffer(slots.view(np.float64).astype(np.float32 if is_narrow else np.float64))
        return pa.py_buffer(slots.astype(np.int32 if is_narrow else np.int64))

    def _symbols(self, column: ArrowColumn, count: int, validity: pa.Buffer | None) -> pa.Array:
        if not column.node.symbols:
            return pa.nulls(count, pa.string())
        numbers = pa.py_buffer(self._slots(column.number).astype(np.int32))
        indices = pa.Array.from_buffers(pa.int32(), count, [validity, numbers])
        return texts(column.node.symbols).take(indices)

    def _bytes(self, number: int, present: Any) -> pa.Array:
        """Copy bytes out of the values."""
        slots = self._slots(number)
        return gathered(self._data, slots >> 32, slots & 0xFFFFFFFF, present)
