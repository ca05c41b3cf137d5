"""Record batches to Arrow: the rows of many batches at once, columns from buffers, no object per record.

The scan of the project's one decoder says where every key and value lies; Arrow then copies them out of the payload in
one sweep per column. The trick of `_gathered`: an array of binaries whose offsets are start, end, start, end, ... has
the wanted bytes in every second slot and what lies between them in the others, so taking every second slot is the copy.
Only columns that the schema names are built.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from strandline.codec.columns import decode_batch, decoder_name, locate_headers, scan_batches
from strandline.codec.columns.decode import payload_of
from strandline.codec.compression import Buffer
from strandline.codec.record_batch import (
    COMPRESSION_MASK,
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_POSITION,
    LOG_APPEND_TIME,
    PREFIX_SIZE,
    TRANSACTIONAL,
)
from strandline.errors import CorruptBatch

ROWS_MAX: Final = 65_536
"""Rows of one Arrow batch, unless a single record batch has more."""
PAYLOAD_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes that compressed batches may become together before they are handed on, unless a single one becomes more."""
BATCHES_MAX: Final = 16_384
"""Record batches of one Arrow batch."""

_IS_COMPILED: Final = decoder_name() != "python"
_TIMESTAMP_MS_MAX: Final = (2**63 - 1) // 1000
_BATCH_FIELDS: Final = 6
_BASE_OFFSET, _LAST_OFFSET, _LEADER_EPOCH, _ATTRIBUTES, _PRODUCER_ID, _ROWS = range(_BATCH_FIELDS)
_KEY_START, _KEY_LENGTH, _VALUE_START, _VALUE_LENGTH, _HEADER_START, _HEADER_COUNT = range(6)

HEADERS_TYPE: Final = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
FIELDS: Final = {
    field.name: field
    for field in (
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
        pa.field("headers", HEADERS_TYPE),
        pa.field("leaderEpoch", pa.int32()),
    )
}
"""The columns of a record: those of Spark's own source, in its order, and ours behind them."""

Integers = np.ndarray[Any, np.dtype[Any]]


@dataclass
class Rows:
    """Rows of several batches and where their bytes lie in `payload`."""

    payload: Any
    offsets: Integers
    timestamps: Integers
    narrow: list[Integers]
    batches: Integers
    """A row per batch, a column per field."""

    def chosen(self, rows: Any) -> Rows:
        narrow = [column[rows] for column in self.narrow]
        return Rows(self.payload, self.offsets[rows], self.timestamps[rows], narrow, self.batches)

    def per_row(self, field: int, kept: Any) -> Integers:
        """A field of the batches, repeated for each of their rows; `kept` are those that are still here."""
        repeated: Integers = np.repeat(self.batches[:, field], self.batches[:, _ROWS])[kept]
        return repeated


class AbortedTransactions:
    """Which producers' records are to be left out, on a walk through the batches of one Fetch answer.

    The answer names every aborted transaction with records in it, also one that began before the first of them: from
    its first offset on all transactional batches of its producer are dropped, until the marker that ended it.
    """

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        """`aborted` are (producer id, first offset), in any order."""
        self._begin = sorted(((first_offset, producer_id) for producer_id, first_offset in aborted), reverse=True)
        self._producers: set[int] = set()

    def kept(self, batches: Integers) -> Integers | None:
        """Which batches' records a reader gets; None for all of them."""
        attributes = batches[:, _ATTRIBUTES]
        special = attributes & (CONTROL | TRANSACTIONAL) != 0
        if not special.any():
            return None
        kept: Integers = attributes & CONTROL == 0
        if self._begin or self._producers:
            for index in np.flatnonzero(special).tolist():
                batch = batches[index]
                if self._is_aborted(int(batch[_LAST_OFFSET]), int(batch[_PRODUCER_ID]), int(batch[_ATTRIBUTES])):
                    kept[index] = False
        return kept

    def _is_aborted(self, last_offset: int, producer_id: int, attributes: int) -> bool:
        while self._begin and self._begin[-1][0] <= last_offset:
            self._producers.add(self._begin.pop()[1])
        if attributes & CONTROL:
            # A marker ends the one transaction that its producer can have open, whichever way it went.
            self._producers.discard(producer_id)
            return True
        return bool(attributes & TRANSACTIONAL) and producer_id in self._producers


