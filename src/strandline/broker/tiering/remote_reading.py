"""Reading records of one partition from the store: by offset, by time, and which of their transactions were aborted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from strandline.broker.tiering.remote_cache import RemoteCache, SegmentIndexes
from strandline.codec.columns import records_of
from strandline.codec.record_batch import HEADER, HEADER_SIZE, PREFIX_SIZE, BatchHeader
from strandline.errors import CorruptBatch, DiskFailed, ErrorCode, RequestError
from strandline.log.segment.aborted_transactions import aborted_in, aborted_transactions
from strandline.log.segment.time_lookup import FoundTime
from strandline.log.segment.transaction_index import AbortedTransaction
from strandline.partition.partition import Partition
from strandline.partition.tier import RemoteRecords
from strandline.tiers.compaction import common_end
from strandline.tiers.objects import BLOCK_BYTES, key_of
from strandline.tiers.records import RemoteSegment, TieredPartition
from strandline.tiers.remote_segments import RemoteSegments
from strandline.tiers.store.failures import StoreFailed
from strandline.tiers.store.waiting import in_thread, pause

if TYPE_CHECKING:
    from strandline.broker.tiering.objects.followed_partition import FollowedPartition

AHEAD_BYTES: Final = BLOCK_BYTES // 2
"""What a reader will want soon, however little it takes at a time."""

READ_BYTES_MAX: Final = BLOCK_BYTES // 2
BATCHES_MAX: Final = 2000
"""Bytes and batches of one read: the loop looks at each header and copies the bytes, and others wait meanwhile."""
VIEW_BYTES_MIN: Final = BLOCK_BYTES // 8
"""What is read of a block to be sent from it, rather than copied."""
BATCHES_PER_TURN: Final = 1000
"""Batches that a look-up by time passes in one turn of the loop."""


class UnmergedRanges(Protocol):
    """What the store has of a partition of an object topic behind its segments."""

    def frozen(self) -> UnmergedRanges:
        """Return what there is now, for one read."""

    def followed(self) -> FollowedPartition:
        """Return what a follower knows of the partition. Raises NotLeader if that is nothing."""

    def has(self, offset: int) -> bool: ...

    async def read(self, offset: int, *, size_bytes_max: int, limit_offset: int) -> tuple[bytes, int]:
        """Return whole batches from the one with `offset` on, at least one, and the offset behind them."""

    def collect_aborted(self, start_offset: int, end_offset: int, found: list[tuple[int, int]]) -> None:
        """Add transactions that were aborted and overlap a range of offsets."""

    def aborted_from(self, start_offset: int) -> list[AbortedTransaction]:
        """Return the transactions whose markers are here, at an offset or behind it."""

    def aborted_before(self, end_offset: int) -> list[AbortedTransaction]:
        """Return the transactions that were aborted here and began before an offset."""

    async def find_time(self, timestamp_ms: int, start_offset: int, end_offset: int) -> FoundTime | None:
        """Return the first record between two offsets that is not older than a time."""


class RemoteLog(NamedTuple):
    """One partition and what the store has of it."""

    place: TieredPartition
    partition: Partition
    segments: RemoteSegments
    cluster_id: str
    ranges: UnmergedRanges | None = None

    def key_of(self, segment: RemoteSegment) -> str:
        return key_of(self.cluster_id, self.place, segment)

    def has(self, header: BatchHeader) -> bool:
        return has_batch(self.partition, header)

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


def has_batch(partition: Partition, header: BatchHeader) -> bool:
    """Return whether a batch is one of the leader's log, by the epoch at its offset."""
    # The log may start inside it, and knows no epochs before that.
    offset = max(header.base_offset, partition.log_start_offset)
    return partition.log.leader_epochs.epoch_of(offset) == header.leader_epoch


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
        return b"".join([part async for part in self._views(position, length)])

    async def parts(self, position: int, length: int) -> list[bytes | memoryview]:
        """Return `length` bytes, or fewer at the end, as views of the cached blocks where that pays."""
        # A view keeps its block, also when the cache has let go of it: a slow reader of little must not hold much.
        return [part if len(part) >= VIEW_BYTES_MIN else bytes(part) async for part in self._views(position, length)]

    async def _views(self, position: int, length: int) -> AsyncIterator[memoryview]:
        end = min(position + length, self._segment.size_bytes)
        while position < end:
            number, at = divmod(position, BLOCK_BYTES)
            block = await self._cache.block(self._key, self._segment, number, self._indexes)
            part = memoryview(block)[at : at + end - position]
            yield part
            position += len(part)

    async def batches(self, position: int) -> AsyncIterator[RemoteBatch]:
        """Yield the headers of batches from the one at `position` on."""
        held, block = -1, memoryview(b"")
        while position + HEADER_SIZE <= self._segment.size_bytes:
            number, at = divmod(position, BLOCK_BYTES)
            if number != held:
                found = await self._cache.block(self._key, self._segment, number, self._indexes)
                held, block = number, memoryview(found)
            if at + HEADER_SIZE <= len(block):
                header = BatchHeader._make(HEADER.unpack_from(block, at))
            else:
                header = BatchHeader._make(HEADER.unpack(await self.span(position, HEADER_SIZE)))
            if header.length + PREFIX_SIZE < HEADER_SIZE or position + header.size_bytes > self._segment.size_bytes:
                raise CorruptBatch(f"{self._key}: no batch begins at {position}")
            yield RemoteBatch(header, position)
            position += header.size_bytes

    def read_ahead(self, position: int, size_bytes: int) -> None:
        """Begin to read what a reader wants next, who is at a position and took so many bytes."""
        last = (position + max(AHEAD_BYTES, size_bytes)) // BLOCK_BYTES
        for number in range(position // BLOCK_BYTES + (position % BLOCK_BYTES > 0), last + 1):
            self._cache.read_ahead(self._key, self._segment, number, self._indexes)


async def read_records(
    remote: RemoteLog, cache: RemoteCache, offset: int, *, size_bytes_max: int, committed_only: bool
) -> RemoteRecords:
    """Return whole batches from the first with records from `offset` on, and the aborted transactions among them."""
    segments = remote.segments
    while True:
        if remote.ranges is not None and remote.find(offset) is None and remote.ranges.has(offset):
            return await _read_ranges(remote, remote.ranges, offset, size_bytes_max, committed_only=committed_only)
        segment, replacements = remote.expect(offset), segments.replacements
        try:
            found = await _read_from(remote, cache, segment, offset, size_bytes_max, committed_only=committed_only)
        except StoreFailed:
            if segments.replacements == replacements:
                raise
        else:
            # The transactions are those of the records only if the segment was not replaced in between.
            if segments.replacements == replacements or segments.is_readable(segment.id):
                return found


async def _read_from(
    remote: RemoteLog,
    cache: RemoteCache,
    segment: RemoteSegment,
    offset: int,
    size_bytes_max: int,
    *,
    committed_only: bool,
) -> RemoteRecords:
    """Read a segment, and the next ones if compaction left nothing of it from `offset` on."""
    partition = remote.partition
    at = offset
    while True:
        key = remote.key_of(segment)
        indexes = await cache.indexes(key, segment)
        reader = RemoteSegmentReader(cache, key, segment, indexes)
        span = await _find_batches(partition, reader, segment, indexes, at, size_bytes_max, committed_only)
        if span.size_bytes or span.next_offset <= at:
            break
        at = span.next_offset
        if at >= partition.log.log_start_offset:
            return _read_local(partition, at, size_bytes_max, committed_only=committed_only)
        if remote.ranges is not None and remote.find(at) is None and remote.ranges.has(at):
            return await _read_ranges(remote, remote.ranges, at, size_bytes_max, committed_only=committed_only)
        segment = remote.expect(at)
    parts = await reader.parts(span.position, span.size_bytes)
    reader.read_ahead(span.position + span.size_bytes, span.size_bytes)
    if not committed_only or not parts:
        return RemoteRecords(parts)
    return RemoteRecords(parts, await aborted_among(remote, cache, segment, offset, span.next_offset))


class _Span(NamedTuple):
    position: int
    size_bytes: int
    next_offset: int
    """The first offset behind the batches. Without batches, where to go on; where the search began, if it is over."""


async def _find_batches(
    partition: Partition,
    reader: RemoteSegmentReader,
    segment: RemoteSegment,
    indexes: SegmentIndexes,
    offset: int,
    size_bytes_max: int,
    committed_only: bool,
) -> _Span:
    """Find whole batches of one segment, at least one if there is any from `offset` on."""
    epochs = partition.log.leader_epochs
    limit_offset = partition.last_stable_offset if committed_only else partition.high_watermark
    first = end = indexes.offsets.position_before(max(0, offset - segment.start_offset))
    size_bytes_max = min(size_bytes_max, READ_BYTES_MAX)
    next_offset, count = common_end(segment, offset, epochs), 0
    async for header, position in reader.batches(first):
        if header.last_offset < offset:
            first = end = position + header.size_bytes
            continue
        if header.base_offset >= limit_offset:
            next_offset = next_offset if count else offset
            break
        if not has_batch(partition, header):
            # Records of this leader's log only: a segment may go on with what an election took back.
            next_offset = next_offset if count else header.base_offset
            break
        count += 1
        if end > first and (position + header.size_bytes - first > size_bytes_max or count > BATCHES_MAX):
            break
        end = position + header.size_bytes
        next_offset = header.last_offset + 1
    return _Span(first, end - first, next_offset)


def _read_local(partition: Partition, offset: int, size_bytes_max: int, *, committed_only: bool) -> RemoteRecords:
    """Read the local log for a reader of the store, because compaction left nothing there up to `offset`."""
    records = partition.read(
        offset,
        size_bytes_max=min(size_bytes_max, READ_BYTES_MAX),
        committed_only=committed_only,
        at_least_one=True,
        may_block=True,
    )
    if records is None:
        return RemoteRecords(())
    try:
        aborted = aborted_in(partition.log, records, offset, may_block=True) if committed_only else []
        return RemoteRecords((records.read(),), aborted)
    finally:
        records.release()


async def _read_ranges(
    remote: RemoteLog, ranges: UnmergedRanges, offset: int, size_bytes_max: int, *, committed_only: bool
) -> RemoteRecords:
    partition = remote.partition
    limit_offset = partition.last_stable_offset if committed_only else partition.high_watermark
    size_bytes_max = min(size_bytes_max, READ_BYTES_MAX)
    # Before the first wait: the ranges may be merged meanwhile, and are forgotten then with the markers in them. All
    # committed records behind a range are in ranges, so these are all markers below the last stable offset.
    aborted = ranges.aborted_from(offset)
    data, end_offset = await ranges.read(offset, size_bytes_max=size_bytes_max, limit_offset=limit_offset)
    if not committed_only or not data:
        return RemoteRecords((data,))
    found = {(each.producer_id, each.first_offset) for each in aborted if each.first_offset < end_offset}
    return RemoteRecords((data,), sorted(found, key=lambda each: each[1]))


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
        next_offset = segment.end_offset + 1
        if next_offset >= log.log_start_offset:
            break
        following = remote.find(next_offset)
        if following is None and remote.ranges is not None and remote.ranges.has(next_offset):
            break
        segment = following or remote.expect(next_offset)
    # Of markers below, the segments decide: a compaction may have removed them, when nothing was left to abort. What
    # is behind may still hold them, and a reader that is told of one waits for it, and drops the producer's records.
    return await _aborted_behind(remote, next_offset, end_offset, found)


async def _aborted_behind(
    remote: RemoteLog, start_offset: int, end_offset: int, found: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Add what ends behind the segments in the store: in ranges that are not merged, and then in the local log."""
    log = remote.partition.log
    if remote.ranges is not None:
        remote.ranges.collect_aborted(start_offset, end_offset, found)
    if log.has_aborted:
        # Also if no later transaction counts: the ranges may begin behind records that only the local log has here.
        search = partial(aborted_transactions, log, start_offset, end_offset, may_block=True)
        found += await in_thread(remote.partition.runtime, search)
    return sorted(set(found), key=lambda each: each[1])


async def find_time(remote: RemoteLog, cache: RemoteCache, timestamp_ms: int) -> FoundTime | None:
    """Return the first record in the store, below the local start, that is not older than a time."""
    partition = remote.partition
    start_offset, local_offset = partition.log_start_offset, partition.log.log_start_offset
    offset = start_offset
    while offset < local_offset:
        if remote.ranges is not None and remote.find(offset) is None and remote.ranges.has(offset):
            return await remote.ranges.find_time(timestamp_ms, offset, local_offset)
        segment, replacements = remote.expect(offset), remote.segments.replacements
        if segment.max_timestamp_ms >= timestamp_ms:
            try:
                found = await _find_in(remote, cache, segment, timestamp_ms, start_offset)
            except StoreFailed:
                if remote.segments.replacements == replacements:
                    raise
                continue
            if found is not None and found.offset < local_offset:
                return found
        offset = segment.end_offset + 1
    return None


async def _find_in(
    remote: RemoteLog, cache: RemoteCache, segment: RemoteSegment, timestamp_ms: int, start_offset: int
) -> FoundTime | None:
    key = remote.key_of(segment)
    indexes = await cache.indexes(key, segment)
    reader = RemoteSegmentReader(cache, key, segment, indexes)
    position = indexes.offsets.position_before(indexes.times.relative_offset_before(timestamp_ms))
    count = 0
    async for header, at in reader.batches(position):
        count += 1
        if count % BATCHES_PER_TURN == 0:
            await pause(remote.partition.runtime, 0.0)
        if header.last_offset < start_offset:
            continue
        if not remote.has(header):
            return None
        if header.max_timestamp < timestamp_ms:
            continue
        for record in records_of(await reader.span(at, header.size_bytes)):
            if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
                return FoundTime(record.offset, record.timestamp_ms, header.leader_epoch)
    return None


def too_late() -> RequestError:
    return RequestError(ErrorCode.REQUEST_TIMED_OUT, "the object store did not answer in time")
