"""One object in the making: which batches go into it, and what its commit says of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from strandline.broker.tiering.objects.partition_flush import PartitionFlush
from strandline.codec.checksum import crc32c
from strandline.codec.record_batch import CONTROL, HEADER, HEADER_SIZE, PREFIX_SIZE, BatchHeader
from strandline.codec.transaction_marker import parse_marker
from strandline.errors import CorruptLog
from strandline.log.disk import RealFile
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
    at: int
    """Where its bytes begin in the buffer of the object."""

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


async def read_pieces(runtime: Runtime, pieces: Sequence[LogSlice]) -> tuple[bytearray, list[slice]]:
    """Read slices in a thread, and release them.

    Return them in one buffer, behind room for the head of their object, and where each lies. The object is built in
    this buffer, because a copy of so many bytes costs more than their checksum.
    """
    try:
        return await in_thread(runtime, partial(_read_pieces, pieces))
    finally:
        for each in pieces:
            each.release()


def _read_pieces(pieces: Sequence[LogSlice]) -> tuple[bytearray, list[slice]]:
    begin, places = head_size(len(pieces)), []
    buffer = bytearray(begin + sum(each.size_bytes for each in pieces))
    view = memoryview(buffer)
    for each in pieces:
        places.append(slice(begin, begin + _read_into(view[begin : begin + each.size_bytes], each)))
        begin += each.size_bytes
    return buffer, places


def _read_into(view: memoryview, piece: LogSlice) -> int:
    """Read a slice into a buffer of its size, without a copy where the file allows that. Return how much there was."""
    file = piece.segment.file()
    if type(file) is not RealFile:
        data = piece.read()
        view[: len(data)] = data
        return len(data)
    done = 0
    while done < piece.size_bytes and (got := os.preadv(file.fileno(), [view[done:]], piece.position + done)):
        done += got
    return done


async def describe(
    runtime: Runtime, partition: Partition, start_offset: int, data: memoryview
) -> tuple[RangeCommit, int]:
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
            notes.add(header, parse_marker(data[at : at + size]) if is_marker else None)
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


async def pack(runtime: Runtime, taken: Sequence[Taken], buffer: bytearray) -> tuple[memoryview, list[Taken]]:
    """Return the bytes of an object with these ranges of a buffer, and the ranges with position and checksum."""
    return await in_thread(runtime, partial(_pack, taken, buffer))


def _pack(taken: Sequence[Taken], buffer: bytearray) -> tuple[memoryview, list[Taken]]:
    view = memoryview(buffer)
    position, placed = head_size(len(taken)), []
    for each in taken:
        end = position + each.commit.size_bytes
        if each.at != position:
            # Something before it was left out. The bytes move towards the begin, over none that is still needed.
            view[position:end] = view[each.at : each.at + each.commit.size_bytes]
        commit = each.commit._replace(position=position, crc=crc32c(view[position:end]))
        placed.append(each._replace(commit=commit, at=position))
        position = end
    head = pack_head([each.commit for each in placed])
    view[: len(head)] = head
    return view[:position], placed
