"""The segments of one partition that are in the store, and which of them holds an offset of an epoch.

Two leaders may have copied overlapping ranges, of different epochs perhaps. So a look-up needs the epoch of the offset
in the present leader's log, and the segment says up to where its records are of that epoch.

A compacted segment names those that it replaces. The record that it is whole makes it readable and them unreadable, at
once. If one of them was replaced or deleted before, by another leader perhaps, the record is rejected: the first wins.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final
from uuid import UUID

from strandline.log.leader_epochs import LeaderEpochs
from strandline.tiers.records import Compaction, RemoteSegment, SegmentAdded, SegmentChanged
from strandline.tiers.segment_states import SegmentState, may_follow

FINISHED_MAX: Final = 10_000
"""Deleted segments of a partition that are remembered."""


class RemoteSegments:
    """All segments of one partition, in any state but DELETE_FINISHED."""

    def __init__(self) -> None:
        self.by_id: dict[UUID, RemoteSegment] = {}
        self.finished: dict[UUID, None] = {}
        """Segments that were deleted last. A record that arrives late does not bring them back."""
        self._by_epoch: dict[int, list[tuple[int, int, UUID]]] = {}
        """By epoch: (first offset of that epoch in the segment, last one, segment), sorted."""
        self.events = 0
        """Records that were taken over: nothing has changed as long as there is none."""
        self.replacements = 0
        """Segments that compacted ones replaced. A reader whose segment was replaced meanwhile reads again."""
        self.rejected = 0
        """Records whose transition is not allowed."""

    def __len__(self) -> int:
        return len(self.by_id)

    def apply(self, event: SegmentAdded | SegmentChanged) -> bool:
        """Take over a record. Return whether it was allowed."""
        self.events += 1
        if isinstance(event, SegmentAdded):
            segment = event.segment
            before = self.by_id.get(segment.id)
            if segment.id in self.finished or not may_follow(None if before is None else before.state, segment.state):
                self.rejected += 1
                return False
            if before is None:
                self.by_id[segment.id] = segment
            return True
        known = self.by_id.get(event.segment_id)
        if known is None or not may_follow(known.state, event.state):
            is_repeated = event.segment_id in self.finished and event.state == SegmentState.DELETE_FINISHED
            self.rejected += not is_repeated
            return is_repeated
        if event.only_unfinished and known.state == SegmentState.COPY_FINISHED:
            # Its copy was given up for lost, and is whole: other segments may be replaced by it.
            self.rejected += 1
            return False
        if event.state == known.state:
            if event.compaction is not None:
                self._note_compaction(known, event.compaction)
            return True
        changed = known._replace(state=event.state, event_ms=event.event_ms)
        if event.state == SegmentState.COPY_FINISHED:
            return self._finish(changed)
        if known.state == SegmentState.COPY_FINISHED and not known.is_replaced:
            self._forget(known)
        if event.state == SegmentState.DELETE_FINISHED:
            del self.by_id[known.id]
            self.finished[known.id] = None
            if len(self.finished) > FINISHED_MAX:
                del self.finished[next(iter(self.finished))]
        else:
            self.by_id[known.id] = changed
        return True

    def _finish(self, segment: RemoteSegment) -> bool:
        """Make a segment readable in the place of those that it replaces, if they still are."""
        replaced = () if segment.compaction is None else segment.compaction.replaces
        if not all(self.is_readable(each) for each in replaced):
            self.rejected += 1
            return False
        for each in replaced:
            old = self.by_id[each]
            self._forget(old)
            self.by_id[each] = old._replace(is_replaced=True)
            self.replacements += 1
        self.by_id[segment.id] = segment
        self._index(segment)
        return True

    def _note_compaction(self, known: RemoteSegment, found: Compaction) -> None:
        """Take over what a compaction found that left a segment as it was. A record may arrive late."""
        before = known.compaction
        if before is None or found.clean_up_to >= before.clean_up_to:
            kept = () if before is None else before.replaces
            self.by_id[known.id] = known._replace(compaction=found._replace(replaces=kept))

    def is_readable(self, segment_id: UUID) -> bool:
        found = self.by_id.get(segment_id)
        return found is not None and found.state == SegmentState.COPY_FINISHED and not found.is_replaced

    def _index(self, segment: RemoteSegment) -> None:
        for epoch, start_offset, end_offset in ranges_of(segment):
            ranges = self._by_epoch.setdefault(epoch, [])
            ranges.append((start_offset, end_offset, segment.id))
            ranges.sort()

    def _forget(self, segment: RemoteSegment) -> None:
        for epoch, start_offset, end_offset in ranges_of(segment):
            ranges = self._by_epoch[epoch]
            ranges.remove((start_offset, end_offset, segment.id))
            if not ranges:
                del self._by_epoch[epoch]

    def find(self, epoch: int, offset: int) -> RemoteSegment | None:
        """Return a readable segment with the record of `epoch` at `offset`.

        Of several it is one that a compaction has read: a copy that ended later may hold what was deleted. Else it is
        the longest.
        """
        ranges = self._by_epoch.get(epoch, [])
        best: tuple[bool, int, UUID] | None = None
        for _, end_offset, segment_id in ranges[: bisect_right(ranges, (offset, 1 << 63, UUID(int=2**128 - 1)))]:
            if offset <= end_offset:
                found = is_passed(self.by_id[segment_id]), end_offset, segment_id
                if best is None or found[:2] > best[:2]:
                    best = found
        return None if best is None else self.by_id[best[2]]

    def highest(self, leader: LeaderEpochs, log_end_offset: int) -> tuple[int, int]:
        """Return the highest offset in the store that the leader's log has, and its epoch; (-1, -1) if none."""
        for at in range(len(leader.epochs) - 1, -1, -1):
            epoch = leader.epochs[at]
            ranges = self._by_epoch.get(epoch)
            if not ranges:
                continue
            ends = leader.start_offsets[at + 1] if at + 1 < len(leader.epochs) else log_end_offset
            return min(max(end_offset for _, end_offset, _ in ranges), ends - 1), epoch
        return -1, -1

    def covered_up_to(self, start_offset: int, leader: LeaderEpochs) -> int:
        """Return the offset below which the store has every record of the leader's log from `start_offset` on."""
        offset = start_offset
        while True:
            segment = self.find(leader.epoch_of(offset), offset)
            if segment is None:
                return offset
            epoch = leader.epoch_of(offset)
            at = leader.epochs.index(epoch)
            limit = leader.start_offsets[at + 1] if at + 1 < len(leader.epochs) else segment.end_offset + 1
            ends = next(end for each, _, end in ranges_of(segment) if each == epoch) + 1
            if min(ends, limit) <= offset:
                return offset
            offset = min(ends, limit)

    def in_state(self, *states: SegmentState) -> list[RemoteSegment]:
        """Return the segments in some states, in the order of their offsets."""
        found = [segment for segment in self.by_id.values() if segment.state in states]
        return sorted(found, key=lambda segment: (segment.start_offset, segment.end_offset, segment.id.int))

    @property
    def shares_objects(self) -> bool:
        return any(segment.source is not None for segment in self.by_id.values())

    def readable(self) -> list[RemoteSegment]:
        return [each for each in self.in_state(SegmentState.COPY_FINISHED) if not each.is_replaced]

    def replaced(self) -> list[RemoteSegment]:
        """Return the segments that nothing reads any more, and whose objects are still there."""
        return [each for each in self.in_state(SegmentState.COPY_FINISHED) if each.is_replaced]


def is_passed(segment: RemoteSegment) -> bool:
    """Return whether a compaction of the store has read a segment."""
    return segment.compaction is not None and segment.compaction.is_passed


def ranges_of(segment: RemoteSegment) -> list[tuple[int, int, int]]:
    """Return (epoch, first offset, last offset) of each epoch with records in a segment."""
    ends = [start_offset - 1 for _, start_offset in segment.epochs[1:]] + [segment.end_offset]
    return [
        (epoch, start_offset, end_offset)
        for (epoch, start_offset), end_offset in zip(segment.epochs, ends, strict=True)
        if start_offset <= end_offset
    ]
