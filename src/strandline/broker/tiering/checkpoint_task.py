"""The task that writes down in the object store what this node has there.

It does so each `strandline.remote.checkpoint.interval.ms`, if anything has changed and it leads a tiered partition.
The two newest checkpoints stay. Their names hold the directory id, so that a new node with an old id removes none of
those of the lost one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from strandline.tiers.segment_states import SegmentState
from strandline.tiers.store.object_store import ObjectStore, StoreFailed
from strandline.tiers.tier_checkpoint import (
    PartitionCheckpoint,
    TierCheckpoint,
    TopicDefinition,
    checkpoint_key,
    checkpoint_prefix,
    encode_checkpoint,
)

if TYPE_CHECKING:
    import uuid

    from strandline.broker.environment import Environment
    from strandline.broker.tiering.partition_tier import PartitionTier
    from strandline.tiers.records import RemoteSegment

log = logging.getLogger("strandline.tiering")

KEPT: Final = 2
WRITE_S_MAX: Final = 120.0


class CheckpointTask:
    """The checkpoints of a node."""

    def __init__(
        self, environment: Environment, directory_id: uuid.UUID, tiers: Callable[[], Iterable[PartitionTier]]
    ) -> None:
        self._environment = environment
        self._runtime = environment.runtime
        self._prefix = f"{checkpoint_prefix(environment.cluster_id)}/{environment.node_id}-{directory_id}"
        self._tiers = tiers
        self._next_at = 0.0
        self._is_writing = False
        self._number: int | None = None
        """Of the last checkpoint; None until those of the process before were listed."""
        self._content = b""
        self._current_at: float | None = None
        """When the state was last that of the newest checkpoint."""
        self.message = ""
        """Why the last attempt failed; empty if it did not."""
        self.written = 0

    def age_s(self) -> float | None:
        """Return for how long the newest checkpoint may have been behind; None if nothing has to be written."""
        if self._current_at is None:
            return None
        return self._runtime.monotonic() - self._current_at

    def age_ms(self) -> int:
        """Return the same in milliseconds; -1 if nothing has to be written."""
        age_s = self.age_s()
        return -1 if age_s is None else int(age_s * 1000)

    def has_state_of(self, moment: float) -> bool:
        """Return whether the newest checkpoint says what there was at a moment, or later. If not, write one soon."""
        if self._current_at is not None and self._current_at >= moment:
            return True
        self._next_at = 0.0
        return False

    @property
    def interval_s(self) -> float:
        return self._environment.config().strandline_remote_checkpoint_interval_ms / 1000

    def is_due(self) -> bool:
        return not self._is_writing and self._runtime.monotonic() >= self._next_at

    async def write(self, store: ObjectStore) -> None:
        """Write a checkpoint if there is anything new. Its failure is kept in `message`, and tried again."""
        self._is_writing = True
        began = self._runtime.monotonic()
        self._next_at = began + self.interval_s
        try:
            found = self._state()
            if not found.partitions:
                self._current_at = None
                return
            if self._current_at is None:
                # The age counts from when there was something to lose.
                self._current_at = began
            content = found.content()
            if content != self._content:
                await self._put(store, found)
                self._content = content
            self._current_at, self.message = began, ""
        except StoreFailed as error:
            if str(error) != self.message:
                log.error("no checkpoint of tiered topics was written: %s", error)
            self.message = str(error)
        finally:
            self._is_writing = False

    def _state(self) -> TierCheckpoint:
        image, config = self._environment.image(), self._environment.config()
        topics = tuple(
            TopicDefinition(
                topic.name,
                topic.id,
                len(topic.partitions),
                max((len(each.replicas) for each in topic.partitions), default=1),
                dict(topic.config_overrides),
            )
            for topic in image.topics.values()
            if not topic.name.startswith("__")
        )
        return TierCheckpoint(
            self._environment.node_id,
            self._runtime.now_ms(),
            config.strandline_remote_checkpoint_interval_ms,
            image.applied_offset,
            topics,
            tuple(_state_of(tier) for tier in self._tiers() if tier.is_caught_up),
        )

    async def _put(self, store: ObjectStore, found: TierCheckpoint) -> None:
        if self._number is None:
            self._number = max([_number_of(each.key) async for each in store.list(self._prefix)], default=0)
        number = self._number + 1
        nonce = f"{self._runtime.random.getrandbits(128):032x}"
        body = encode_checkpoint(found, nonce)
        # Counted first: a name whose write is unsure is never used for other bytes.
        self._number = number
        await store.create(checkpoint_key(self._prefix, number), body, nonce=nonce, deadline_s=WRITE_S_MAX)
        self.written += 1
        old = [each.key async for each in store.list(self._prefix) if _number_of(each.key) <= number - KEPT]
        if old:
            await store.delete(old, deadline_s=WRITE_S_MAX)


def _state_of(tier: PartitionTier) -> PartitionCheckpoint:
    partition, epochs = tier.partition, tier.partition.log.leader_epochs
    return PartitionCheckpoint(
        tier.place,
        partition.leader_epoch,
        partition.log_start_offset,
        partition.high_watermark,
        tuple(zip(epochs.epochs, epochs.start_offsets, strict=True)),
        tuple(sorted(map(_as_kept, tier.segments.by_id.values()), key=lambda each: (each.start_offset, each.id.int))),
    )


def _as_kept(segment: RemoteSegment) -> RemoteSegment:
    """Return a segment as a restore needs it: what a compaction has replaced is only to be deleted."""
    return segment._replace(state=SegmentState.DELETE_STARTED) if segment.is_replaced else segment


def _number_of(key: str) -> int:
    name = key.rpartition("/")[2]
    return int(name) if name.isdecimal() else 0
