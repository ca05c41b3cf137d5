"""The records of `__remote_log_metadata`, in Kafka's format, and the partition of a record.

    value: | record id uvarint | version uvarint = 0 | body |      no key

A record that cannot be decoded is passed over: its writer may be newer.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

from strandline.codec.message import Message
from strandline.codec.message_codec import decode_exact, encode_into
from strandline.codec.messages import remote_log_segment_metadata_record as metadata
from strandline.codec.messages import remote_log_segment_metadata_update_record as update
from strandline.codec.messages import remote_partition_delete_metadata_record as deletion
from strandline.codec.primitives import read_uvarint, write_uvarint
from strandline.errors import MalformedMessage
from strandline.tiers.segment_states import PartitionDeleteState, SegmentState

METADATA_TOPIC: Final = "__remote_log_metadata"
_VERSION: Final = 0
_INT_MASK: Final = 0xFFFFFFFF
_SOURCE: Final = struct.Struct(">B16si")
_SOURCE_VERSION: Final = 1
_COMPACTION: Final = struct.Struct(">BBqi")
_COMPACTION_VERSION: Final = 2
_UNFINISHED_VERSION: Final = 3
_PASSED: Final = 1
_ID_BYTES: Final = 16
_RESTORED_VERSION: Final = 4
_CLUSTER_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class TieredPartition(NamedTuple):
    """A partition of a tiered topic. The id tells topics apart that had the same name."""

    topic_id: UUID
    partition: int
    topic: str = ""

    def __str__(self) -> str:
        return f"{self.topic or self.topic_id}-{self.partition}"

    @property
    def key(self) -> tuple[UUID, int]:
        return self.topic_id, self.partition


class SharedObjects(NamedTuple):
    """The partition under whose name the objects of a shared segment were written: of another topic, or cluster.

    It is the custom metadata of a record:  version uint8 | topic id 16 bytes | partition int32 | cluster id UTF-8.
    Version 1 is of a clone, which shares what another partition has. Version 4 is of a restored topic.
    """

    cluster_id: str
    topic_id: UUID
    partition: int
    is_restored: bool = False
    """Whether the objects are known to be there although no other partition is known to have them."""

    @property
    def key(self) -> tuple[UUID, int]:
        return self.topic_id, self.partition

    def encode(self) -> bytes:
        version = _RESTORED_VERSION if self.is_restored else _SOURCE_VERSION
        return _SOURCE.pack(version, self.topic_id.bytes, self.partition) + self.cluster_id.encode()

    @staticmethod
    def decode(data: bytes) -> SharedObjects:
        """Raise MalformedMessage for what was not written by `encode`."""
        cluster_id = data[_SOURCE.size :].decode("ascii", "replace")
        is_known = len(data) >= _SOURCE.size and data[0] in (_SOURCE_VERSION, _RESTORED_VERSION)
        if not is_known or _CLUSTER_ID.fullmatch(cluster_id) is None:
            raise MalformedMessage(f"custom metadata of {len(data)} bytes that names no objects")
        version, topic_id, partition = _SOURCE.unpack_from(data)
        return SharedObjects(cluster_id, UUID(bytes=topic_id), partition, is_restored=version == _RESTORED_VERSION)


class Compaction(NamedTuple):
    """What a compaction knows of the keys of a segment.

    It is the custom metadata of a record:
        version uint8 = 2 | flags uint8 | clean offset int64 | leader epoch int32 | ids of 16 bytes that are replaced
    """

    clean_up_to: int
    """No record of the segment has a newer one with its key below this offset."""
    epoch: int
    """The leader epoch of the record before that offset. A log without that epoch there proves nothing."""
    is_passed: bool = False
    """Whether a compaction of the store has read the segment. Delete horizons count only in such segments."""
    replaces: tuple[UUID, ...] = ()
    """Segments that are not read any more once this one is whole."""

    def encode(self) -> bytes:
        head = _COMPACTION.pack(_COMPACTION_VERSION, _PASSED * self.is_passed, self.clean_up_to, self.epoch)
        return head + b"".join(each.bytes for each in self.replaces)

    @staticmethod
    def decode(data: bytes) -> Compaction:
        """Raise MalformedMessage for what was not written by `encode`."""
        count, rest = divmod(len(data) - _COMPACTION.size, _ID_BYTES)
        if count < 0 or rest:
            raise MalformedMessage(f"custom metadata of {len(data)} bytes that describes no compaction")
        _, flags, clean_up_to, epoch = _COMPACTION.unpack_from(data)
        starts = range(_COMPACTION.size, len(data), _ID_BYTES)
        ids = tuple(UUID(bytes=data[start : start + _ID_BYTES]) for start in starts)
        return Compaction(clean_up_to, epoch, bool(flags & _PASSED), ids)


class RemoteSegment(NamedTuple):
    """A segment in the store, as the records describe it."""

    id: UUID
    start_offset: int
    end_offset: int
    """The last offset, inclusive."""
    epochs: tuple[tuple[int, int], ...]
    """(leader epoch, its first offset in the segment), oldest first."""
    max_timestamp_ms: int
    size_bytes: int
    broker_id: int
    event_ms: int
    state: SegmentState
    is_txn_index_empty: bool = False
    source: SharedObjects | None = None
    """Whose objects it shares. None if they are named by its own partition. The ids are those of the objects."""
    compaction: Compaction | None = None
    """What is known of its keys; None for a segment that was never cleaned, or that shares objects."""
    is_replaced: bool = False
    """Whether a compacted segment has its records. Its objects stay for readers that began to read it."""


class SegmentAdded(NamedTuple):
    partition: TieredPartition
    segment: RemoteSegment


class SegmentChanged(NamedTuple):
    partition: TieredPartition
    segment_id: UUID
    state: SegmentState
    broker_id: int
    event_ms: int
    compaction: Compaction | None = None
    """News of its keys, with COPY_FINISHED of a segment that is whole already."""
    only_unfinished: bool = False
    """With DELETE_STARTED: the record counts only if the copy is not finished. Its writer may be late."""


class PartitionDeleted(NamedTuple):
    partition: TieredPartition
    state: PartitionDeleteState
    broker_id: int
    event_ms: int


MetadataEvent = SegmentAdded | SegmentChanged | PartitionDeleted


def encode_event(event: MetadataEvent) -> bytes:
    """Return the value of the record of an event."""
    message = _message_of(event)
    out = bytearray()
    write_uvarint(out, message.API_KEY)
    write_uvarint(out, _VERSION)
    encode_into(out, message, _VERSION)
    return bytes(out)


def _message_of(event: MetadataEvent) -> Message:
    partition = event.partition
    if isinstance(event, SegmentAdded):
        segment = event.segment
        return metadata.RemoteLogSegmentMetadataRecord(
            remote_log_segment_id=metadata.RemoteLogSegmentIdEntry(
                metadata.TopicIdPartitionEntry(partition.topic, partition.topic_id, partition.partition), segment.id
            ),
            start_offset=segment.start_offset,
            end_offset=segment.end_offset,
            broker_id=segment.broker_id,
            max_timestamp_ms=segment.max_timestamp_ms,
            event_timestamp_ms=segment.event_ms,
            segment_leader_epochs=[metadata.SegmentLeaderEpochEntry(*each) for each in segment.epochs],
            segment_size_in_bytes=segment.size_bytes,
            remote_log_segment_state=segment.state,
            custom_metadata=_custom(segment.source or segment.compaction),
            txn_index_empty=segment.is_txn_index_empty,
        )
    if isinstance(event, SegmentChanged):
        return update.RemoteLogSegmentMetadataUpdateRecord(
            remote_log_segment_id=update.RemoteLogSegmentIdEntry(
                update.TopicIdPartitionEntry(partition.topic, partition.topic_id, partition.partition), event.segment_id
            ),
            broker_id=event.broker_id,
            event_timestamp_ms=event.event_ms,
            custom_metadata=bytes([_UNFINISHED_VERSION]) if event.only_unfinished else _custom(event.compaction),
            remote_log_segment_state=event.state,
        )
    return deletion.RemotePartitionDeleteMetadataRecord(
        topic_id_partition=deletion.TopicIdPartitionEntry(partition.topic, partition.topic_id, partition.partition),
        broker_id=event.broker_id,
        event_timestamp_ms=event.event_ms,
        remote_partition_delete_state=event.state,
    )


def _custom(found: SharedObjects | Compaction | None) -> bytes | None:
    return None if found is None else found.encode()


def decode_event(value: bytes | memoryview) -> MetadataEvent | None:
    """Return the event of a record; None for a record of another kind. Raises MalformedMessage."""
    try:
        identifier, at = read_uvarint(value, 0)
        version, at = read_uvarint(value, at)
    except IndexError:
        raise MalformedMessage("a record of remote log metadata that ends in its frame") from None
    if version != _VERSION:
        return None
    try:
        if identifier == metadata.RemoteLogSegmentMetadataRecord.API_KEY:
            return _added(decode_exact(metadata.RemoteLogSegmentMetadataRecord, version, value, at))
        if identifier == update.RemoteLogSegmentMetadataUpdateRecord.API_KEY:
            changed = decode_exact(update.RemoteLogSegmentMetadataUpdateRecord, version, value, at)
            place = changed.remote_log_segment_id.topic_id_partition
            custom = changed.custom_metadata or b""
            return SegmentChanged(
                TieredPartition(place.id, place.partition, place.name),
                changed.remote_log_segment_id.id,
                SegmentState(changed.remote_log_segment_state),
                changed.broker_id,
                changed.event_timestamp_ms,
                Compaction.decode(custom) if custom[:1] == bytes([_COMPACTION_VERSION]) else None,
                only_unfinished=custom[:1] == bytes([_UNFINISHED_VERSION]),
            )
        if identifier == deletion.RemotePartitionDeleteMetadataRecord.API_KEY:
            deleted = decode_exact(deletion.RemotePartitionDeleteMetadataRecord, version, value, at)
            where = deleted.topic_id_partition
            return PartitionDeleted(
                TieredPartition(where.id, where.partition, where.name),
                PartitionDeleteState(deleted.remote_partition_delete_state),
                deleted.broker_id,
                deleted.event_timestamp_ms,
            )
    except ValueError as error:
        raise MalformedMessage(f"a record of remote log metadata with {error}") from error
    return None


def _added(message: metadata.RemoteLogSegmentMetadataRecord) -> SegmentAdded:
    place = message.remote_log_segment_id.topic_id_partition
    epochs = tuple((each.leader_epoch, each.offset) for each in message.segment_leader_epochs)
    if not epochs or list(epochs) != sorted(set(epochs)) or not 0 <= message.start_offset <= message.end_offset:
        raise MalformedMessage(
            f"a remote segment of epochs {epochs} with offsets {message.start_offset} to {message.end_offset}"
        )
    custom = message.custom_metadata or b""
    is_compaction = custom[:1] == bytes([_COMPACTION_VERSION])
    segment = RemoteSegment(
        message.remote_log_segment_id.id,
        message.start_offset,
        message.end_offset,
        epochs,
        message.max_timestamp_ms,
        message.segment_size_in_bytes,
        message.broker_id,
        message.event_timestamp_ms,
        SegmentState(message.remote_log_segment_state),
        message.txn_index_empty,
        SharedObjects.decode(custom) if custom and not is_compaction else None,
        Compaction.decode(custom) if is_compaction else None,
    )
    return SegmentAdded(TieredPartition(place.id, place.partition, place.name), segment)


def metadata_partition(partition: TieredPartition, partition_count: int) -> int:
    """Return the partition of `__remote_log_metadata` for a partition, by Kafka's hash of id and index."""
    number = (31 * _hash_of(partition.topic_id) + partition.partition) & _INT_MASK
    return (_murmur2(number.to_bytes(4, "big")) & 0x7FFFFFFF) % partition_count


