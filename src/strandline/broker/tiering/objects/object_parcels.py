"""One object in the making: which batches go into it, and what its commit says of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from crc32c import crc32c

from strandline.broker.tiering.objects.partition_flush import PartitionFlush
from strandline.codec.record_batch import CONTROL, HEADER, HEADER_SIZE, PREFIX_SIZE, BatchHeader
from strandline.codec.transaction_marker import parse_marker
from strandline.errors import CorruptLog
from strandline.log.segment.log_slice import LogSlice
from strandline.partition.partition import Partition
from strandline.runtime.runtime import Runtime
from strandline.tiers.store.waiting import Signal, in_thread, pause
from strandline.tiers.wal.events import ObjectCommitted, ObjectId, RangeCommit
from strandline.tiers.wal.producer_notes import RangeNotes
from strandline.tiers.wal.wal_objects import head_size, pack_head

BATCHES_PER_TURN: Final = 500
"""Headers that are looked at in one turn of the loop."""


class Taken(NamedTuple):
    """A range of a partition that is on its way into the store."""

    flush: PartitionFlush
    term: int
    """The term of `flush` in which it was taken: it counts only while that goes on."""
    commit: RangeCommit
    data: memoryview

    @property
    def is_current(self) -> bool:
        return self.flush.term == self.term


class Parcel:
    """An object on its way into the store."""

    def __init__(self, runtime: Runtime, object_id: ObjectId, taken: Sequence[Taken], appended_ms: int) -> None:
        self.object_id = object_id
        self.taken = taken
        self.appended_ms = appended_ms
        self.size_bytes = head_size(len(taken)) + sum(each.commit.size_bytes for each in taken)
        self.uploaded: Signal[None] = Signal(runtime)

    def commit(self) -> tuple[ObjectCommitted, list[Taken]]:
        """Return its commit, without ranges of leaders that are so no longer, and what is in it."""
        taken = [each for each in self.taken if each.is_current]
        ranges = tuple([each.commit for each in taken])
        return ObjectCommitted(self.object_id, self.size_bytes, self.appended_ms, ranges), taken


async def read_pieces(runtime: Runtime, pieces: Iterable[LogSlice]) -> list[bytes]:
    """Read slices in a thread, and release them."""
    held = list(pieces)
    try:
        return await in_thread(runtime, lambda: [each.read() for each in held])
    finally:
        for each in held:
            each.release()


async def describe(runtime: Runtime, partition: Partition, start_offset: int, data: bytes) -> tuple[RangeCommit, int]:
    """Return the commit of the whole batches in `data`, and their size. Position and checksum are still wanting.

    Raises CorruptLog if these are not the batches from `start_offset` on.
    """
    notes, at, next_offset, newest_ms, count = RangeNotes(), 0, start_offset, -1, 0
    unpack = HEADER.unpack_from
    while len(data) - at >= HEADER_SIZE:
        header = BatchHeader._make(unpack(data, at))
        size = header.length + PREFIX_SIZE
        if size < HEADER_SIZE or header.base_offset != next_offset:
            raise CorruptLog(f"{partition!r}: no batch with offset {next_offset} where one was written")
        if len(data) - at < size:
            break
        if header.producer_id >= 0:
            is_marker = header.attributes & CONTROL
            notes.add(header, parse_marker(memoryview(data)[at : at + size]) if is_marker else None)
        newest_ms = max(newest_ms, header.max_timestamp)
        at, next_offset, count = at + size, header.last_offset + 1, count + 1
        if not count % BATCHES_PER_TURN:
            await pause(runtime, 0.0)
    commit = RangeCommit(
        partition.topic_id,
        partition.index,
        partition.leader_epoch,
        start_offset,
        next_offset,
        0,
        at,
        0,
        newest_ms,
        notes.all(),
    )
    return commit, at


async def pack(runtime: Runtime, taken: Sequence[Taken]) -> tuple[bytes, list[Taken]]:
    """Return the bytes of an object with these ranges, and the ranges with position and checksum."""
    return await in_thread(runtime, partial(_pack, taken))


def _pack(taken: Sequence[Taken]) -> tuple[bytes, list[Taken]]:
    position, placed = head_size(len(taken)), []
    for each in taken:
        commit = each.commit._replace(position=position, crc=crc32c(each.data))
        placed.append(each._replace(commit=commit))
        position += commit.size_bytes
    head = pack_head([each.commit for each in placed])
    return b"".join([head, *(each.data for each in taken)]), placed
