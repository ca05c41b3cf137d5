"""The removal of unused offsets and groups: `offsets.retention.minutes`.

An offset may go when its topic is read by no member of the group, and the retention has passed since

    the group became empty         a classic group of members that have all gone
    the offset was committed       any other: a consumer without a group, a group that reads other topics now

An offset that was committed with an expiry of its own goes by that. Where an open transaction is about to move it, it
stays until that has ended. A group that is empty and holds no offset any more, not even a pending one, goes with a
tombstone. A round looks at every group of the shard, a part in each step, so that others are served in
between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import MutableMapping

from strandline.codec.messages.offset_commit_value import OffsetCommitValue
from strandline.coordinators.groups.admin import group_tombstones
from strandline.coordinators.groups.any_group import Group
from strandline.coordinators.groups.classic.classic_group import ClassicGroup, GroupState
from strandline.coordinators.groups.consumer.consumer_group import ConsumerGroup
from strandline.coordinators.groups.group_records import offset_tombstone
from strandline.coordinators.groups.shard_terms import CoordinatorRecord, TimerKey, TimerKind
from strandline.coordinators.groups.share.share_group import ShareGroup
from strandline.coordinators.groups.step_context import StepContext
from strandline.coordinators.groups.subscribed_topics import subscribed_topics, uses_consumer_protocol
from strandline.coordinators.offsets.offsets import CommittedOffsets

EXPIRY_KEY = TimerKey(TimerKind.EXPIRY, "")

OFFSETS_PER_STEP_MAX = 2_000
"""Offsets that are looked at in one step; a group counts as one more, and the last one may be larger."""

COMMITTED = -1
"""Stands for the time at which each offset was committed."""


class OffsetExpiry:
    """How far the present round has got."""

    def __init__(self) -> None:
        self._left: deque[str] = deque()

    def start(self, step: StepContext) -> None:
        step.start_timer(EXPIRY_KEY, step.config.offsets_retention_check_interval_ms)

    def on_timer(self, groups: MutableMapping[str, Group], offsets: CommittedOffsets, step: StepContext) -> None:
        if not self._left:
            self._left.extend(groups)
        records: list[CoordinatorRecord] = []
        looked_at = 0
        while self._left and looked_at < OFFSETS_PER_STEP_MAX:
            group = groups.get(self._left.popleft())
            if group is None or isinstance(group, ShareGroup):
                # A share group commits no offsets, and stays until it is deleted.
                continue
            looked_at += 1 + offsets.count(group.group_id)
            records += expired_offsets(group, offsets, step)
            if is_unused(group, offsets):
                records += group_tombstones(group)
                del groups[group.group_id]
        if records:
            step.append(*records)
        if self._left:
            step.start_timer(EXPIRY_KEY, 0)
        else:
            self.start(step)


def is_unused(group: ClassicGroup | ConsumerGroup, offsets: CommittedOffsets) -> bool:
    # A member id that was handed out counts, because its client is about to join.
    is_awaited = isinstance(group, ClassicGroup) and bool(group.pending_join)
    return group.state == GroupState.EMPTY and not is_awaited and not offsets.has_any_or_pending(group.group_id)


def expired_offsets(
    group: ClassicGroup | ConsumerGroup, offsets: CommittedOffsets, step: StepContext
) -> list[CoordinatorRecord]:
    """Forget the expired offsets of a group; their tombstones."""
    if not offsets.has_any(group.group_id) or (since_ms := retained_since(group)) is None:
        return []
    subscribed = subscribed_topics(group)
    doomed = [
        (topic, partition)
        for topic, partitions in offsets.of_group(group.group_id)
        if topic not in subscribed
        for partition, value in partitions.items()
        if is_expired(value, since_ms, step) and not offsets.pending.has(group.group_id, topic, partition)
    ]
    for topic, partition in doomed:
        offsets.discard(group.group_id, topic, partition)
    return [offset_tombstone(group.group_id, topic, partition) for topic, partition in doomed]


def retained_since(group: ClassicGroup | ConsumerGroup) -> int | None:
    """Return when the retention of the offsets began; None while all of them are in use."""
    if isinstance(group, ConsumerGroup) or group.protocol_type is None:
        return COMMITTED
    if group.state is GroupState.EMPTY:
        # Records of old Kafka brokers do not say when; then it is -1 and the commit counts.
        return max(group.state_timestamp_ms, COMMITTED)
    return COMMITTED if uses_consumer_protocol(group) and group.state is GroupState.STABLE else None


def is_expired(value: OffsetCommitValue, since_ms: int, step: StepContext) -> bool:
    if value.expire_timestamp != -1:
        return step.now_ms >= value.expire_timestamp
    began_ms = value.commit_timestamp if since_ms == COMMITTED else since_ms
    return step.now_ms - began_ms >= step.config.offsets_retention_ms
