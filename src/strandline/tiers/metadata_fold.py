"""What the records of one or more partitions of `__remote_log_metadata` say: segments, and objects that several share.

A clone shares the objects of another topic (`RemoteSegment.source`). All topics that share objects have their metadata
in one partition of the topic, so its order decides between a clone that begins and a deletion: a record that shares
objects which are being deleted is rejected by each reader. Objects are deleted with the last segment that names them.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from strandline.tiers.objects import key_of
from strandline.tiers.records import MetadataEvent, PartitionDeleted, RemoteSegment, SegmentAdded, TieredPartition
from strandline.tiers.remote_segments import RemoteSegments
from strandline.tiers.segment_states import PartitionDeleteState, SegmentState

Key = tuple[UUID, int]

NEEDS_OBJECTS = (SegmentState.COPY_STARTED, SegmentState.COPY_FINISHED)


class MetadataFold:
    """Segments by partition. `cluster_id` is that of the records."""

    def __init__(self, cluster_id: str) -> None:
        self._cluster_id = cluster_id
        self.states: dict[Key, RemoteSegments] = {}
        self.names: dict[Key, TieredPartition] = {}
        self.holders: dict[UUID, set[Key]] = {}
        """By segment that is shared: the partitions that name its objects, the first one among them."""
        self.deleting: set[Key] = set()
        """Partitions of which all segments are being deleted. None is added before that has ended."""

    def apply(self, event: MetadataEvent) -> None:
        key = event.partition.key
        if isinstance(event, PartitionDeleted):
            if event.state != PartitionDeleteState.FINISHED:
                self.names[key] = event.partition
                self.deleting.add(key)
            else:
                self.deleting.discard(key)
                gone = self.states.pop(key, None)
                self.names.pop(key, None)
                for segment_id in () if gone is None else gone.by_id:
                    self._let_go(segment_id, key)
            return
        if isinstance(event, SegmentAdded) and not self._may_add(event):
            known = self.states.get(key)
            if known is not None:
                known.rejected += 1
            return
        self.names[key] = event.partition
        self.states.setdefault(key, RemoteSegments()).apply(event)
        if isinstance(event, SegmentAdded):
            self._hold(key, event.segment)
        elif event.state == SegmentState.DELETE_FINISHED:
            self._let_go(event.segment_id, key)

    def _may_add(self, event: SegmentAdded) -> bool:
        """Return whether its partition stays, and the objects that a segment shares are still there, and stay."""
        segment = event.segment
        if event.partition.key in self.deleting:
            # Its objects would be deleted with the others, and its local copy before that.
            return False
        source = segment.source
        if source is None or self._find(event.partition.key, segment.id) is not None:
            return True
        holders = self.holders.get(segment.id, set())
        if source.is_restored:
            # The topic that named the objects may be gone. The restore has seen them.
            return True
        found = [self._find(key, segment.id) for key in holders | {source.key}]
        return any(each is not None and each.state == SegmentState.COPY_FINISHED for each in found)

    def _hold(self, key: Key, segment: RemoteSegment) -> None:
        if segment.source is not None and self._find(key, segment.id) is not None:
            holders = self.holders.setdefault(segment.id, set())
            holders.add(key)
            if self._find(segment.source.key, segment.id) is not None:
                holders.add(segment.source.key)

    def _let_go(self, segment_id: UUID, key: Key) -> None:
        holders = self.holders.get(segment_id)
        if holders is not None:
            holders.discard(key)
            if not holders:
                del self.holders[segment_id]

    def _find(self, key: Key, segment_id: UUID) -> RemoteSegment | None:
        known = self.states.get(key)
        return None if known is None else known.by_id.get(segment_id)

    def knows(self, key: Key, segment_id: UUID) -> bool:
        return self._find(key, segment_id) is not None

    def is_needed_by_others(self, key: Key, segment_id: UUID) -> bool:
        """Return whether another partition needs the objects of a segment, so that they must stay."""
        found = [self._find(each, segment_id) for each in self.holders.get(segment_id, ()) if each != key]
        return any(each is not None and each.state in NEEDS_OBJECTS for each in found)

    def keys_needed(self, keys: Iterable[str]) -> set[str]:
        """Return those of some objects of shared segments that a partition needs."""
        needed = set()
        for segment_id, holders in self.holders.items():
            for key in holders:
                segment = self._find(key, segment_id)
                if segment is not None and segment.state in NEEDS_OBJECTS:
                    base = key_of(self._cluster_id, self.names[key], segment)
                    needed |= {f"{base}.log", f"{base}.idx"}
        return needed.intersection(keys)
