"""The records of `__strandline_object_commits`: who leads, what is committed, what may be forgotten.

    value: | kind uint8 | version uint8 = 1 | body |      no key

A body has the fields of its event, in their order. Numbers have a fixed size (`>` in `struct`), lists begin with their
length (uint32). A record of another kind or version is passed over: its writer is newer.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple
from uuid import UUID

from strandline.errors import MalformedMessage

COMMIT_TOPIC: Final = "__strandline_object_commits"
VERSION: Final = 1
RECORD_BYTES_MAX: Final = 32 << 20

Key = tuple[UUID, int]
"""Topic id and partition."""


class ObjectId(NamedTuple):
    """The name of an object. A process of a broker numbers its objects, and commits them in this order."""

    broker_id: int
    broker_epoch: int
    number: int

    def __str__(self) -> str:
        return f"{self.broker_id}-{self.broker_epoch}-{self.number}"


class ProducerNote(NamedTuple):
    """A batch of a producer, or a marker, in a range: what a new leader must know of it."""

    kind: int
    """`BATCH`, `TRANSACTIONAL`, or one of the markers `ABORTED` and `COMMITTED`."""
    producer_id: int
    epoch: int
    sequence: int
    """Of the first record; of a marker the coordinator's epoch."""
    last_offset: int
    offset_delta: int
    timestamp_ms: int


BATCH: Final = 0
TRANSACTIONAL: Final = 1
ABORTED: Final = 2
COMMITTED: Final = 3


class RangeCommit(NamedTuple):
    """The batches of one partition in an object. They adjoin."""

    topic_id: UUID
    partition: int
    leader_epoch: int
    base_offset: int
    end_offset: int
    """The first offset behind the range."""
    position: int
    """Where it begins in the object."""
    size_bytes: int
    crc: int
    """CRC-32C of its bytes."""
    max_timestamp_ms: int
    notes: tuple[ProducerNote, ...] = ()

    @property
    def key(self) -> Key:
        return self.topic_id, self.partition


class LeadersClaimed(NamedTuple):
    """A broker leads partitions, each in a leader epoch. Commits of former leaders that come later are rejected."""

    broker_id: int
    broker_epoch: int
    partitions: tuple[tuple[UUID, int, int], ...]
    """(topic id, partition, leader epoch)."""


class ObjectCommitted(NamedTuple):
    """An object is whole in the store, and these ranges of it are now the ends of their partitions."""

    object_id: ObjectId
    size_bytes: int
    appended_ms: int
    """When its batches were appended, by the clock of the leader."""
    ranges: tuple[RangeCommit, ...]


class OffsetsMoved(NamedTuple):
    """A leader says of partitions up to which offset something is no longer needed."""

    kind: int
    """`STARTS` of the logs, or `RELEASED` ranges, whose records are in segments."""
    partitions: tuple[tuple[UUID, int, int, int], ...]
    """(topic id, partition, leader epoch, offset)."""


STARTS: Final = 0
RELEASED: Final = 1


class TopicsRemoved(NamedTuple):
    topic_ids: tuple[UUID, ...]


class ObjectsCondemned(NamedTuple):
    """No commit may name these objects, nor older ones of the same processes, any more. Then they are deleted."""

    object_ids: tuple[ObjectId, ...]


class ObjectsDeleted(NamedTuple):
    """These objects are no longer in the store."""

    object_ids: tuple[ObjectId, ...]


class PartitionsRestored(NamedTuple):
    """Partitions of a lost cluster go on here where a checkpoint of its commit log ends."""

    log_id: UUID
    """The topic id of the lost commit log."""
    owner: str
    """The cluster whose objects these are; empty if this cluster goes on in its place."""
    broker_epoch_base: int
    """Added to the epochs of this cluster's processes from here on, so that they are above those of the lost one."""
    is_complete: bool
    """Whether the partitions of all topics are restored, so that objects without a commit are orphans."""
    offset: int
    """The offset of the checkpoint."""
    checkpoint: bytes
    """Some of its partitions, with their objects, as a checkpoint of their own."""


