"""What a checkpoint allows to restore of one partition (pure): which segments, up to where, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from strandline.config.remote_origin import PartitionOrigin, SharedTransaction
from strandline.log.leader_epochs import LeaderEpochs
from strandline.tiers.lineage import is_in_lineage
from strandline.tiers.objects import ObjectPart, key_of
from strandline.tiers.records import MetadataEvent, RemoteSegment, SegmentAdded, SegmentChanged, SharedObjects
from strandline.tiers.segment_states import SegmentState
from strandline.tiers.sharing import NO_BROKER, origin_behind, reference_events
from strandline.tiers.store.interface import StoredObject
from strandline.tiers.tier_checkpoint import PartitionCheckpoint

COORDINATOR_EPOCH = 0
"""Coordinators of the new cluster begin with it. A marker of a larger one would fence them."""


class RestoredPartition(NamedTuple):
    state: PartitionCheckpoint
    segments: tuple[RemoteSegment, ...]
    """Those of the leader's log, in their order."""
    left: tuple[RemoteSegment, ...]
    """Those that are to be deleted: half copied, half deleted, or taken back by an election."""
    origin: PartitionOrigin
    damages: tuple[str, ...]

    @property
    def missing(self) -> int:
        """Return how many offsets were acknowledged at the checkpoint and are in no segment."""
        return self.state.end_offset - self.origin.end_offset


def lineage_of(state: PartitionCheckpoint) -> list[RemoteSegment]:
    """Return the whole segments that belong to the log of the leader that wrote the checkpoint, in their order."""
    leader = LeaderEpochs()
    for epoch, start_offset in state.epochs:
        leader.note(epoch, start_offset)
    return [
        segment
        for segment in sorted(state.segments, key=lambda each: (each.start_offset, each.end_offset))
        if segment.state == SegmentState.COPY_FINISHED and is_in_lineage(segment, state.end_offset, leader)
    ]


def restored(
    state: PartitionCheckpoint,
    lineage: Sequence[RemoteSegment],
    parts: Mapping[ObjectPart, bytes] | None,
    damages: Sequence[str],
) -> RestoredPartition:
    """Return the partition with the segments of `lineage`; `parts` are of the index object of the last one."""
    if not lineage or parts is None:
        origin = PartitionOrigin(state.start_offset, state.start_offset)
    else:
        origin = origin_behind(parts, start_offset=state.start_offset, end_offset=lineage[-1].end_offset + 1)
        transactions = (each._replace(coordinator_epoch=COORDINATOR_EPOCH) for each in origin.transactions)
        origin = origin._replace(transactions=tuple(SharedTransaction(*each) for each in transactions))
    of_log = {each.id for each in lineage_of(state)}
    left = tuple(each for each in state.segments if each.id not in of_log)
    return RestoredPartition(state, tuple(lineage), left, origin, tuple(damages))


def damages_of(
    state: PartitionCheckpoint, segments: Sequence[RemoteSegment], listed: Mapping[str, StoredObject], cluster_id: str
) -> Iterator[str]:
    """Yield what is wrong with the objects of segments, as far as a list shows it."""
    for segment in segments:
        base = key_of(cluster_id, state.place, segment)
        name = f"offsets {segment.start_offset:,} to {segment.end_offset + 1:,}"
        missing = [f"{base}{end}" for end in (".log", ".idx") if f"{base}{end}" not in listed]
        if missing:
            yield f"{name} cannot be read: {' and '.join(missing)} is not in the store"
        elif listed[f"{base}.log"].size != segment.size_bytes:
            size = listed[f"{base}.log"].size
            yield f"{name} cannot be read: {base}.log has {size:,} bytes, not {segment.size_bytes:,}"


def restore_events(
    found: RestoredPartition, owner: SharedObjects | None, now_ms: int, *, is_read_only: bool
) -> Iterator[MetadataEvent]:
    """Yield the records of `__remote_log_metadata`. What is left over is deleted by the leader that reads them."""
    place = found.state.place
    yield from reference_events(place, found.segments, owner, now_ms, is_restored=True)
    for segment in () if is_read_only else found.left:
        source = segment.source and segment.source._replace(is_restored=True)
        begun = segment._replace(state=SegmentState.COPY_STARTED, broker_id=NO_BROKER, source=source)
        yield SegmentAdded(place, begun)
        yield SegmentChanged(place, segment.id, SegmentState.DELETE_STARTED, NO_BROKER, now_ms)
