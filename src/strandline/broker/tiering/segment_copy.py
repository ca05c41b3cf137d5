"""Copying one sealed segment to the store: "started" is recorded, the objects are written, "finished" is recorded.

The segment gets a new random id with each attempt, so no object is ever replaced. If an attempt fails, its objects are
deleted. If the node dies, the record "started" names them, and a leader deletes them later.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from strandline.broker.tiering.metadata_topic import MetadataTopic
from strandline.codec.checksum import crc32c
from strandline.errors import NotLeader, StrandlineError
from strandline.log.disk import File
from strandline.log.maintenance.retention import newest_ms
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.file_names import (
    INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_stem,
)
from strandline.log.segment.segment import Segment
from strandline.log.segment.segment_times import read_newest_ms
from strandline.partition.partition import Partition
from strandline.runtime.fault_points import fault_point
from strandline.runtime.runtime import Runtime
from strandline.tiers.copying import CopyCandidate
from strandline.tiers.lineage import epochs_between
from strandline.tiers.objects import BLOCK_BYTES, ObjectPart, key_of, pack_checksums, pack_parts
from strandline.tiers.records import Compaction, RemoteSegment, SegmentAdded, SegmentChanged, TieredPartition
from strandline.tiers.segment_states import SegmentState
from strandline.tiers.store.object_store import ObjectStore
from strandline.tiers.store.waiting import Deadline, in_thread

log = logging.getLogger("strandline.tiering")

UPLOAD_S_MAX: Final = 600.0
"""Seconds for the upload of one segment, both objects together."""
DELETE_S_MAX: Final = 60.0


class SegmentReplaced(StrandlineError):
    """A segment changed while it was copied. Nothing is wrong; it is copied again."""


class LocalFacts(NamedTuple):
    """What a thread reads of a segment before it is uploaded."""

    path: Path
    size_bytes: int
    max_timestamp_ms: int
    index_object: bytes
    has_aborted: bool


class SegmentCopier:
    """The uploads of a node."""

    def __init__(
        self,
        runtime: Runtime,
        metadata: MetadataTopic,
        *,
        node_id: int,
        cluster_id: str,
        new_id: Callable[[], uuid.UUID],
    ) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._new_id = new_id
        self.upload_s_max = UPLOAD_S_MAX
        self.under_way: set[uuid.UUID] = set()
        self.copied_segments = self.copied_bytes = self.failures = 0

    async def copy(
        self,
        store: ObjectStore,
        place: TieredPartition,
        partition: Partition,
        candidate: CopyCandidate,
        source: PartitionLog | None = None,
    ) -> int:
        """Copy a segment, of the partition's log or of another one with the same records. Return its size.

        Raises StrandlineError or OSError; then nothing of it is left.
        """
        partition_log = source or partition.log
        segment = next(each for each in partition_log.segments if each.base_offset == candidate.base_offset)
        facts = await self._facts(partition_log, segment, candidate)
        epochs = epochs_between(partition.log.leader_epochs, candidate.base_offset, candidate.next_offset)
        if not epochs:
            raise SegmentReplaced(f"{place}: segment {candidate.base_offset} was deleted before it was copied")
        remote = RemoteSegment(
            self._new_id(),
            candidate.base_offset,
            candidate.next_offset - 1,
            epochs,
            facts.max_timestamp_ms,
            facts.size_bytes,
            self._node_id,
            self._runtime.now_ms(),
            SegmentState.COPY_STARTED,
            is_txn_index_empty=not facts.has_aborted,
            compaction=Compaction(candidate.next_offset, epoch_before(partition, candidate.next_offset))
            if partition.config.cleans_locally
            else None,
        )

        def check() -> None:
            if partition_log.swap is not None or segment not in partition_log.segments:
                # The cleaner may have put another file under the name that was uploaded.
                raise SegmentReplaced(f"{place}: segment {candidate.base_offset} was cleaned while it was copied")

        await self.publish(store, place, remote, facts, partition, check)
        self.copied_segments += 1
        self.copied_bytes += facts.size_bytes
        return facts.size_bytes

    def is_own(self, segment: RemoteSegment) -> bool:
        """Return whether this process copies it at the moment."""
        return segment.id in self.under_way

    async def publish(
        self,
        store: ObjectStore,
        place: TieredPartition,
        remote: RemoteSegment,
        facts: LocalFacts,
        partition: Partition,
        check: Callable[[], None],
    ) -> None:
        """Upload a segment and make it readable, in the place of those that it replaces.

        `check` raises if what was uploaded is not wanted any more. Raises StrandlineError or OSError; then nothing of
        the segment is left, and those that it was to replace are readable.
        """
        epoch = partition.leader_epoch
        self.under_way.add(remote.id)
        try:
            await self._metadata.append(SegmentAdded(place, remote))
            if not self._metadata.fold.knows(place.key, remote.id):
                raise NotLeader(f"{place}: its former segments are being deleted in the store; it is tried again")
            fault_at(remote, "tier-swap-begun")
            await self._upload(store, place, remote, facts)
            fault_at(remote, "tier-swap-uploaded")
            if not partition.is_leader or partition.leader_epoch != epoch or partition.log.failure is not None:
                raise NotLeader(f"{place} has another leader; its segment {remote.start_offset} is not copied")
            check()
            await self._metadata.append(self._change(place, remote, SegmentState.COPY_FINISHED))
            if not self._is_finished(place, remote):
                raise SegmentReplaced(
                    f"{place}: segments from {remote.start_offset} on were replaced or deleted by others"
                )
            fault_at(remote, "tier-swap-done")
        except Exception:
            self.failures += 1
            await self._give_up(store, place, remote)
            if self._is_finished(place, remote):
                # The record of its end was late, and there all the same.
                return
            raise
        finally:
            self.under_way.discard(remote.id)

    def _is_finished(self, place: TieredPartition, remote: RemoteSegment) -> bool:
        known = self._metadata.states.get(place.key)
        found = None if known is None else known.by_id.get(remote.id)
        return found is not None and found.state == SegmentState.COPY_FINISHED

    async def _facts(self, partition_log: PartitionLog, segment: Segment, candidate: CopyCandidate) -> LocalFacts:
        epochs = partition_log.leader_epochs.below(candidate.next_offset).format().encode()
        segment.retain()
        try:
            return await in_thread(
                self._runtime, partial(_read_facts, segment, candidate.next_offset, epochs, newest_ms(segment))
            )
        finally:
            segment.release()

    async def _upload(
        self, store: ObjectStore, place: TieredPartition, remote: RemoteSegment, facts: LocalFacts
    ) -> None:
        key = key_of(self._cluster_id, place, remote)
        # One deadline for both, because another leader takes a copy for stale that lasts longer.
        deadline = Deadline(self._runtime, self.upload_s_max)
        await store.put(f"{key}.log", facts.path, deadline_s=deadline.left_s)
        await store.put(f"{key}.idx", facts.index_object, deadline_s=deadline.left_s)

    async def _give_up(self, store: ObjectStore, place: TieredPartition, remote: RemoteSegment) -> None:
        """Delete what an attempt left. If that fails, too, the record "started" stays, and a leader cleans up later."""
        try:
            await self.delete(store, place, [remote])
        except (StrandlineError, OSError) as error:
            log.warning("%s: objects of segment %s stay for now: %s", place, remote.id, error)

    async def delete(self, store: ObjectStore, place: TieredPartition, segments: list[RemoteSegment]) -> None:
        """Delete segments from the store, and record it. A copy that has ended meanwhile stays."""
        for segment in segments:
            started = self._change(place, segment, SegmentState.DELETE_STARTED)
            is_copy = segment.state == SegmentState.COPY_STARTED
            await self._metadata.append(started._replace(only_unfinished=is_copy))
        segments = [each for each in segments if not self._is_finished(place, each)]
        # Known up to this node's own record, behind which nothing can begin to share these objects.
        fold = self._metadata.fold
        for segment in segments:
            fault_at(segment, "tier-deletion-begun")
        alone = [each for each in segments if not fold.is_needed_by_others(place.key, each.id)]
        keys = [key_of(self._cluster_id, place, each) for each in alone]
        if keys:
            await store.delete([f"{key}{end}" for key in keys for end in (".log", ".idx")], deadline_s=DELETE_S_MAX)
        for segment in segments:
            fault_at(segment, "tier-objects-deleted")
            await self._metadata.append(self._change(place, segment, SegmentState.DELETE_FINISHED))

    def _change(self, place: TieredPartition, segment: RemoteSegment, state: SegmentState) -> SegmentChanged:
        return SegmentChanged(place, segment.id, state, self._node_id, self._runtime.now_ms())


def epoch_before(partition: Partition, offset: int) -> int:
    """Return the leader epoch of the record before an offset."""
    return partition.log.leader_epochs.epoch_of(offset - 1)


def fault_at(segment: RemoteSegment, name: str) -> None:
    """Pass a fault point of the compaction of the store."""
    if segment.is_replaced or (segment.compaction is not None and segment.compaction.replaces):
        fault_point(name)


def block_checksums(file: File, size_bytes: int) -> list[int]:
    """Return the CRC-32C of each block of a segment's file. Blocks the caller."""
    return [
        crc32c(file.read_at(position, min(BLOCK_BYTES, size_bytes - position)))
        for position in range(0, size_bytes, BLOCK_BYTES)
    ]


