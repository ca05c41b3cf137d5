"""How the records of an object are written: Parquet, or JSON with a record on each line."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from strandline.connect.records import SinkRecord
from strandline.connect.sinks.lake.columns import (
    METADATA,
    NOT_CONVERTED,
    VALUE,
    Shape,
    array_of,
    check_records,
    is_inferred,
    is_same_shape,
    longest_start,
    metadata_of,
    shape_of,
    table_of,
)
from strandline.connect.sinks.plain_json import json_bytes

Compression = Literal["none", "gzip", "snappy", "zstd"]
_SUFFIXES: Final = {"none": "", "gzip": ".gz", "zstd": ".zst"}


class ObjectFormat(Protocol):
    """Turns records into the bytes of objects."""

    suffix: str

    def prepare(self, records: Sequence[SinkRecord]) -> Sequence[SinkRecord]:
        """Return records as they are kept until their object is written. Raise RecordFailed for one that cannot be."""

    def encode(self, records: Sequence[SinkRecord], shape: Shape | None) -> Iterator[tuple[SinkRecord, Any]]:
        """Yield the bytes of each object, with its first record. One object holds all, unless their types differ."""

    def row(self, record: SinkRecord) -> Any:
        """Return what an object is to have of a record, as `read_rows` yields it."""


class ParquetObjects:
    """Objects of Parquet."""

    suffix = ".parquet"

    def __init__(self, compression: Compression, *, has_metadata: bool) -> None:
        self._compression = compression
        self._has_metadata = has_metadata

    def prepare(self, records: Sequence[SinkRecord]) -> Sequence[SinkRecord]:
        start = 0
        while start < len(records):
            end, shape = _end_of_run(records, start)
            # Bytes always fit, and they are what has to be fast.
            if self._has_metadata or shape not in ("bytes", None):
                check_records(records[start:end], lambda some, shape=shape: self._convert(some, shape))  # type: ignore[misc]
            start = end
        return records

    def encode(self, records: Sequence[SinkRecord], shape: Shape | None) -> Iterator[tuple[SinkRecord, Any]]:
        values = [each.value for each in records]
        start = 0
        while start < len(values):
            end = len(values)
            try:
                table = table_of(values[start:], shape)
            except NOT_CONVERTED:
                if not is_inferred(shape):
                    raise
                end = start + longest_start(values[start:], shape)
                table = table_of(values[start:end], shape)
            yield records[start], self._parquet(table, records[start:end])
            start = end

    def row(self, record: SinkRecord) -> Any:
        self.prepare([record])
        row = table_of([record.value], shape_of(record)).to_pylist()[0]
        return row | metadata_of([record]).to_pylist()[0] if self._has_metadata else row

    def _convert(self, records: Sequence[SinkRecord], shape: Shape | None) -> None:
        array_of([each.value for each in records], shape)
        if self._has_metadata:
            metadata_of(records)

    def _parquet(self, table: pa.Table, records: Sequence[SinkRecord]) -> memoryview:
        if self._has_metadata:
            for field, column in zip(METADATA, metadata_of(records).columns, strict=True):
                table = table.append_column(field, column)
        written = pa.BufferOutputStream()
        pq.write_table(table, written, compression=self._compression)
        return memoryview(written.getvalue()).cast("B")


class JsonObjects:
    """Objects of JSON lines."""

    def __init__(self, compression: Compression, *, has_metadata: bool) -> None:
        self.suffix = f".json{_SUFFIXES[compression]}"
        self._compression = compression
        self._has_metadata = has_metadata

    def prepare(self, records: Sequence[SinkRecord]) -> Sequence[SinkRecord]:
        return [
            SinkRecord(
                topic=each.topic,
                value=json_bytes(self._content(each), each),
                timestamp_ms=each.timestamp_ms,
                offset=each.offset,
                original_topic=each.original_topic,
                original_partition=each.original_partition,
            )
            for each in records
        ]

    def encode(self, records: Sequence[SinkRecord], shape: Shape | None) -> Iterator[tuple[SinkRecord, Any]]:
        lines = b"\n".join([*(each.value for each in records), b""])
        match self._compression:
            case "gzip":
                # The time of the compression would make two objects of the same records differ.
                lines = gzip.compress(lines, mtime=0)
            case "zstd":
                lines = zstandard.ZstdCompressor().compress(lines)
        yield records[0], lines

    def row(self, record: SinkRecord) -> Any:
        return json.loads(json_bytes(self._content(record), record))

    def _content(self, record: SinkRecord) -> Any:
        if not self._has_metadata:
            return record.value
        row = dict(record.value) if isinstance(record.value, dict) else {VALUE: record.value}
        return row | metadata_of([record]).to_pylist()[0]


def read_rows(path: str, content: bytes) -> Iterator[Any]:
    """Yield the rows of an object, which its name says how to read."""
    if path.endswith(".parquet"):
        for part in pq.ParquetFile(pa.BufferReader(content)).iter_batches():
            yield from part.to_pylist()
        return
    if path.endswith(".gz"):
        content = gzip.decompress(content)
    elif path.endswith(".zst"):
        content = zstandard.ZstdDecompressor().decompressobj().decompress(content)
    for line in content.splitlines():
        yield json.loads(line)


def _end_of_run(records: Sequence[SinkRecord], start: int) -> tuple[int, Shape | None]:
    """Return where records of another shape begin, and the shape of those before."""
    shape: Shape | None = None
    known: tuple[object, object] | None = None
    for index in range(start, len(records)):
        record = records[index]
        if known is not None and type(record.value) is known[0] and record.value_schema is known[1]:
            continue
        own = shape_of(record)
        known = (type(record.value), record.value_schema)
        if own is None or (shape is not None and is_same_shape(own, shape)):
            continue
        if shape is not None:
            return index, shape
        shape = own
    return len(records), shape
