"""Values that the share coordinator keeps for a share partition: a partition as one share group reads it (KIP-932)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

NO_START_OFFSET: Final = -1
"""Start offset of a share partition that has none yet; its leader finds one by `share.auto.offset.reset`."""

UNKNOWN_COUNT: Final = -1
"""Delivery-complete count that no leader has reported."""


class DeliveryState(IntEnum):
    """What happened to a record, as stored; a record that is acquired is never stored as such."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


class SharePartitionKey(NamedTuple):
    """The name of a share partition."""

    group_id: str
    topic_id: UUID
    partition: int


class StateBatch(NamedTuple):
    """A range of offsets, both ends included, whose records have the same state and delivery count."""

    first_offset: int
    last_offset: int
    state: int
    """A `DeliveryState`, as plain int."""
    delivery_count: int


class ShareState(NamedTuple):
    """The state of a share partition, as its leader loads it."""

    state_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]
    """In the order of offsets, without overlaps. Offsets between them were never delivered, or are available."""


class ShareSummary(NamedTuple):
    """The state of a share partition without its batches."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int = UNKNOWN_COUNT
    """Records above the start offset whose delivery is complete."""
