"""The records of `__remote_log_metadata`, in Kafka's format, and the partition of a record.

    value: | record id uvarint | version uvarint = 0 | body |      no key

A record that cannot be decoded is passed over: its writer may be newer.
"""

from __future__ import annotations

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


class SegmentAdded(NamedTuple):
    partition: TieredPartition
    segment: RemoteSegment


class SegmentChanged(NamedTuple):
    partition: TieredPartition
    segment_id: UUID
    state: SegmentState
    broker_id: int
    event_ms: int


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
            txn_index_empty=segment.is_txn_index_empty,
        )
    if isinstance(event, SegmentChanged):
        return update.RemoteLogSegmentMetadataUpdateRecord(
            remote_log_segment_id=update.RemoteLogSegmentIdEntry(
                update.TopicIdPartitionEntry(partition.topic, partition.topic_id, partition.partition), event.segment_id
            ),
            broker_id=event.broker_id,
            event_timestamp_ms=event.event_ms,
            remote_log_segment_state=event.state,
        )
    return deletion.RemotePartitionDeleteMetadataRecord(
        topic_id_partition=deletion.TopicIdPartitionEntry(partition.topic, partition.topic_id, partition.partition),
        broker_id=event.broker_id,
        event_timestamp_ms=event.event_ms,
        remote_partition_delete_state=event.state,
    )


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
            return SegmentChanged(
                TieredPartition(place.id, place.partition, place.name),
                changed.remote_log_segment_id.id,
                SegmentState(changed.remote_log_segment_state),
                changed.broker_id,
                changed.event_timestamp_ms,
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
    )
    return SegmentAdded(TieredPartition(place.id, place.partition, place.name), segment)


def metadata_partition(partition: TieredPartition, partition_count: int) -> int:
    """Return the partition of `__remote_log_metadata` for a partition, by Kafka's hash of id and index."""
    most, least = partition.topic_id.int >> 64, partition.topic_id.int & (2**64 - 1)
    # Java's Objects.hash(least significant bits, most significant bits, partition).
    number = 1
    for each in (least ^ least >> 32, most ^ most >> 32, partition.partition):
        number = (31 * number + each) & _INT_MASK
    return (_murmur2(number.to_bytes(4, "big")) & 0x7FFFFFFF) % partition_count


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
