"""Rows gather in one open batch per partition until it is full or old; then it is sealed and sent.

The bytes of the records stay where Arrow joined them; sealing puts a header in front and copies them once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from strandline.codec.checksum import crc32c
from strandline.codec.compression import Compression, compress
from strandline.codec.record_batch import (
    CRC_POSITION,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    PREFIX_SIZE,
    TRANSACTIONAL,
)
from strandline.spark.sink.failures import SinkRefused
from strandline.spark.sink.record_bytes import encode_records, lengths_of, starts_and_bytes

LINGER_MS = 100
"""A batch that has been open for longer is sealed when the next rows come: its time is that of all its records."""
RECORD_OVERHEAD_BYTES = 25
"""More than what a record has beside key, value and headers: five varints of five bytes."""

Place = tuple[str, int]
"""Topic and partition."""


@dataclass(slots=True)
class OpenBatch:
    """Records of one partition that have no sequence yet."""

    place: Place
    opened_ms: int
    count: int = 0
    size_bytes: int = 0
    """About, and not less than it will be."""
    chunks: list[memoryview | bytes] = field(default_factory=list)

    def seal(self, producer_id: int, producer_epoch: int, sequence: int, compression: int) -> bytes:
        chunks = self.chunks
        if compression != Compression.NONE:
            chunks = [compress(compression, b"".join(chunks))]
        length = HEADER_SIZE - PREFIX_SIZE + sum(map(len, chunks))
        header = bytearray(
            HEADER.pack(
                *(0, length, -1, MAGIC, 0, compression | TRANSACTIONAL, self.count - 1, self.opened_ms, self.opened_ms),
                *(producer_id, producer_epoch, sequence, self.count),
            )
        )
        checksum = crc32c(header[CRC_START:])
        for chunk in chunks:
            checksum = crc32c(chunk, checksum)
        header[CRC_POSITION:CRC_START] = checksum.to_bytes(4, "big")
        return b"".join((header, *chunks))


class OpenBatches:
    """All open batches of one task."""

    def __init__(self, *, batch_bytes: int, record_bytes_max: int) -> None:
        self._batch_bytes = batch_bytes
        self._record_bytes_max = record_bytes_max
        self._open: dict[Place, OpenBatch] = {}
        self.size_bytes = 0

    def add(
        self,
        topic: str,
        chosen: Any,
        sizes: Any,
        keys: pa.Array | None,
        values: pa.Array,
        headers: pa.Array | None,
        now_ms: int,
    ) -> list[OpenBatch]:
        """Put rows (of `row_sizes`) into the batches of the partitions `chosen`; the batches that are full by that."""
        self._check(topic, sizes)
        order = np.argsort(chosen, kind="stable")
        deltas = np.empty(len(chosen), np.int64)
        pieces, full = self._arrange(topic, chosen[order], sizes[order], deltas, now_ms)
        in_row_order = np.empty_like(deltas)
        in_row_order[order] = deltas
        records = encode_records(keys, values, headers, in_row_order)
        if pieces[0][2] != len(chosen):
            records = records.take(pa.array(order))
        starts, content = starts_and_bytes(records)
        for batch, begin, end in pieces:
            batch.chunks.append(content[starts[begin] : starts[end]])
        return full

    def take_old(self, now_ms: int) -> list[OpenBatch]:
        """What has been open for longer than it should; a clock that went back makes everything old."""
        old = [batch for batch in self._open.values() if not 0 <= now_ms - batch.opened_ms <= LINGER_MS]
        for batch in old:
            self._close(batch)
        return old

    def take_all(self) -> list[OpenBatch]:
        batches = list(self._open.values())
        self._open.clear()
        self.size_bytes = 0
        return batches

    def _arrange(
        self, topic: str, partitions: Any, sizes: Any, deltas: Any, now_ms: int
    ) -> tuple[list[tuple[OpenBatch, int, int]], list[OpenBatch]]:
        """Which rows (in the order of their partitions) go into which batch, and which batches that fills."""
        pieces: list[tuple[OpenBatch, int, int]] = []
        full: list[OpenBatch] = []
        ends = np.cumsum(sizes)
        changes = np.flatnonzero(np.diff(partitions)) + 1
        for begin, end in zip([0, *changes.tolist()], [*changes.tolist(), len(partitions)], strict=True):
            place = (topic, int(partitions[begin]))
            while begin < end:
                batch = self._open.get(place)
                if batch is None:
                    batch = self._open[place] = OpenBatch(place, now_ms)
                before = int(ends[begin - 1]) if begin else 0
                room = before + self._batch_bytes - batch.size_bytes
                stop = min(int(np.searchsorted(ends, room, "right")), end)
                if stop <= begin and not batch.count:
                    stop = begin + 1  # A record that is larger than a batch should be has one of its own.
                if stop > begin:
                    deltas[begin:stop] = np.arange(batch.count, batch.count + stop - begin)
                    batch.count += stop - begin
                    batch.size_bytes += int(ends[stop - 1]) - before
                    self.size_bytes += int(ends[stop - 1]) - before
                    pieces.append((batch, begin, stop))
                if stop < end:
                    self._close(batch)
                    full.append(batch)
                begin = max(stop, begin)
        return pieces, full

    def _close(self, batch: OpenBatch) -> None:
        del self._open[batch.place]
        self.size_bytes -= batch.size_bytes

    def _check(self, topic: str, sizes: Any) -> None:
        largest = int(sizes.max())
        if largest > self._record_bytes_max:
            raise SinkRefused(
                f"A record of {largest:,} bytes for topic {topic} is larger than kafka.max.request.size "
                f"({self._record_bytes_max:,} bytes): raise it, and max.message.bytes of the topic with it."
            )


def row_sizes(keys: pa.Array | None, values: pa.Array, headers: pa.Array | None) -> Any:
    """About the bytes of each row's record, never less."""
    sizes = np.maximum(lengths_of(values), 0) + RECORD_OVERHEAD_BYTES
    if keys is not None:
        sizes += np.maximum(lengths_of(keys), 0)
    if headers is not None:
        sizes += lengths_of(headers)
    return sizes