class ArrowDecoder:
    """Turns the records of Fetch answers for one partition into Arrow batches of `schema`."""

    def __init__(self, schema: pa.Schema, topic: str, partition: int) -> None:
        self.schema = schema
        self._names = list(schema.names)
        self._topic = topic
        self._partition = partition
        self._batches: Any = np.empty(_BATCH_FIELDS * BATCHES_MAX, np.int64)
        self._filled: Any = np.zeros(2, np.int64)
        self._make_room(ROWS_MAX)

    def decode(
        self, records: bytes | memoryview, aborted: Sequence[tuple[int, int]] = (), *, start: int, end: int
    ) -> Iterator[pa.RecordBatch]:
        """The rows of whole batches from offset `start` up to `end`: a batch may begin before what was asked for.

        `records` must stay as they are until all is read; what is handed out has bytes of its own.

        `aborted` are the producer ids and first offsets that a reader of what is committed was told. Raises
        CorruptBatch, before anything of the damaged batch is handed out.
        """
        transactions = AbortedTransactions(aborted)
        # Plain Python indexes bytes faster than a view.
        for rows in self._scan(records if _IS_COMPILED else bytes(records)):
            kept = self._wanted(rows, transactions, start, end)
            if kept is not None:
                yield self._arrow(rows, kept)

    def _scan(self, records: bytes | memoryview) -> Iterator[Rows]:
        view = memoryview(records)
        position = 0
        while _batch_end(view, position) is not None:
            if _is_compressed(view, position):
                inflated, position = _inflated(view, position)
                yield from self._scan_plain(inflated, 0, check_crc=False)
            else:
                position = yield from self._scan_plain(records, position, check_crc=True)

    def _scan_plain(self, source: bytes | memoryview, position: int, *, check_crc: bool) -> Generator[Rows, None, int]:
        """The rows of batches up to the first that is compressed or cut short; returns where that begins."""
        view = memoryview(source)
        while True:
            self._filled[:] = 0
            position = scan_batches(source, position, self._batches, self._wide, self._narrow, self._filled, check_crc)
            if self._filled[0]:
                yield self._rows(source)
                continue
            end = _batch_end(view, position)
            if end is None or _is_compressed(view, position):
                return position
            # Either it has more rows than there is room for, or the strict way says what is wrong with it.
            count = len(decode_batch(view[position:end], check_crc=check_crc))
            if count <= len(self._wide) // 2:
                raise CorruptBatch(f"the batch at position {position} lies beyond what can be read")
            self._make_room(count)

    def _make_room(self, rows: int) -> None:
        # Arrays of NumPy, which the decoder takes as it takes any buffer of numbers.
        self._wide: Any = np.empty(2 * rows, np.int64)
        self._narrow: Any = np.empty(6 * rows, np.int32)
        self._every_second = _numbers(np.arange(0, 2 * rows, 2), pa.int32())

    def _rows(self, source: bytes | memoryview) -> Rows:
        batches, rows = self._filled.tolist()
        room = len(self._wide) // 2
        return Rows(
            source,
            self._wide[:rows],
            self._wide[room : room + rows],
            [self._narrow[at : at + rows] for at in range(0, 6 * room, room)],
            self._batches[: _BATCH_FIELDS * batches].reshape(batches, _BATCH_FIELDS),
        )

    def _wanted(self, rows: Rows, transactions: AbortedTransactions, start: int, end: int) -> Any:
        """Which rows lie in the range and are neither markers nor aborted; None if none does."""
        batches = rows.batches
        if (batches[1:, _BASE_OFFSET] <= batches[:-1, _LAST_OFFSET]).any():
            raise CorruptBatch(f"{self._topic}-{self._partition}: a Fetch answer with batches out of order")
        kept_batches = transactions.kept(batches)
        first, behind = np.searchsorted(rows.offsets, (start, end)).tolist()
        if kept_batches is None or kept_batches.all():
            return slice(first, behind) if first < behind else None
        kept = np.repeat(kept_batches, batches[:, _ROWS])
        kept[:first] = False
        kept[behind:] = False
        return kept if kept.any() else None

    # Columns

    def _arrow(self, rows: Rows, kept: Any) -> pa.RecordBatch:
        chosen = rows.chosen(kept)
        count = len(chosen.offsets)
        columns = [self._column(name, chosen, rows, kept, count) for name in self._names]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _column(self, name: str, chosen: Rows, rows: Rows, kept: Any, count: int) -> pa.Array:
        match name:
            case "key":
                return self._binary(chosen, chosen.narrow[_KEY_START], chosen.narrow[_KEY_LENGTH])
            case "value":
                return self._binary(chosen, chosen.narrow[_VALUE_START], chosen.narrow[_VALUE_LENGTH])
            case "topic":
                return _repeated(self._topic.encode(), count)
            case "partition":
                return _numbers(np.full(count, self._partition), pa.int32())
            case "offset":
                return _numbers(chosen.offsets, pa.int64())
            case "timestamp":
                # A producer may claim any time; what microseconds cannot carry is the last that they can.
                clipped = np.clip(chosen.timestamps, -_TIMESTAMP_MS_MAX, _TIMESTAMP_MS_MAX)
                return _numbers(clipped * 1000, FIELDS["timestamp"].type)
            case "timestampType":
                return _numbers(rows.per_row(_ATTRIBUTES, kept) & LOG_APPEND_TIME != 0, pa.int32())
            case "headers":
                return self._headers(chosen)
            case "leaderEpoch":
                return _numbers(rows.per_row(_LEADER_EPOCH, kept), pa.int32())
        raise AssertionError(f"no column {name!r}")

    def _binary(self, rows: Rows, starts: Integers, lengths: Integers) -> pa.Array:
        count = len(starts)
        present = lengths >= 0
        if present.all():
            return self._gathered(rows.payload, starts, starts + lengths)
        if not present.any():
            return pa.nulls(count, pa.binary())
        gathered = self._gathered(rows.payload, starts, starts + np.maximum(lengths, 0))
        _, offsets, content = gathered.buffers()
        return pa.Array.from_buffers(pa.binary(), count, [_bitmap(present), offsets, content])

    def _gathered(self, payload: Any, starts: Integers, ends: Integers) -> pa.Array:
        count = len(starts)
        bounds = np.empty(2 * count, np.int32)
        bounds[0::2] = starts
        bounds[1::2] = ends
        slots = pa.Array.from_buffers(
            pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(payload)], null_count=0
        )
        if count > len(self._every_second):
            return slots.take(_numbers(np.arange(0, 2 * count, 2), pa.int32()))
        return slots.take(self._every_second[:count])

    def _headers(self, rows: Rows) -> pa.Array:
        counts = rows.narrow[_HEADER_COUNT]
        total = int(counts.sum())
        bounds = np.zeros(len(counts) + 1, np.int32)
        np.cumsum(counts, out=bounds[1:])
        if total == 0:
            return pa.nulls(len(counts), HEADERS_TYPE)
        positions: Any = np.empty(4 * total, np.int32)
        starts: Any = np.ascontiguousarray(rows.narrow[_HEADER_START])
        header_counts: Any = np.ascontiguousarray(counts)
        locate_headers(rows.payload, starts, header_counts, positions)
        table = positions.reshape(total, 4)
        keys = _text(self._gathered(rows.payload, table[:, 0], table[:, 0] + table[:, 1]))
        values = self._binary(rows, table[:, 2], table[:, 3])
        pairs = pa.StructArray.from_arrays([keys, values], fields=list(HEADERS_TYPE.value_type))
        # Spark's own source has null where a record has no headers.
        validity = None if counts.all() else _bitmap(counts > 0)
        return pa.Array.from_buffers(HEADERS_TYPE, len(counts), [validity, pa.py_buffer(bounds)], children=[pairs])