CommitEvent = (
    LeadersClaimed
    | ObjectCommitted
    | OffsetsMoved
    | TopicsRemoved
    | ObjectsCondemned
    | ObjectsDeleted
    | PartitionsRestored
)

_COUNT: Final = struct.Struct(">I")
_CLAIM_HEAD: Final = struct.Struct(">iq")
_CLAIM: Final = struct.Struct(">16sii")
_ID: Final = struct.Struct(">iqq")
_COMMIT_HEAD: Final = struct.Struct(">iqqQq")
_RANGE: Final = struct.Struct(">16siiqqQQIqI")
_NOTE: Final = struct.Struct(">BqhiIIq")
_MOVED_HEAD: Final = struct.Struct(">B")
_MOVED: Final = struct.Struct(">16siiq")
_TOPIC: Final = struct.Struct(">16s")
_RESTORED: Final = struct.Struct(">16sqBqI")


def commit_topic_settings(replication_factor: int) -> dict[str, str]:
    """Return the settings with which the topic is created."""
    return {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "min.insync.replicas": str(min(replication_factor, 2)),
        "unclean.leader.election.enable": "false",
        "max.message.bytes": str(RECORD_BYTES_MAX),
    }


def encode_event(event: CommitEvent) -> bytes:
    """Return the value of the record of an event."""
    kind = _KINDS[type(event)]
    out = bytearray((kind, VERSION))
    _ENCODERS[kind](out, event)
    return bytes(out)


def decode_event(value: bytes) -> CommitEvent | None:
    """Return the event of a record; None if it is of a newer writer. Raises MalformedMessage for damage."""
    if len(value) < 2:
        raise MalformedMessage(f"a record of {len(value)} bytes")
    decode = _DECODERS.get(value[0])
    if decode is None or value[1] != VERSION:
        return None
    reader = _Reader(value, 2)
    try:
        event = decode(reader)
    except struct.error as error:
        raise MalformedMessage(f"a record of kind {value[0]} ends early: {error}") from error
    if reader.at != len(value):
        raise MalformedMessage(f"a record of kind {value[0]} has {len(value) - reader.at} bytes too many")
    return event


class _Reader:
    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def one(self, layout: struct.Struct) -> tuple[int, ...]:
        found = layout.unpack_from(self.data, self.at)
        self.at += layout.size
        return found

    def many(self, layout: struct.Struct) -> list[tuple[int, ...]]:
        (count,) = self.one(_COUNT)
        end = self.at + count * layout.size
        if end > len(self.data):
            raise MalformedMessage(f"a list of {count} entries in {len(self.data) - self.at} bytes")
        found = list(layout.iter_unpack(self.data[self.at : end]))
        self.at = end
        return found


def _many(out: bytearray, layout: struct.Struct, rows: Iterable[tuple[object, ...]]) -> None:
    packed = [layout.pack(*row) for row in rows]
    out += _COUNT.pack(len(packed)) + b"".join(packed)


def _encode_claim(out: bytearray, event: LeadersClaimed) -> None:
    out += _CLAIM_HEAD.pack(event.broker_id, event.broker_epoch)
    _many(out, _CLAIM, ((topic_id.bytes, *rest) for topic_id, *rest in event.partitions))


def _decode_claim(reader: _Reader) -> LeadersClaimed:
    broker_id, broker_epoch = reader.one(_CLAIM_HEAD)
    claims = ((_uuid(topic_id), partition, epoch) for topic_id, partition, epoch in reader.many(_CLAIM))
    return LeadersClaimed(broker_id, broker_epoch, tuple(claims))


def _encode_commit(out: bytearray, event: ObjectCommitted) -> None:
    out += _COMMIT_HEAD.pack(*event.object_id, event.size_bytes, event.appended_ms)
    out += _COUNT.pack(len(event.ranges))
    for each in event.ranges:
        end = each.end_offset
        out += _RANGE.pack(each.topic_id.bytes, *each[1:9], len(each.notes))
        for note in each.notes:
            # Before the end: offsets of a range are close to each other.
            out += _NOTE.pack(*note[:4], end - note.last_offset, *note[5:])


