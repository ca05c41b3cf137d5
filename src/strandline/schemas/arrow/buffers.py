"""Arrow arrays from NumPy's, by their buffers: `pa.array` would load pandas, half a second in every worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa


def bitmap(present: Any) -> pa.Buffer:
    """Return a bit for each number: whether it is not zero."""
    return pa.py_buffer(np.packbits(present != 0, bitorder="little"))


def gathered(data: Any, starts: Any, lengths: Any, present: Any = None) -> pa.Array:
    """Copy bytes out of `data`; a row that is not `present` is null.

    An array whose bounds are start, end, start, end ... has the wanted bytes in every second slot. Arrow wants the
    first bound to be the least, and the last one the greatest.
    """
    count = len(starts)
    if not count:
        return pa.nulls(0, pa.binary())
    bounds = np.empty(2 * count + 2, np.int32)
    bounds[0], bounds[-1] = 0, len(data)
    bounds[1:-1:2] = starts
    bounds[2:-1:2] = bounds[1:-1:2] + lengths
    slots = pa.Array.from_buffers(
        pa.binary(), 2 * count + 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)], null_count=0
    )
    taken = slots.take(indices(np.arange(1, 2 * count, 2)))
    if present is None:
        return taken
    return pa.Array.from_buffers(pa.binary(), count, [bitmap(present), *taken.buffers()[1:]])


def view_of(array: Any) -> memoryview:
    """Return an array's memory, whose numbers are Python's and not NumPy's."""
    return memoryview(array)


def indices(numbers: Any) -> pa.Array:
    """Return numbers to take rows by; a negative one is null."""
    validity = bitmap(numbers >= 0) if len(numbers) and numbers.min() < 0 else None
    return pa.Array.from_buffers(pa.int64(), len(numbers), [validity, pa.py_buffer(numbers.astype(np.int64))])


def texts(words: Sequence[str]) -> pa.Array:
    """Return an array of texts."""
    data = [each.encode() for each in words]
    bounds = np.cumsum([0, *(len(each) for each in data)], dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), len(data), [None, pa.py_buffer(bounds), pa.py_buffer(b"".join(data))], null_count=0
    )