def _inflated(view: memoryview, position: int) -> tuple[bytes, int]:
    """The compressed batches from `position` on as plain ones without a CRC, checked; and where the next begins."""
    pieces: list[Buffer] = []
    size_bytes = 0
    while size_bytes < PAYLOAD_BYTES_MAX and _is_compressed(view, position):
        end = _batch_end(view, position)
        if end is None:
            break
        header, payload = payload_of(view[position:end])
        plain = header._replace(
            length=HEADER_SIZE - PREFIX_SIZE + len(payload), crc=0, attributes=header.attributes & ~COMPRESSION_MASK
        )
        pieces += (HEADER.pack(*plain), payload)
        size_bytes += len(payload)
        position = end
    return b"".join(pieces), position


def _batch_end(view: memoryview, position: int) -> int | None:
    """Where the batch at `position` ends; None if the buffer ends first, as a broker cuts at a number of bytes."""
    if len(view) - position < HEADER_SIZE:
        return None
    start = position + LENGTH_POSITION
    length = int.from_bytes(view[start : start + 4], "big", signed=True)
    if length < HEADER_SIZE - PREFIX_SIZE:
        raise CorruptBatch(f"the batch length {length} at position {position} is smaller than a header")
    end = position + PREFIX_SIZE + length
    return end if end <= len(view) else None


def _is_compressed(view: memoryview, position: int) -> bool:
    return len(view) - position >= HEADER_SIZE and view[position + CRC_START + 1] & COMPRESSION_MASK != 0


def _numbers(values: Integers, type_: pa.DataType) -> pa.Array:
    """A column of numbers that are all there. Not by `pa.array`, which loads pandas: half a second in every worker."""
    wanted = np.dtype(np.int64 if type_.bit_width == 64 else np.int32)
    # The decoder fills its arrays again for the next rows.
    copied = np.array(values, wanted)
    return pa.Array.from_buffers(type_, len(copied), [None, pa.py_buffer(copied)], null_count=0)


def _repeated(text: bytes, count: int) -> pa.Array:
    bounds = np.arange(0, len(text) * count + 1, len(text), dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(bounds), pa.py_buffer(text * count)], null_count=0
    )


def _bitmap(present: Integers) -> pa.Buffer:
    return pa.py_buffer(np.packbits(present, bitorder="little"))


def _text(keys: pa.Array) -> pa.Array:
    """Header keys as text; what is no UTF-8 in one appears as U+FFFD, as Kafka's consumer shows it."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())
