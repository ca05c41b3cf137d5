"""All that the commit log says below an offset, as one object, so that older records may go.

    <cluster id>/commits/<topic id of the commit log>/<offset, 20 digits>

        magic "SLCP" | version uint16 = 2 | 0 uint16 | CRC-32C of all that follows uint32
        offset int64 | floors | objects | dead objects | number of partitions uint32, then each partition
        | base of broker epochs int64 | topic ids of restored logs | length of the owner's id uint32, then this

A list begins with its length (uint32). A partition is its fixed fields, its leader epochs, its ranges with the aborted
transactions of each, and its producers as the snapshot file of a log has them. Version 1 ends behind the partitions.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterable, Iterator
from typing import Any, Final
from uuid import UUID

from strandline.codec.checksum import crc32c
from strandline.codec.producer_snapshot import decode_snapshot
from strandline.errors import CorruptLog, MalformedMessage
from strandline.log.segment.transaction_index import AbortedTransaction
from strandline.tiers.wal.commit_fold import CommitFold, CommittedPartition, LiveObject, WalRange
from strandline.tiers.wal.events import CommitEvent, Key, ObjectId, PartitionsRestored
from strandline.tiers.wal.producer_notes import KnownProducers

MAGIC: Final = b"SLCP"
VERSION: Final = 2
_WITHOUT_ORIGIN: Final = 1
_HEAD: Final = struct.Struct(">4sHHI")
_OFFSET: Final = struct.Struct(">q")
_COUNT: Final = struct.Struct(">I")
_FLOOR: Final = struct.Struct(">iqq")
_OBJECT: Final = struct.Struct(">iqqQ")
_ID: Final = struct.Struct(">iqq")
_PARTITION: Final = struct.Struct(">16siqqiqq")
_EPOCH: Final = struct.Struct(">iq")
_RANGE: Final = struct.Struct(">qqiqqQQIqI")
_ABORTED: Final = struct.Struct(">qqqq")
_BASE: Final = struct.Struct(">q")
_LOG: Final = struct.Struct(">16s")


def commits_prefix(cluster_id: str) -> str:
    return f"{cluster_id}/commits"


def checkpoint_prefix(cluster_id: str, topic_id: UUID) -> str:
    return f"{commits_prefix(cluster_id)}/{topic_id}"


def checkpoint_key(cluster_id: str, topic_id: UUID, offset: int) -> str:
    return f"{checkpoint_prefix(cluster_id, topic_id)}/{offset:020}"


def encode_checkpoint(fold: CommitFold, offset: int) -> Generator[None, None, bytes]:
    """Return a checkpoint of what the log says below `offset`. Yields between partitions; the fold must not change."""
    parts = [
        _OFFSET.pack(offset),
        _many(_FLOOR, ((broker_id, *floor) for broker_id, floor in fold.floors.items())),
        _many(_OBJECT, ((*object_id, live.size_bytes) for object_id, live in fold.objects.items())),
        _many(_ID, fold.dead),
        _COUNT.pack(len(fold.partitions)),
    ]
    for key, known in fold.partitions.items():
        parts.append(_partition(key, known))
        yield
    owner = fold.owner.encode()
    parts += [
        _BASE.pack(fold.broker_epoch_base),
        _many(_LOG, ((each.bytes,) for each in sorted(fold.restored_logs, key=lambda each: each.int))),
        _COUNT.pack(len(owner)) + owner,
    ]
    body = b"".join(parts)
    return _HEAD.pack(MAGIC, VERSION, 0, crc32c(body)) + body


def _many(layout: struct.Struct, rows: Iterable[tuple[Any, ...]]) -> bytes:
    packed = [layout.pack(*row) for row in rows]
    return _COUNT.pack(len(packed)) + b"".join(packed)


def _partition(key: Key, known: CommittedPartition) -> bytes:
    leader_epoch, broker_epoch = known.claim
    snapshot = known.producers.snapshot()
    parts = [
        _PARTITION.pack(
            key[0].bytes, key[1], leader_epoch, broker_epoch, known.broker_id, known.start_offset, known.end_offset
        ),
        _many(_EPOCH, zip(known.epochs.epochs, known.epochs.start_offsets, strict=True)),
        _COUNT.pack(len(known.ranges)),
    ]
    for each in known.ranges:
        parts.append(
            _RANGE.pack(
                each.base_offset,
                each.end_offset,
                *each.object_id,
                each.position,
                each.size_bytes,
                each.crc,
                each.max_timestamp_ms,
                len(each.aborted),
            )
        )
        parts += [_ABORTED.pack(*aborted) for aborted in each.aborted]
    return b"".join([*parts, _COUNT.pack(len(snapshot)), snapshot])


def decode_checkpoint(data: bytes, offset: int) -> Generator[None, None, CommitFold]:
    """Return what `encode_checkpoint` was given for this offset. Yields between partitions. Raises CorruptLog."""
    if len(data) < _HEAD.size:
        raise CorruptLog(f"a checkpoint of {len(data)} bytes")
    magic, version, zero, crc = _HEAD.unpack_from(data)
    is_known = magic == MAGIC and version in (_WITHOUT_ORIGIN, VERSION) and not zero
    if not is_known or crc32c(memoryview(data)[_HEAD.size :]) != crc:
        raise CorruptLog("a checkpoint of the commit log is not what was written")
    reader = _Reader(data, _HEAD.size)
    (found,) = reader.one(_OFFSET)
    if found != offset:
        raise CorruptLog(f"a checkpoint of offset {found} has the name of {offset}")
    fold = CommitFold()
    fold.floors = {broker_id: (epoch, number) for broker_id, epoch, number in reader.many(_FLOOR)}
    fold.objects = {ObjectId(*each[:3]): LiveObject(each[3]) for each in reader.many(_OBJECT)}
    fold.dead = {ObjectId(*each): None for each in reader.many(_ID)}
    (count,) = reader.one(_COUNT)
    for _ in range(count):
        key, known = _read_partition(reader)
        fold.partitions[key] = known
        for each in known.ranges:
            fold.objects[each.object_id].ranges += 1
        yield
    if version != _WITHOUT_ORIGIN:
        (fold.broker_epoch_base,) = reader.one(_BASE)
        fold.restored_logs = {UUID(bytes=each) for (each,) in reader.many(_LOG)}
        (length,) = reader.one(_COUNT)
        fold.owner = reader.bytes_of(length).decode()
    return fold


def read_checkpoint(data: bytes, offset: int) -> CommitFold:
    """Return what `decode_checkpoint` does, in one go. Raises CorruptLog."""
    steps = decode_checkpoint(data, offset)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            fold: CommitFold = end.value
            return fold


def write_checkpoint(fold: CommitFold, offset: int) -> bytes:
    """Return what `encode_checkpoint` does, in one go."""
    steps = encode_checkpoint(fold, offset)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            data: bytes = end.value
            return data


def apply_event(fold: CommitFold, event: CommitEvent) -> tuple[bool, ...]:
    """Apply the next record of the commit log, of any kind. Raises MalformedMessage for one that is passed over."""
    if isinstance(event, PartitionsRestored):
        _restore(fold, event)
        return ()
    return fold.apply(event)


def _restore(fold: CommitFold, event: PartitionsRestored) -> None:
    """Take the partitions of a lost cluster. One that is known has gone on since, or was restored before."""
    try:
        found = read_checkpoint(event.checkpoint, event.offset)
    except CorruptLog as error:
        raise MalformedMessage(f"restored partitions that cannot be read: {error}") from error
    fold.owner = event.owner
    fold.broker_epoch_base = max(fold.broker_epoch_base, event.broker_epoch_base)
    if event.is_complete:
        fold.restored_logs.add(event.log_id)
    for broker_id, floor in found.floors.items():
        fold.floors[broker_id] = max(fold.floors.get(broker_id, floor), floor)
    for key, known in found.partitions.items():
        if key in fold.partitions:
            continue
        fold.partitions[key] = known
        for each in known.ranges:
            live = fold.objects.setdefault(each.object_id, LiveObject(found.objects[each.object_id].size_bytes))
            live.ranges += 1
    for object_id in found.dead:
        if object_id not in fold.objects:
            fold.dead[object_id] = None


class _Reader:
    """The rest of a checkpoint, whose checksum was right."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def one(self, layout: struct.Struct) -> tuple[Any, ...]:
        found = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return found

    def many(self, layout: struct.Struct) -> Iterator[tuple[Any, ...]]:
        (count,) = self.one(_COUNT)
        return iter([self.one(layout) for _ in range(count)])

    def bytes_of(self, length: int) -> bytes:
        self._at += length
        return self._data[self._at - length : self._at]


def _read_partition(reader: _Reader) -> tuple[Key, CommittedPartition]:
    topic_id, partition, leader_epoch, broker_epoch, broker_id, start_offset, end_offset = reader.one(_PARTITION)
    known = CommittedPartition()
    known.claim, known.broker_id = (leader_epoch, broker_epoch), broker_id
    known.start_offset, known.end_offset = start_offset, end_offset
    for epoch, begins in reader.many(_EPOCH):
        known.epochs.note(epoch, begins)
    (count,) = reader.one(_COUNT)
    for _ in range(count):
        base, end, broker, epoch, number, position, size, crc, newest_ms, aborted = reader.one(_RANGE)
        transactions = tuple([AbortedTransaction(*reader.one(_ABORTED)) for _ in range(aborted)])
        object_id = ObjectId(broker, epoch, number)
        known.ranges.append(WalRange(base, end, object_id, position, size, crc, newest_ms, transactions))
        known.bases.append(base)
    (length,) = reader.one(_COUNT)
    known.producers = KnownProducers.of_entries(decode_snapshot(reader.bytes_of(length)))
    return (UUID(bytes=topic_id), partition), known
