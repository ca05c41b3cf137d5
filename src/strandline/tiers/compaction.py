"""What of a partition in the store is compacted, and which segments a compacted one replaces.

The segments of the leader's log form a chain. Each says below which offset its keys are clean. From the smallest of
these on the chain is dirty: the keys from there are learned, and then all segments are read, oldest first.

    segments   |  0..99   |  100..199  |  200..249  |  250..299  |      clean below   250, 250, 250, 300
                                                     ^ first dirty

Nothing but the records of the segments decides. So the next leader goes on where its predecessor was stopped.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from heapq import heappop, heappush
from typing import Final, NamedTuple

from strandline.config.settings import LONG_MAX
from strandline.config.topic_config import TopicConfig
from strandline.log.leader_epochs import LeaderEpochs
from strandline.log.rolling import RELATIVE_OFFSET_MAX
from strandline.tiers.lineage import filled_epochs
from strandline.tiers.records import Compaction, RemoteSegment
from strandline.tiers.remote_segments import RemoteSegments, is_passed, ranges_of

GROUP_SEGMENTS_MAX: Final = 64
"""Segments that become one: their ids are in one record."""


class ChainPart(NamedTuple):
    """The offsets of the leader's log that are taken from one segment."""

    segment: RemoteSegment
    start_offset: int
    end_offset: int
    """The first offset behind it."""

    @property
    def is_whole(self) -> bool:
        return self.start_offset == self.segment.start_offset and self.end_offset == self.segment.end_offset + 1


class Chain(NamedTuple):
    """What the store has of the leader's log, without a gap."""

    parts: tuple[ChainPart, ...]
    first_dirty_offset: int
    """Below it no record of the chain has a newer one with its key."""

    @property
    def end_offset(self) -> int:
        return self.parts[-1].end_offset if self.parts else 0

    @property
    def total_bytes(self) -> int:
        return sum(part.segment.size_bytes for part in self.parts)

    @property
    def dirty_bytes(self) -> int:
        return sum(part.segment.size_bytes for part in self.dirty_parts)

    @property
    def dirty_parts(self) -> list[ChainPart]:
        return [part for part in self.parts if part.end_offset > self.first_dirty_offset]

    @property
    def horizons_below(self) -> int:
        """Return where the first segment begins that no compaction of the store has read.

        A delete horizon behind it was set by a cleaner that did not see what the store has of the key.
        """
        fresh = [part.start_offset for part in self.parts if not is_passed(part.segment)]
        return min(fresh, default=self.end_offset)


def chain(segments: RemoteSegments, leader: LeaderEpochs, *, log_start_offset: int, log_end_offset: int) -> Chain:
    """Return the chain of the leader's log. It ends where the store has nothing more."""
    parts: list[ChainPart] = []
    offset, ends, readable = log_start_offset, _ends(leader), segments.readable()
    search = _Search(readable)
    passed = sorted(each.start_offset for each in readable if is_passed(each))
    while (segment := search.find(leader.epoch_of(offset), offset)) is not None:
        end_offset = _common_end(segment, offset, ends)
        if end_offset > log_end_offset:
            # It goes on beyond the log: that it is this leader's shows when the next epoch has begun.
            break
        if not is_passed(segment):
            # A copy that ended late may have what a compaction removed from the segments behind.
            end_offset = min([end_offset, *passed[bisect_right(passed, offset) :][:1]])
        # Records below the log start are not read, and stay in their segment.
        parts.append(ChainPart(segment, offset if parts else min(offset, segment.start_offset), end_offset))
        offset = end_offset
    clean = [_clean_offset(part.segment, leader, log_end_offset) for part in parts]
    start_offset = parts[0].start_offset if parts else 0
    return Chain(tuple(parts), max(start_offset, min(clean, default=0)))


def is_due(found: Chain, config: TopicConfig, now_ms: int) -> bool:
    """Return whether a chain is compacted now, by the rules of a local log."""
    if not found.dirty_bytes:
        return False
    oldest_ms = min(part.segment.max_timestamp_ms for part in found.dirty_parts)
    is_overdue = config.max_compaction_lag_ms < LONG_MAX and 0 <= oldest_ms < now_ms - config.max_compaction_lag_ms
    return is_overdue or found.dirty_bytes > config.min_cleanable_dirty_ratio * found.total_bytes


class Group(NamedTuple):
    """Parts that become one segment."""

    parts: tuple[ChainPart, ...]
    replaced: tuple[RemoteSegment, ...]
    """What a reader could find there, the segments of the parts among it."""

    @property
    def start_offset(self) -> int:
        return self.parts[0].start_offset

    @property
    def end_offset(self) -> int:
        return self.parts[-1].end_offset


