"""Reading records of one partition from the store: by offset, by time, and which of their transactions were aborted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Final, NamedTuple

from strandline.broker.tiering.remote_cache import RemoteCache, SegmentIndexes
from strandline.codec.columns import records_of
from strandline.codec.record_batch import HEADER, HEADER_SIZE, PREFIX_SIZE, BatchHeader
from strandline.errors import CorruptBatch, DiskFailed, ErrorCode, RequestError
from strandline.log.segment.aborted_transactions import aborted_transactions
from strandline.log.segment.time_lookup import FoundTime
from strandline.partition.partition import Partition
from strandline.partition.tier import RemoteRecords
from strandline.tiers.objects import BLOCK_BYTES, segment_key
from strandline.tiers.records import RemoteSegment, TieredPartition
from strandline.tiers.remote_segments import RemoteSegments
from strandline.tiers.store.waiting import in_thread, pause

AHEAD_SHARE: Final = BLOCK_BYTES // 2
"""A reader that is so far in a block will want the next one."""

READ_BYTES_MAX: Final = 2 * BLOCK_BYTES
BATCHES_MAX: Final = 2000
"""Bytes and batches of one read: the loop looks at each header, and other clients wait meanwhile."""
BATCHES_PER_TURN: Final = 1000
"""Batches that a look-up by time passes in one turn of the loop."""


class RemoteLog(NamedTuple):
    """One partition and what the store has of it."""

    place: TieredPartition
    partition: Partition
    segments: RemoteSegments
    cluster_id: str

    def key_of(self, segment: RemoteSegment) -> str:
        return segment_key(self.cluster_id, self.place, segment.start_offset, segment.id)

    def find(self, offset: int) -> RemoteSegment | None:
        """Return the segment that holds an offset of the leader's log."""
        return self.segments.find(self.partition.log.leader_epochs.epoch_of(offset), offset)

    def expect(self, offset: int) -> RemoteSegment:
        """Return the segment that must hold an offset. Raises DiskFailed if there is none."""
        segment = self.find(offset)
        if segment is None:
            # Not OFFSET_OUT_OF_RANGE: a consumer would jump, and take the records between for deleted ones.
            raise DiskFailed(
                f"{self.place}: no segment in the object store has offset {offset}; was its metadata lost?"
            )
        return segment


class RemoteBatch(NamedTuple):
    header: BatchHeader
    position: int


class RemoteSegmentReader:
    """Bytes of one segment, block by block."""

    def __init__(self, cache: RemoteCache, key: str, segment: RemoteSegment, indexes: SegmentIndexes) -> None:
        self._cache = cache
        self._key = key
        self._segment = segment
        self._indexes = indexes

    async def span(self, position: int, length: int) -> bytes:
        """Return `length` bytes, or fewer at the end."""
        end = min(position + length, self._segment.size_bytes)
        parts = []
        while position < end:
            number, at = divmod(position, BLOCK_BYTES)
            block = await self._cache.block(self._key, self._segment, number, self._indexes)
            part = block[at : at + end - position]
            parts.append(part)
            position += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def batches(self, position: int) -> AsyncIterator[RemoteBatch]:
        """Yield the headers of batches from the one at `position` on."""
        held, block = -1, b""
        while position + HEADER_SIZE <= self._segment.size_bytes:
            number, at = divmod(position, BLOCK_BYTES)
            if number != held:
                held, block = number, await self._cache.block(self._key, self._segment, number, self._indexes)
            if at + HEADER_SIZE <= len(block):
                header = BatchHeader._make(HEADER.unpack_from(block, at))
            else:
                header = BatchHeader._make(HEADER.unpack(await self.span(position, HEADER_SIZE)))
            if header.length + PREFIX_SIZE < HEADER_SIZE or position + header.size_bytes > self._segment.size_bytes:
                raise CorruptBatch(f"{self._key}: no batch begins at {position}")
            yield RemoteBatch(header, position)
            position += header.size_bytes

    def read_ahead(self, position: int) -> None:
        number, at = divmod(position, BLOCK_BYTES)
        if at >= AHEAD_SHARE:
            self._cache.read_ahead(self._key, self._segment, number + 1, self._indexes)


