"""What a topic shares that begins with the segments of another: which ones, up to where, and the records that say so.

Only whole segments are shared, up to where a leader's log has all of them. A copy of what an election took back is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from strandline.codec.producer_snapshot import decode_snapshot
from strandline.config.remote_origin import PartitionOrigin, SharedTransaction
from strandline.log.leader_epochs import LeaderEpochs
from strandline.tiers.lineage import is_in_lineage
from strandline.tiers.objects import ObjectPart
from strandline.tiers.records import MetadataEvent, RemoteSegment, SegmentAdded, SegmentChanged, SharedObjects
from strandline.tiers.records import TieredPartition as Place
from strandline.tiers.segment_states import SegmentState

NO_BROKER = -1


def possible_ends(segments: Iterable[RemoteSegment], limit_offset: int) -> list[RemoteSegment]:
    """Return the segments behind which a clone may begin that goes up to an offset, the farthest first."""
    ends = [segment for segment in segments if segment.end_offset < limit_offset]
    return sorted(ends, key=lambda each: (each.end_offset, each.epochs[-1][0]), reverse=True)


def shared_segments(
    segments: Iterable[RemoteSegment], leader: LeaderEpochs, *, start_offset: int, end_offset: int
) -> list[RemoteSegment]:
    """Return the segments of a leader's log between its start and an offset behind one of them."""
    return [each for each in segments if each.end_offset >= start_offset and is_in_lineage(each, end_offset, leader)]


def first_hole(segments: Iterable[RemoteSegment], *, start_offset: int, end_offset: int) -> int | None:
    """Return the first offset between two that no segment has; None if they have all."""
    offset = start_offset
    for each in sorted(segments, key=lambda each: each.start_offset):
        if each.start_offset > offset:
            break
        offset = max(offset, each.end_offset + 1)
    return offset if offset < end_offset else None


def origin_behind(parts: Mapping[ObjectPart, bytes], *, start_offset: int, end_offset: int) -> PartitionOrigin:
    """Return the origin of a log that goes on behind a segment, by the parts of its index object."""
    epochs = LeaderEpochs.parse(parts[ObjectPart.LEADER_EPOCHS].decode()).below(end_offset)
    snapshot = parts.get(ObjectPart.PRODUCER_SNAPSHOT)
    opened = [] if snapshot is None else [each for each in decode_snapshot(snapshot) if each[5] >= 0]
    return PartitionOrigin(
        start_offset,
        end_offset,
        tuple(zip(epochs.epochs, epochs.start_offsets, strict=True)),
        tuple(SharedTransaction(each[0], each[1], each[4], each[5]) for each in opened),
    )


def epochs_of(origin: PartitionOrigin) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for epoch, start_offset in origin.epochs:
        epochs.note(epoch, start_offset)
    return epochs


def reference_events(
    place: Place,
    segments: Sequence[RemoteSegment],
    owner: SharedObjects | None,
    now_ms: int,
    *,
    is_restored: bool = False,
) -> Iterator[MetadataEvent]:
    """Yield the records by which a partition has segments whose objects are there. `owner` named the objects."""
    for segment in segments:
        source = segment.source or owner
        if source is not None:
            source = source._replace(is_restored=is_restored)
        # What it replaced is not among the segments of this partition.
        compaction = segment.compaction if source is None else None
        if compaction is not None:
            compaction = compaction._replace(replaces=())
        begun = segment._replace(
            state=SegmentState.COPY_STARTED,
            source=source,
            compaction=compaction,
            broker_id=NO_BROKER,
            event_ms=now_ms,
        )
        yield SegmentAdded(place, begun)
        yield SegmentChanged(place, segment.id, SegmentState.COPY_FINISHED, NO_BROKER, now_ms)