def groups(found: Chain, segments: RemoteSegments, leader: LeaderEpochs, *, segment_bytes: int) -> list[Group]:
    """Return the groups of a chain that was made of these segments just now.

    Neighbours that fit into a segment are one group. So are those of which one overlaps the other, because a group
    replaces all that it was made of. If another leader has replaced or deleted some of it, the swap is rejected.
    """
    made: list[Group] = []
    parts: list[ChainPart] = []
    ends = _ends(leader)
    readable = sorted(
        (last, each.start_offset, each.id, each)
        for each in segments.readable()
        if (last := _last_found(each, ends)) is not None
    )
    lasts = [last for last, *_ in readable]
    for part, following in zip(found.parts, [*found.parts[1:], None], strict=True):
        parts.append(part)
        end_offset, start_offset = part.end_offset, parts[0].start_offset
        within = readable[bisect_left(lasts, start_offset) : bisect_left(lasts, end_offset)]
        replaced = tuple(each for *_, each in within)
        ids = {each.id for each in replaced}
        if not all(each.segment.id in ids for each in parts):
            continue
        fits = (
            following is not None
            and sum(each.segment.size_bytes for each in parts) + following.segment.size_bytes <= segment_bytes
            and len(replaced) < GROUP_SEGMENTS_MAX
            and following.end_offset - 1 - start_offset <= RELATIVE_OFFSET_MAX
        )
        if not fits:
            made.append(Group(tuple(parts), replaced))
            parts = []
    return made


def compaction_of(group: Group, *, clean_up_to: int, leader: LeaderEpochs, log_end_offset: int) -> Compaction:
    """Return what is known of the keys of a group when the keys below `clean_up_to` have been compared."""
    known = max(clean_up_to, min(_clean_offset(part.segment, leader, log_end_offset) for part in group.parts))
    return Compaction(known, leader.epoch_of(known - 1), True, tuple(each.id for each in group.replaced))


def _clean_offset(segment: RemoteSegment, leader: LeaderEpochs, log_end_offset: int) -> int:
    found = segment.compaction
    if found is None:
        return segment.start_offset
    # Keys that an unclean election took back prove nothing about those in their place.
    _, end_offset = leader.end_offset(found.epoch, log_end_offset)
    return max(segment.start_offset, min(found.clean_up_to, end_offset))


_Ends = dict[int, tuple[int, int, int]]


def _ends(leader: LeaderEpochs) -> _Ends:
    """Return (first offset, first offset behind it, next epoch) of the leader's epochs with records."""
    filled = filled_epochs(list(zip(leader.epochs, leader.start_offsets, strict=True)))
    following = [*filled[1:], (-1, LONG_MAX)] if filled else []
    return {
        epoch: (start_offset, end_offset, after)
        for (epoch, start_offset), (after, end_offset) in zip(filled, following, strict=True)
    }


class _Search:
    """A search for growing offsets among readable segments, each of which is looked at once."""

    def __init__(self, readable: list[RemoteSegment]) -> None:
        self._to_come: dict[int, list[tuple[int, int, RemoteSegment]]] = {}
        for each in readable:
            for epoch, first, last in ranges_of(each):
                self._to_come.setdefault(epoch, []).append((first, last, each))
        for ranges in self._to_come.values():
            ranges.sort(key=lambda each: -each[0])
        self._begun: dict[int, list[tuple[bool, int, int, RemoteSegment]]] = {}

    def find(self, epoch: int, offset: int) -> RemoteSegment | None:
        """Return what `RemoteSegments.find` does."""
        to_come, begun = self._to_come.get(epoch, []), self._begun.setdefault(epoch, [])
        while to_come and to_come[-1][0] <= offset:
            _, last, each = to_come.pop()
            heappush(begun, (not is_passed(each), -last, each.id.int, each))
        while begun and -begun[0][1] < offset:
            heappop(begun)
        return begun[0][3] if begun else None


def common_end(segment: RemoteSegment, offset: int, leader: LeaderEpochs) -> int:
    """Return up to where a segment has the records of the leader's log, from an offset on that it has."""
    return _common_end(segment, offset, _ends(leader))


def _common_end(segment: RemoteSegment, offset: int, ends: _Ends) -> int:
    ranges = [each for each in ranges_of(segment) if each[2] >= offset]
    for at, (epoch, _, last) in enumerate(ranges):
        _, end_offset, after = ends.get(epoch, (0, last + 1, -1))
        following = ranges[at + 1][0] if at + 1 < len(ranges) else -1
        if last + 1 != end_offset or after != following:
            return min(last + 1, end_offset)
    return segment.end_offset + 1


def _last_found(segment: RemoteSegment, ends: _Ends) -> int | None:
    """Return the last offset at which a reader of the leader's log may find a segment."""
    found = [
        min(last, ends[epoch][1] - 1)
        for epoch, first, last in ranges_of(segment)
        if epoch in ends and max(first, ends[epoch][0]) <= min(last, ends[epoch][1] - 1)
    ]
    return max(found, default=None)