def _decode_commit(reader: _Reader) -> ObjectCommitted:
    broker_id, broker_epoch, number, size_bytes, appended_ms = reader.one(_COMMIT_HEAD)
    (count,) = reader.one(_COUNT)
    ranges: list[RangeCommit] = []
    for _ in range(count):
        topic_id, *rest, notes = reader.one(_RANGE)
        end = rest[3]
        found = []
        for _ in range(notes):
            kind, producer_id, epoch, sequence, before, delta, timestamp_ms = reader.one(_NOTE)
            found.append(ProducerNote(kind, producer_id, epoch, sequence, end - before, delta, timestamp_ms))
        ranges.append(RangeCommit._make((_uuid(topic_id), *rest, tuple(found))))
    return ObjectCommitted(ObjectId(broker_id, broker_epoch, number), size_bytes, appended_ms, tuple(ranges))


def _encode_moved(out: bytearray, event: OffsetsMoved) -> None:
    out += _MOVED_HEAD.pack(event.kind)
    _many(out, _MOVED, ((topic_id.bytes, *rest) for topic_id, *rest in event.partitions))


def _decode_moved(reader: _Reader) -> OffsetsMoved:
    (kind,) = reader.one(_MOVED_HEAD)
    moved = ((_uuid(topic_id), partition, epoch, offset) for topic_id, partition, epoch, offset in reader.many(_MOVED))
    return OffsetsMoved(kind, tuple(moved))


def _encode_topics(out: bytearray, event: TopicsRemoved) -> None:
    _many(out, _TOPIC, ((topic_id.bytes,) for topic_id in event.topic_ids))


def _decode_topics(reader: _Reader) -> TopicsRemoved:
    return TopicsRemoved(tuple(_uuid(each[0]) for each in reader.many(_TOPIC)))


def _encode_ids(out: bytearray, event: ObjectsCondemned | ObjectsDeleted) -> None:
    _many(out, _ID, event.object_ids)


def _ids(reader: _Reader) -> tuple[ObjectId, ...]:
    return tuple(ObjectId(*each) for each in reader.many(_ID))


def _encode_restored(out: bytearray, event: PartitionsRestored) -> None:
    owner = event.owner.encode()
    out += _RESTORED.pack(event.log_id.bytes, event.broker_epoch_base, event.is_complete, event.offset, len(owner))
    out += owner + event.checkpoint


def _decode_restored(reader: _Reader) -> PartitionsRestored:
    log_id, base, is_complete, offset, length = reader.one(_RESTORED)
    owner = bytes(reader.data[reader.at : reader.at + length])
    checkpoint = bytes(reader.data[reader.at + length :])
    reader.at = len(reader.data)
    try:
        return PartitionsRestored(_uuid(log_id), owner.decode(), base, bool(is_complete), offset, checkpoint)
    except UnicodeDecodeError as error:
        raise MalformedMessage(f"a restored cluster with the id {owner[:50]!r}") from error


def _uuid(raw: object) -> UUID:
    assert isinstance(raw, bytes)
    return UUID(bytes=raw)


_KINDS: Final = {
    LeadersClaimed: 1,
    ObjectCommitted: 2,
    OffsetsMoved: 3,
    TopicsRemoved: 4,
    ObjectsCondemned: 5,
    ObjectsDeleted: 6,
    PartitionsRestored: 7,
}
_ENCODERS: Final[dict[int, Callable[..., None]]] = {
    1: _encode_claim,
    2: _encode_commit,
    3: _encode_moved,
    4: _encode_topics,
    5: _encode_ids,
    6: _encode_ids,
    7: _encode_restored,
}
_DECODERS: Final[dict[int, Callable[[_Reader], CommitEvent]]] = {
    1: _decode_claim,
    2: _decode_commit,
    3: _decode_moved,
    4: _decode_topics,
    5: lambda reader: ObjectsCondemned(_ids(reader)),
    6: lambda reader: ObjectsDeleted(_ids(reader)),
    7: _decode_restored,
}
