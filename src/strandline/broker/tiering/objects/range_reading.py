"""Reading committed batches of one partition that are in objects and in no segment yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from strandline.broker.tiering.objects.followed_partition import FollowedPartition
from strandline.broker.tiering.remote_cache import RemoteCache
from strandline.codec.checksum import crc32c
from strandline.codec.columns import records_of
from strandline.codec.record_batch import HEADER, HEADER_SIZE, BatchHeader
from strandline.errors import DiskFailed, NotLeader
from strandline.log.segment.time_lookup import FoundTime
from strandline.log.segment.transaction_index import AbortedTransaction
from strandline.partition.partition import Partition
from strandline.tiers.objects import BLOCK_BYTES
from strandline.tiers.store.object_store import ObjectDamaged
from strandline.tiers.store.waiting import together
from strandline.tiers.wal.commit_fold import CommitFold, CommittedPartition, WalRange
from strandline.tiers.wal.wal_objects import wal_key

RANGES_AT_A_TIME: Final = 16
"""Ranges that one read collects: they may be small, and each may be a request."""


class RangeReader:
    """The ranges of one partition."""

    def __init__(
        self,
        cache: RemoteCache,
        fold: Callable[[], CommitFold],
        cluster_id: str,
        partition: Partition,
        *,
        frozen: CommittedPartition | None = None,
    ) -> None:
        self._cache = cache
        self._fold = fold
        self._cluster_id = cluster_id
        self._partition = partition
        self._frozen = frozen

    def frozen(self) -> RangeReader:
        """Return a reader of the ranges that there are now.

        A read that has begun goes on with them when they are released: their objects stay for a while, and the aborted
        transactions in them must not be missed.
        """
        known, kept = self.known, CommittedPartition()
        kept.start_offset, kept.end_offset = known.start_offset, known.end_offset
        kept.ranges, kept.bases, kept.epochs = list(known.ranges), list(known.bases), known.epochs
        return RangeReader(self._cache, self._fold, self._cluster_id, self._partition, frozen=kept)

    def followed(self) -> FollowedPartition:
        """Return what a follower knows of the partition. Raises NotLeader if the commit log was not read so far."""
        partition = self._partition
        known = self._fold().partitions.get((partition.topic_id, partition.index))
        if known is None:
            raise NotLeader(f"{partition!r}: the commit log is not read yet")
        return FollowedPartition(partition, known)

    @property
    def known(self) -> CommittedPartition:
        if self._frozen is not None:
            return self._frozen
        partition = self._partition
        return self._fold().partitions.get((partition.topic_id, partition.index)) or CommittedPartition()

    def has(self, offset: int) -> bool:
        return self.known.find(offset) is not None

    async def load(self, wanted: WalRange) -> memoryview:
        """Return the bytes of a range. Raises StoreFailed."""
        live = self._fold().objects.get(wanted.object_id)
        end = wanted.position + wanted.size_bytes
        size_bytes = end if live is None else live.size_bytes
        owner = self._fold().owner or self._cluster_id
        key, parts, position = wal_key(owner, wanted.object_id), [], wanted.position
        while position < end:
            number, at = divmod(position, BLOCK_BYTES)
            length = min(BLOCK_BYTES, size_bytes - number * BLOCK_BYTES)
            block = await self._cache.piece((wanted.object_id, number), key, number * BLOCK_BYTES, length)
            parts.append(memoryview(block)[at : at + end - position])
            position += len(parts[-1])
        data = parts[0] if len(parts) == 1 else memoryview(b"".join(parts))
        if crc32c(data) != wanted.crc:
            self._cache.forget(wanted.object_id)
            self._cache.failures += 1
            raise ObjectDamaged(
                f"{key} is not what was written, in the {wanted.size_bytes} bytes from {wanted.position} on, which are "
                f"offsets {wanted.base_offset} to {wanted.end_offset - 1} of {self._partition!r}; restore the object "
                "from a copy, or move the log start behind it with DeleteRecords"
            )
        return data

    async def read(self, offset: int, *, size_bytes_max: int, limit_offset: int) -> tuple[bytes, int]:
        """Return whole batches from the one with `offset` on, at least one, and the offset behind them."""
        known = self.known
        at = known.find(offset)
        if at is None:
            raise DiskFailed(f"{self._partition!r}: no object and no segment in the store has offset {offset}")
        chosen: list[WalRange] = []
        size = 0
        for each in known.ranges[at : at + RANGES_AT_A_TIME]:
            if chosen and (size >= size_bytes_max or each.base_offset >= limit_offset):
                break
            chosen.append(each)
            size += each.size_bytes
        found = await together(self._partition.runtime, [self.load(each) for each in chosen])
        parts: list[memoryview] = []
        left, next_offset = size_bytes_max, offset
        for data in found:
            if isinstance(data, BaseException):
                if not parts:
                    raise data
                break
            part, next_offset, is_whole = _cut(data, next_offset, limit_offset, left, at_least_one=not parts)
            parts.append(part)
            left -= len(part)
            if not is_whole:
                break
        return b"".join(parts), next_offset

    def collect_aborted(self, start_offset: int, end_offset: int, found: list[tuple[int, int]]) -> None:
        """Add transactions that were aborted and overlap a range of offsets."""
        overlapping = [each for each in self.aborted_from(start_offset) if each.first_offset < end_offset]
        found += [(each.producer_id, each.first_offset) for each in overlapping]

    def aborted_from(self, start_offset: int) -> list[AbortedTransaction]:
        """Return the transactions whose markers are here, at an offset or behind it."""
        return [each for known in self.known.ranges for each in known.aborted if each.last_offset >= start_offset]

    def aborted_before(self, end_offset: int) -> list[AbortedTransaction]:
        """Return the transactions that were aborted here and began before an offset."""
        return [aborted for each in self.known.ranges for aborted in each.aborted if aborted.first_offset < end_offset]

    async def find_time(self, timestamp_ms: int, start_offset: int, end_offset: int) -> FoundTime | None:
        """Return the first record between two offsets that is not older than a time."""
        for each in list(self.known.ranges):
            if each.end_offset <= start_offset or each.max_timestamp_ms < timestamp_ms:
                continue
            if each.base_offset >= end_offset:
                break
            for record in records_of(await self.load(each)):
                if record.timestamp_ms >= timestamp_ms and start_offset <= record.offset < end_offset:
                    epoch = self._partition.log.leader_epochs.epoch_of(record.offset)
                    return FoundTime(record.offset, record.timestamp_ms, epoch)
        return None


def _cut(
    data: memoryview, offset: int, limit_offset: int, size_bytes_max: int, *, at_least_one: bool
) -> tuple[memoryview, int, bool]:
    """Return the batches from the one with `offset` on, the offset behind them, and whether they go on to the end."""
    at = first = end = 0
    next_offset, is_any = offset, False
    unpack = HEADER.unpack_from
    while len(data) - at >= HEADER_SIZE:
        header = BatchHeader._make(unpack(data, at))
        following = at + header.size_bytes
        if header.last_offset < offset:
            first = end = at = following
            continue
        is_too_much = following - first > size_bytes_max and (is_any or not at_least_one)
        if header.base_offset >= limit_offset or is_too_much:
            return data[first:end], next_offset, False
        end = at = following
        next_offset, is_any = header.last_offset + 1, True
    return data[first:end], next_offset, True