async def read_records(
    remote: RemoteLog, cache: RemoteCache, offset: int, *, size_bytes_max: int, committed_only: bool
) -> RemoteRecords:
    """Return whole batches from the one with `offset` on, at least one, and the aborted transactions among them."""
    partition = remote.partition
    segment = remote.expect(offset)
    key = remote.key_of(segment)
    indexes = await cache.indexes(key, segment)
    reader = RemoteSegmentReader(cache, key, segment, indexes)
    epochs = partition.log.leader_epochs
    limit_offset = partition.last_stable_offset if committed_only else partition.high_watermark
    first = end = indexes.offsets.position_before(offset - segment.start_offset)
    size_bytes_max = min(size_bytes_max, READ_BYTES_MAX)
    next_offset, count = offset, 0
    async for header, position in reader.batches(first):
        if header.last_offset < offset:
            first = end = position + header.size_bytes
            continue
        if header.base_offset >= limit_offset or epochs.epoch_of(header.base_offset) != header.leader_epoch:
            # Committed records of this leader's log only: a segment may go on with what an election took back.
            break
        count += 1
        if end > first and (position + header.size_bytes - first > size_bytes_max or count > BATCHES_MAX):
            break
        end = position + header.size_bytes
        next_offset = header.last_offset + 1
    data = await reader.span(first, end - first) if end > first else b""
    reader.read_ahead(end)
    if not committed_only or not data:
        return RemoteRecords(data, ())
    return RemoteRecords(data, await aborted_among(remote, cache, segment, offset, next_offset))


async def aborted_among(
    remote: RemoteLog, cache: RemoteCache, segment: RemoteSegment, start_offset: int, end_offset: int
) -> list[tuple[int, int]]:
    """Return (producer id, first offset) of aborted transactions that have records between two offsets.

    A marker comes behind its records, so the search goes on in later segments and then in the local log.
    """
    found: list[tuple[int, int]] = []
    log = remote.partition.log
    while True:
        if not segment.is_txn_index_empty:
            indexes = await cache.indexes(remote.key_of(segment), segment)
            if indexes.transactions.collect(start_offset, end_offset, found):
                return sorted(set(found), key=lambda each: each[1])
        if segment.end_offset + 1 >= log.log_start_offset:
            break
        segment = remote.expect(segment.end_offset + 1)
    if log.has_aborted:
        search = partial(aborted_transactions, log, start_offset, end_offset, may_block=True)
        found += await in_thread(remote.partition.runtime, search)
    return sorted(set(found), key=lambda each: each[1])


async def find_time(remote: RemoteLog, cache: RemoteCache, timestamp_ms: int) -> FoundTime | None:
    """Return the first record in the store, below the local start, that is not older than a time."""
    partition = remote.partition
    start_offset, local_offset = partition.log_start_offset, partition.log.log_start_offset
    offset = start_offset
    while offset < local_offset:
        segment = remote.expect(offset)
        if segment.max_timestamp_ms >= timestamp_ms:
            found = await _find_in(remote, cache, segment, timestamp_ms, start_offset)
            if found is not None and found.offset < local_offset:
                return found
        offset = segment.end_offset + 1
    return None


async def _find_in(
    remote: RemoteLog, cache: RemoteCache, segment: RemoteSegment, timestamp_ms: int, start_offset: int
) -> FoundTime | None:
    key, epochs = remote.key_of(segment), remote.partition.log.leader_epochs
    indexes = await cache.indexes(key, segment)
    reader = RemoteSegmentReader(cache, key, segment, indexes)
    position = indexes.offsets.position_before(indexes.times.relative_offset_before(timestamp_ms))
    count = 0
    async for header, at in reader.batches(position):
        count += 1
        if count % BATCHES_PER_TURN == 0:
            await pause(remote.partition.runtime, 0.0)
        if epochs.epoch_of(header.base_offset) != header.leader_epoch:
            return None
        if header.max_timestamp < timestamp_ms or header.last_offset < start_offset:
            continue
        for record in records_of(await reader.span(at, header.size_bytes)):
            if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
                return FoundTime(record.offset, record.timestamp_ms, header.leader_epoch)
    return None


def too_late() -> RequestError:
    return RequestError(ErrorCode.REQUEST_TIMED_OUT, "the object store did not answer in time")
