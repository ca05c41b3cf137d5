"""Share partitions as records of `__share_group_state`, in Kafka's format.

A ShareSnapshot is the whole state of a share partition. Each ShareUpdate behind it has only what one write brought. A
snapshot without a value takes the share partition away.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from strandline.codec.internal_records import (
    SHARE_GROUP_STATE,
    decode_coordinator_record,
    encode_coordinator_key,
    encode_coordinator_value,
)
from strandline.codec.messages.share_snapshot_key import ShareSnapshotKey
from strandline.codec.messages.share_snapshot_value import ShareSnapshotValue
from strandline.codec.messages.share_snapshot_value import StateBatch as SnapshotBatch
from strandline.codec.messages.share_update_key import ShareUpdateKey
from strandline.codec.messages.share_update_value import ShareUpdateValue
from strandline.codec.messages.share_update_value import StateBatch as UpdateBatch
from strandline.coordinators.groups.shard_terms import CoordinatorRecord
from strandline.coordinators.shares.share_state import SharePartitionKey, StateBatch
from strandline.errors import MalformedMessage


class ShareSnapshot(NamedTuple):
    """The whole state of a share partition at one moment."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    created_ms: int
    written_ms: int
    """Later than `created_ms` if nothing but time has passed since the snapshot before."""
    batches: tuple[StateBatch, ...] = ()


class ShareUpdate(NamedTuple):
    """What one write changes; a leader epoch or start offset of -1 leaves it as it is."""

    snapshot_epoch: int
    """The snapshot that it belongs to."""
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...] = ()


def snapshot_record(key: SharePartitionKey, snapshot: ShareSnapshot) -> CoordinatorRecord:
    value = ShareSnapshotValue(
        snapshot_epoch=snapshot.snapshot_epoch,
        state_epoch=snapshot.state_epoch,
        leader_epoch=snapshot.leader_epoch,
        start_offset=snapshot.start_offset,
        delivery_complete_count=snapshot.delivery_complete_count,
        create_timestamp=snapshot.created_ms,
        write_timestamp=snapshot.written_ms,
        state_batches=[SnapshotBatch(*batch) for batch in snapshot.batches],
    )
    return CoordinatorRecord(encode_coordinator_key(ShareSnapshotKey(*key)), encode_coordinator_value(value))


def update_record(key: SharePartitionKey, update: ShareUpdate) -> CoordinatorRecord:
    value = ShareUpdateValue(
        snapshot_epoch=update.snapshot_epoch,
        leader_epoch=update.leader_epoch,
        start_offset=update.start_offset,
        delivery_complete_count=update.delivery_complete_count,
        state_batches=[UpdateBatch(*batch) for batch in update.batches],
    )
    return CoordinatorRecord(encode_coordinator_key(ShareUpdateKey(*key)), encode_coordinator_value(value))


def share_tombstone(key: SharePartitionKey) -> CoordinatorRecord:
    return CoordinatorRecord(encode_coordinator_key(ShareSnapshotKey(*key)), None)


def decode_share_record(
    key: bytes, value: bytes | None
) -> tuple[SharePartitionKey, ShareSnapshot | ShareUpdate | None]:
    """Return the share partition and what the record says of it; None deletes it.

    Raises UnknownRecord for a record of a newer broker, MalformedMessage for a malformed one.
    """
    key_message, value_message = decode_coordinator_record(key, value, topic=SHARE_GROUP_STATE)
    assert isinstance(key_message, ShareSnapshotKey | ShareUpdateKey)
    name = SharePartitionKey(key_message.group_id, key_message.topic_id, key_message.partition)
    if value_message is None:
        return name, None
    if isinstance(value_message, ShareSnapshotValue):
        return name, _snapshot(value_message)
    assert isinstance(value_message, ShareUpdateValue)
    return name, ShareUpdate(
        value_message.snapshot_epoch,
        value_message.leader_epoch,
        value_message.start_offset,
        value_message.delivery_complete_count,
        _batches(value_message.state_batches),
    )


def _snapshot(value: ShareSnapshotValue) -> ShareSnapshot:
    return ShareSnapshot(
        value.snapshot_epoch,
        value.state_epoch,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        value.create_timestamp,
        value.write_timestamp,
        _batches(value.state_batches),
    )


def _batches(batches: Iterable[SnapshotBatch | UpdateBatch]) -> tuple[StateBatch, ...]:
    found = tuple(
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in batches
    )
    if any(batch.first_offset > batch.last_offset for batch in found):
        raise MalformedMessage("a batch of a share partition that ends before it begins")
    return found
