"""The log folded: the newest record of every key of every partition, in a table of DuckDB.

    _partition INTEGER, _key BLOB, _offset BIGINT, _timestamp TIMESTAMPTZ, _value BLOB      null: the key was taken away

Only committed records count, up to the offsets that were asked for. Whether the log still had every offset between is
noted (`unbroken`): compaction leaves gaps, and with a gap the state at the end is right only if the fold began where
the log does. A tombstone, for example, is gone from the log some time after it took effect. Records without a key
belong to no row and are passed over.

A fold is advanced in transactions of DuckDB, so a reader of the table sees it before or after, and a fold that failed
half-way is thrown away by its owner. It is not for several threads.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from struct import Struct
from typing import Final
from uuid import UUID

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from strandline.client.arrow_rows import FIELDS, ArrowDecoder
from strandline.client.cluster_client import EARLIEST, READ_UNCOMMITTED, ClusterClient
from strandline.client.failures import ClientFailed, DataLost, TopicMissing
from strandline.client.fetcher import FetchSettings, OffsetRange, PartitionFetcher, read_range
from strandline.errors import PeerError
from strandline.ids import ZERO_UUID, TopicPartition
from strandline.views.failures import HistoryLost, ViewFailed
from strandline.views.querying import plain_words

MERGED_ROWS_MAX: Final = 400_000
"""Records that are kept as they came before the newest of each key are taken from them."""

PROBE_BYTES: Final = 64 * 1024
"""Asked for where a few records are enough."""

_READ: Final = pa.schema([FIELDS[name] for name in ("partition", "key", "offset", "timestamp", "value")])
_TIMES: Final = pa.schema([FIELDS["offset"], FIELDS["timestamp"]])
_BATCH: Final = Struct(">qi11xi30xi")
"""Base offset, length, last offset delta and number of records of a batch."""
_HEADER_BYTES: Final = 61
_PREFIX_BYTES: Final = 12

Offsets = Mapping[int, int]
"""By partition: the first offset that does not count."""

_numbers = itertools.count()


CONFINED_MEMORY: Final = "512MB"


def connect(*, is_confined: bool = False) -> duckdb.DuckDBPyConnection:
    """A database in memory that goes to a temporary directory before it goes beyond it, and nowhere else.

    One that is confined has a thread and little memory, and its SQL, which may be a stranger's, reads no file, no
    address and no variable of this process.
    """
    spill = os.path.join(tempfile.gettempdir(), f"strandline-views-{os.getuid()}-{os.getpid()}")
    connection = duckdb.connect(config={"temp_directory": spill, "autoinstall_known_extensions": "false"})
    # Times are shown as they are stored; a machine's own zone would make two machines disagree.
    connection.execute("SET TimeZone = 'UTC'")
    if is_confined:
        for setting in (
            f"memory_limit = '{CONFINED_MEMORY}'",
            f"max_temp_directory_size = '{CONFINED_MEMORY}'",
            "threads = 1",
            "python_enable_replacements = false",
            "autoload_known_extensions = false",
            "enable_external_access = false",
            # Last, because nothing can be set after it.
            "lock_configuration = true",
        ):
            connection.execute(f"SET {setting}")
    return connection


class Fold:
    """The newest records of one topic from `starts` up to `positions`, both by partition."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, topic: str, starts: Offsets, *, topic_id: UUID = ZERO_UUID
    ) -> None:
        self.table = f"fold_{next(_numbers)}"
        self.topic = topic
        self.topic_id = topic_id
        self.starts = dict(starts)
        self.positions = dict(starts)
        self.unbroken = dict.fromkeys(starts, True)
        self.latest_ms: dict[int, int] = {}
        """The greatest time of a record, where there was one."""
        self.records = 0
        """That were read, not rows."""
        self._connection = connection
        connection.execute(
            f"CREATE TABLE {self.table} "
            "(_partition INTEGER, _key BLOB, _offset BIGINT, _timestamp TIMESTAMPTZ, _value BLOB)"
        )

    @property
    def is_unbroken(self) -> bool:
        return all(self.unbroken.values())

    def drop(self) -> None:
        self._connection.execute(f"DROP TABLE IF EXISTS {self.table}")

    def advance(self, client: ClusterClient, ends: Offsets, *, on_read: Callable[[int], None] | None = None) -> bool:
        """Read up to `ends`; whether every offset of what was read now was there.

        Raises HistoryLost if the log no longer begins early enough, or is another log.
        """
        if all(self.positions[partition] >= end for partition, end in ends.items()):
            return True
        pending: list[pa.RecordBatch] = []
        rows = 0
        before = dict(self.positions), dict(self.unbroken), dict(self.latest_ms), self.records
        self.unbroken = dict.fromkeys(self.unbroken, True)
        self._connection.execute("BEGIN")
        try:
            for partition in sorted(ends):
                for batch in self._read(client, partition, ends[partition]):
                    pending.append(batch)
                    rows += batch.num_rows
                    if on_read is not None:
                        on_read(batch.num_rows)
                    if rows >= MERGED_ROWS_MAX:
                        self._merge(pending)
                        pending, rows = [], 0
            self._merge(pending)
            self._connection.execute("COMMIT")
            is_whole = self.is_unbroken
            self.unbroken = {each: unbroken and before[1][each] for each, unbroken in self.unbroken.items()}
            return is_whole
        except BaseException as error:
            # Before the rollback, which may fail, too: a fold must never be further than its table.
            self.positions, self.unbroken, self.latest_ms, self.records = before
            # DuckDB itself ends a transaction that it cannot commit.
            with suppress(duckdb.TransactionException):
                self._connection.execute("ROLLBACK")
            if isinstance(error, duckdb.Error):
                raise ViewFailed(
                    f"the rows of {self.topic} cannot be held: {plain_words(error)}; they need memory, or room in "
                    f"{tempfile.gettempdir()}"
                ) from error
            raise

    def _read(self, client: ClusterClient, partition: int, end: int) -> Iterator[pa.RecordBatch]:
        start = self.positions[partition]
        if start >= end:
            return
        offsets = OffsetRange(self.topic, partition, start, end, self.topic_id)
        decoder = ArrowDecoder(_READ, self.topic, partition)
        reached = start
        try:
            for asked, answer in PartitionFetcher(client, offsets, FetchSettings()).answers():
                reached, is_whole = walked(answer.records, reached)
                if not is_whole:
                    self.unbroken[partition] = False
                for batch in decoder.decode(answer.records, answer.aborted, start=asked, end=end):
                    self.records += batch.num_rows
                    yield self._noted(batch, partition)
        except (DataLost, TopicMissing) as error:
            raise HistoryLost(str(error)) from error
        except ClientFailed as error:
            raise ViewFailed(str(error)) from error
        except PeerError as error:
            raise ViewFailed(f"{offsets.topic_partition} cannot be read from {start} to {end}: {error}") from error
        if reached < end:
            # The end of the range was compacted away.
            self.unbroken[partition] = False
        self.positions[partition] = end

    def _noted(self, batch: pa.RecordBatch, partition: int) -> pa.RecordBatch:
        latest = pc.max(batch.column("timestamp").cast(pa.int64())).as_py() // 1000
        self.latest_ms[partition] = max(latest, self.latest_ms.get(partition, latest))
        return batch.rename_columns([f"_{name}" for name in _READ.names])

    def _merge(self, batches: list[pa.RecordBatch]) -> None:
        if not batches:
            return
        self._connection.register("incoming", pa.Table.from_batches(batches))
        # An offset names one record of a partition, so the greatest of a key names its newest.
        self._connection.execute(
            "CREATE OR REPLACE TEMP TABLE newest AS SELECT * FROM incoming WHERE (_partition, _offset) IN "
            "(SELECT (_partition, max(_offset)) FROM incoming WHERE _key IS NOT NULL GROUP BY _partition, _key)"
        )
        self._connection.unregister("incoming")
        self._connection.execute(
            f"DELETE FROM {self.table} AS old USING newest "
            "WHERE old._partition = newest._partition AND old._key = newest._key"
        )
        self._connection.execute(f"INSERT INTO {self.table} FROM newest")
        self._connection.execute("DROP TABLE newest")