def _hash_of(topic_id: UUID) -> int:
    """Return Java's Objects.hash(least significant bits, most significant bits, ...) so far."""
    most, least = topic_id.int >> 64, topic_id.int & (2**64 - 1)
    return (31 * (31 + ((least ^ least >> 32) & _INT_MASK)) + (most ^ most >> 32)) & _INT_MASK


def twin_of(topic_id: UUID, candidate: UUID) -> UUID:
    """Return an id like `candidate` whose partitions have their records where those of `topic_id` have theirs.

    So the order of one partition of `__remote_log_metadata` decides on objects that two topics share.
    """
    most = candidate.int >> 64
    low = most & _INT_MASK
    high = (((most >> 32 ^ low) + _hash_of(topic_id) - _hash_of(candidate)) & _INT_MASK) ^ low
    return UUID(int=(high << 32 | low) << 64 | candidate.int & (2**64 - 1))


def _murmur2(data: bytes) -> int:
    """Return Kafka's murmur2 of a multiple of four bytes."""
    multiplier, number = 0x5BD1E995, (0x9747B28C ^ len(data)) & _INT_MASK
    for at in range(0, len(data), 4):
        word = int.from_bytes(data[at : at + 4], "little") * multiplier & _INT_MASK
        word = (word ^ word >> 24) * multiplier & _INT_MASK
        number = (number * multiplier & _INT_MASK) ^ word
    number = (number ^ number >> 13) * multiplier & _INT_MASK
    return number ^ number >> 15


def total_bytes(segments: Iterable[RemoteSegment]) -> int:
    return sum(segment.size_bytes for segment in segments)
