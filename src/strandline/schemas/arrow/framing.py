"""The frame that Confluent's serializers put around a value: a zero, four bytes of the schema's id, and the rest.

0 | id int32, the greatest byte first | payload
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

FRAME_BYTES: Final = 5
NO_FRAME: Final = "the value does not begin with a zero and a schema id"


@dataclass(frozen=True)
class FramedValues:
    """Where the payloads of values lie, and the ids of their schemas."""

    data: Any
    """All bytes."""
    starts: Any
    """Where each payload begins."""
    ends: Any
    ids: Any
    """-1 for a value that is null, and -2 for one that has no frame."""


def framed(values: pa.Array) -> FramedValues:
    """Look at the frames of an array of binary values."""
    count = len(values)
    if not count:
        nothing = np.zeros(0, np.int64)
        return FramedValues(np.zeros(0, np.uint8), nothing, nothing, nothing)
    validity, bounds, content = values.buffers()
    offsets = np.frombuffer(bounds, np.int32, count + 1, 4 * values.offset).astype(np.int64)
    data = np.frombuffer(content if content is not None else b"", np.uint8)
    starts, ends = offsets[:-1] + FRAME_BYTES, offsets[1:]
    ids = np.full(count, -2, np.int64)
    rows = np.flatnonzero(starts <= ends)
    at = offsets[rows]
    rows, at = rows[data[at] == 0], at[data[at] == 0]
    found = np.zeros(len(rows), np.int64)
    for byte in range(1, FRAME_BYTES):
        found = found << 8 | data[at + byte]
    # The id is a signed number, and ids are never negative.
    ids[rows] = np.where(found < 2**31, found, -2)
    if validity is not None:
        # Bit by bit, because what Arrow offers for it loads pandas.
        bits = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")
        ids[bits[values.offset : values.offset + count] == 0] = -1
    return FramedValues(data, starts, ends, ids)