def log_starts(client: ClusterClient, topic: str, partitions: list[int]) -> dict[int, int]:
    """Where the log of each partition begins."""
    wanted = {TopicPartition(topic, each): EARLIEST for each in partitions}
    told = client.list_offsets(wanted, isolation_level=READ_UNCOMMITTED)
    return {place.partition: offset for place, offset in told.items()}


def first_later(client: ClusterClient, offsets: OffsetRange, timestamp_ms: int) -> int:
    """Return the offset of the first committed record in a range that is later than a time; the end if there is none.

    A broker finds a place by the times of all records. Markers and aborted records have times, too, and change no row.
    """
    first, rest = replace(offsets, end=offsets.start + 1), replace(offsets, start=offsets.start + 1)
    # In most cases it is the first. Then nothing more is asked for.
    for part, settings in ((first, FetchSettings(partition_bytes_max=PROBE_BYTES)), (rest, FetchSettings())):
        for batch in read_range(client, part, settings, _TIMES):
            is_later = pc.greater(batch.column("timestamp").cast(pa.int64()), timestamp_ms * 1000)
            if (index := pc.index(is_later, True).as_py()) >= 0:
                return int(batch.column("offset")[index].as_py())
    return offsets.end


def fold_whole(
    connection: duckdb.DuckDBPyConnection,
    client: ClusterClient,
    topic: str,
    ends: Offsets,
    *,
    topic_id: UUID = ZERO_UUID,
    on_read: Callable[[int], None] | None = None,
) -> Fold:
    """Everything that the log has below `ends`. What is trimmed while it is read is read without."""
    attempts = 3
    while True:
        attempts -= 1
        starts = log_starts(client, topic, sorted(ends))
        fold = Fold(connection, topic, {each: min(starts[each], ends[each]) for each in ends}, topic_id=topic_id)
        try:
            fold.advance(client, ends, on_read=on_read)
            return fold
        except HistoryLost:
            fold.drop()
            if not attempts:
                raise
        except BaseException:
            fold.drop()
            raise


def walked(records: memoryview, position: int) -> tuple[int, bool]:
    """The offset behind the last whole batch, and whether every offset from `position` up to there is a record."""
    at = 0
    is_whole = True
    while len(records) - at >= _HEADER_BYTES:
        base_offset, length, last_delta, count = _BATCH.unpack_from(records, at)
        at += _PREFIX_BYTES + length
        if at > len(records):
            break
        is_whole = is_whole and base_offset <= position and count == last_delta + 1
        position = max(position, base_offset + last_delta + 1)
    return position, is_whole
