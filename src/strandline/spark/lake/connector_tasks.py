"""A task of Spark that does a connector's work for a range of offsets: read, convert, transform, write files.

The records never pass through Java: Spark hands out ranges and collects what was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from strandline.client.arrow_rows import FIELDS
from strandline.client.cluster_client import ClientSettings
from strandline.client.fetcher import FetchSettings, OffsetRange, read_range
from strandline.connect.failures import ConnectFailed, RecordFailed
from strandline.connect.records import SinkRecord
from strandline.connect.sinks.lake.data_files import FILE_BYTES, FileWriter
from strandline.connect.sinks.lake.lake_table import DataFile, LakeTable
from strandline.connect.sinks.lake.table_rows import ArrowRows
from strandline.connect.sinks.lake.table_sink import TableSink
from strandline.connect.tasks.conversion import Conversion
from strandline.connect.tasks.tolerance import BadRecord, RawRecord
from strandline.runtime.fault_points import fault_point
from strandline.spark.lake.options import open_sink
from strandline.spark.source.tasks import worker_client

RECORDS_MAX: Final = 5_000
"""Records that are converted together."""
_SCHEMA: Final = pa.schema([FIELDS[name] for name in ("key", "value", "offset", "timestamp", "headers")])
_CONVERSIONS_MAX: Final = 4


@dataclass(frozen=True)
class ConnectorJob:
    """What every task of a connector needs to know."""

    kind: str
    properties: tuple[tuple[str, str], ...]
    allowed_modules: tuple[str, ...]
    allowed_paths: tuple[str, ...] | None
    client: ClientSettings

    def sink(self) -> TableSink:
        return open_sink(self.kind, dict(self.properties), self.allowed_paths)


@dataclass(frozen=True)
class RangeWritten:
    """What a task tells the driver."""

    offsets: OffsetRange
    files: tuple[DataFile, ...]
    records: int
    value_bytes: int


class FetchedMessage:
    """A record with the methods of a message of librdkafka, which conversion asks for."""

    __slots__ = ("_headers", "_key", "_offset", "_place", "_timestamp_ms", "_value")

    def __init__(self, place: OffsetRange, offset: int, key: Any, value: Any, timestamp_ms: Any, headers: Any) -> None:
        self._place = place
        self._offset = offset
        self._key = key
        self._value = value
        self._timestamp_ms = timestamp_ms
        self._headers = headers

    def __len__(self) -> int:
        return len(self._value or b"")

    def topic(self) -> str:
        return self._place.topic

    def partition(self) -> int:
        return self._place.partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        key: bytes | None = self._key
        return key

    def value(self) -> bytes | None:
        value: bytes | None = self._value
        return value

    def timestamp(self) -> tuple[int, int]:
        return 1, -1 if self._timestamp_ms is None else self._timestamp_ms

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return None if not self._headers else [(each["key"], each["value"]) for each in self._headers]


def write_range(job: ConnectorJob, directory: str, offsets: OffsetRange) -> RangeWritten:
    """Write the records of a range to files of the table of its topic."""
    sink = job.sink()
    name = sink.name_of(offsets.topic)
    table = sink.table_named(name)
    config = sink.config
    writer = FileWriter(
        table, directory, widening=sink.widening, may_create=config.auto_create, may_evolve=config.auto_evolve
    )
    conversion = _conversion(job.properties, job.allowed_modules)
    rows = RangeRows(sink, table, writer)
    count = value_bytes = 0
    for messages in _messages(job, offsets):
        records = [each for each in conversion.batch(messages, _fail, 1) if sink.is_row(each)]
        for each in records if conversion.transform is not None else ():
            if sink.name_of(each.topic) != name:
                raise ConnectFailed(
                    f"transforms send records of {offsets.topic} to the table {sink.name_of(each.topic)}: with "
                    "engine=spark all records of a topic are in its own table, so set `table`, or use engine=local"
                )
        rows.add(records)
        count += len(messages)
        value_bytes += sum(map(len, messages))
    rows.flush()
    fault_point("before-return")
    return RangeWritten(offsets, tuple(writer.files), count, value_bytes)


class RangeRows:
    """Rows of a range on their way to files. Those of one file have the columns that all of them need."""

    def __init__(self, sink: TableSink, table: LakeTable, writer: FileWriter) -> None:
        self._sink = sink
        self._table = table
        self._writer = writer
        self._maker: ArrowRows | None = None
        self._made: list[pa.Table] = []
        self._size_bytes = 0

    def add(self, records: Sequence[SinkRecord]) -> None:
        if not records:
            return
        self._maker = self._maker or self._sink.maker(self._table)
        made = self._maker.make(records)
        self._made += made
        self._size_bytes += sum(each.nbytes for each in made)
        if self._size_bytes >= FILE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the rows. The next ones are made for the columns that the table has got meanwhile."""
        if self._maker is not None:
            self._writer.add(self._maker.whole(self._made))
            self._writer.flush()
        self._maker, self._made, self._size_bytes = None, [], 0


def _messages(job: ConnectorJob, offsets: OffsetRange) -> Iterator[list[FetchedMessage]]:
    """Yield the records of a range in lists that are converted together."""
    client = worker_client(job.client)
    for batch in read_range(client, offsets, FetchSettings(), _SCHEMA):
        for at in range(0, batch.num_rows, RECORDS_MAX):
            part = batch.slice(at, RECORDS_MAX)
            keys, values, numbers = (part.column(name).to_pylist() for name in ("key", "value", "offset"))
            times = part.column("timestamp").cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()).to_pylist()
            headers = part.column("headers").to_pylist()
            yield [FetchedMessage(offsets, *each) for each in zip(numbers, keys, values, times, headers, strict=True)]


def _fail(bad: BadRecord, raw: RawRecord | None) -> None:
    raise RecordFailed(str(bad)) from bad.error


@lru_cache(_CONVERSIONS_MAX)
def _conversion(properties: tuple[tuple[str, str], ...], allowed_modules: tuple[str, ...]) -> Conversion:
    """Return the converters of a connector; a process of Spark's keeps them, with the schemas that they know."""
    given: Mapping[str, str] = dict(properties)
    return Conversion(given, allowed_modules)