def _read_facts(segment: Segment, next_offset: int, epochs: bytes, known_ms: int | None) -> LocalFacts:
    """In a thread: read the small files beside a segment, and the checksums of its blocks."""
    disk, path, file = segment.disk, segment.path, segment.file()

    def beside(suffix: str) -> bytes:
        named = path.with_suffix(suffix)
        return disk.read_whole(named) if disk.exists(named) else b""

    size_bytes = segment.size_bytes
    transactions = beside(TRANSACTION_INDEX_SUFFIX) if segment.has_transaction_index else b""
    parts = {
        ObjectPart.OFFSET_INDEX: beside(INDEX_SUFFIX),
        ObjectPart.TIME_INDEX: beside(TIME_INDEX_SUFFIX),
        ObjectPart.TRANSACTION_INDEX: transactions,
        ObjectPart.LEADER_EPOCHS: epochs,
        ObjectPart.BLOCK_CHECKSUMS: pack_checksums(block_checksums(file, size_bytes)),
    }
    snapshot = path.with_name(file_stem(next_offset) + SNAPSHOT_SUFFIX)
    if disk.exists(snapshot):
        parts[ObjectPart.PRODUCER_SNAPSHOT] = disk.read_whole(snapshot)
    newest = read_newest_ms(segment) if known_ms is None else known_ms
    return LocalFacts(path, size_bytes, newest, pack_parts(parts), bool(transactions))
