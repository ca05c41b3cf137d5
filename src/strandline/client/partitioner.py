"""The partitions of rows, chosen as Kafka's producers do, for a whole column at a time.

A row goes to the partition that it names, else to that of its key's murmur2, so that equal keys meet. Rows without a
key go to one partition for as long as a batch of it fills, then to the next.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.client.failures import TopicMissing

_SEED = 0x9747B28C
_MIX = np.uint32(0x5BD1E995)
_POSITIVE = np.uint32(0x7FFFFFFF)


class Partitioner:
    """The choice for the rows of one writer and one topic."""

    def __init__(self, topic: str, partition_count: int, stretch_bytes: int, random: Random) -> None:
        self._topic = topic
        self._count = partition_count
        self._stretch_bytes = stretch_bytes
        self._first = random.randrange(partition_count)
        self._keyless_bytes = 0

    def partitions_of(self, keys: pa.Array | None, wanted: pa.Array | None, sizes: Any) -> Any:
        """Return the partition of each row. `sizes` are about the bytes of the rows."""
        chosen = np.full(len(sizes), -1, np.int32)
        if wanted is not None:
            chosen = wanted.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
            self._check(wanted, chosen)
        open_rows = chosen < 0
        if keys is not None and open_rows.any():
            hashes = murmur2(keys)
            keyed = open_rows & keys.is_valid().to_numpy(zero_copy_only=False)
            chosen[keyed] = (hashes[keyed] & _POSITIVE) % np.uint32(self._count)
            open_rows &= ~keyed
        if open_rows.any():
            chosen[open_rows] = self._stretches(sizes[open_rows])
        return chosen

    def _stretches(self, sizes: Any) -> Any:
        before = self._keyless_bytes + np.cumsum(sizes) - sizes
        self._keyless_bytes += int(sizes.sum())
        return ((self._first + before // self._stretch_bytes) % self._count).astype(np.int32)

    def _check(self, wanted: pa.Array, chosen: Any) -> None:
        outside = (chosen >= self._count) | ((chosen < 0) & wanted.is_valid().to_numpy(zero_copy_only=False))
        if outside.any():
            raise TopicMissing(
                f"A row names partition {int(chosen[outside][0])}, but topic {self._topic} has partitions "
                f"0 to {self._count - 1}: correct the partition column, or add partitions to the topic."
            )


def murmur2(keys: pa.Array) -> Any:
    """Return Kafka's hash of each row; a null counts as empty. Rows of equal length are hashed together."""
    lengths = pc.binary_length(keys).fill_null(0).to_numpy(zero_copy_only=False)
    _, starts, content = keys.buffers()
    first = np.frombuffer(starts, np.int32)[keys.offset : keys.offset + len(keys)].astype(np.int64)
    octets = np.frombuffer(content, np.uint8) if content is not None else np.zeros(0, np.uint8)
    hashes = np.empty(len(keys), np.uint32)
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        table = octets[first[rows, None] + np.arange(length)] if length else np.zeros((len(rows), 0), np.uint8)
        hashes[rows] = _murmur2_of_table(table)
    return hashes


def _murmur2_of_table(table: Any) -> Any:
    """Hash one key a row, all of the same length. Products wrap at 32 bits, as Java's do."""
    rows, length = table.shape
    whole = length & ~3
    words = np.ascontiguousarray(table[:, :whole]).view("<u4")
    hashes = np.full(rows, _SEED ^ length, np.uint32)
    for at in range(whole // 4):
        word = words[:, at] * _MIX
        word ^= word >> np.uint32(24)
        hashes = hashes * _MIX ^ word * _MIX
    if length > whole:
        for at in range(length - whole - 1, -1, -1):
            hashes ^= table[:, whole + at].astype(np.uint32) << np.uint32(8 * at)
        hashes *= _MIX
    hashes ^= hashes >> np.uint32(13)
    hashes *= _MIX
    return hashes ^ hashes >> np.uint32(15)
