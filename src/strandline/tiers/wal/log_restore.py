"""What is restored of object topics: the checkpoint of a lost commit log, put together with the segments.

The checkpoint has the ranges that were not merged by then. Segments may go on behind it, because they are written down
by other nodes, at other times. A range is released only when a checkpoint names the segments that hold its records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from strandline.codec.producer_snapshot import NOT_SAID
from strandline.config.remote_origin import PartitionOrigin, SharedTransaction
from strandline.tiers.records import TieredPartition
from strandline.tiers.restoring import COORDINATOR_EPOCH, RestoredPartition
from strandline.tiers.sharing import first_hole
from strandline.tiers.store.interface import StoredObject
from strandline.tiers.tier_checkpoint import PartitionCheckpoint
from strandline.tiers.wal.checkpoint import write_checkpoint
from strandline.tiers.wal.commit_fold import CommitFold, CommittedPartition, LiveObject
from strandline.tiers.wal.events import Key, ObjectId, PartitionsRestored, RangeCommit
from strandline.tiers.wal.producer_notes import KnownProducers
from strandline.tiers.wal.wal_objects import wal_key

RECORD_BYTES: Final = 4 << 20
"""Ranges and producers of one record, about. A partition is never cut."""
_NO_TIME: Final = -1


class LostLog(NamedTuple):
    """The newest sound checkpoint of a commit log."""

    log_id: UUID
    offset: int
    fold: CommitFold
    written_ms: int
    """When it was written, by the clock of the store; 0 if that is not known."""


class RestoredRanges(NamedTuple):
    """One partition of an object topic, as it is restored."""

    found: RestoredPartition
    known: CommittedPartition


def newest_log(logs: Iterable[LostLog]) -> LostLog | None:
    """Return the commit log that was in use last: none of those that a restore has used up, nor a deleted one."""
    found = list(logs)
    used_up = {each for one in found for each in one.fold.restored_logs}
    left = [each for each in found if each.log_id not in used_up]
    return max(left, key=lambda each: (_last_epoch(each.fold), each.offset), default=None)


def _last_epoch(fold: CommitFold) -> int:
    """Return the newest process that a log has seen. Epochs of brokers grow as long as a cluster lives."""
    claims = (known.claim[1] for known in fold.partitions.values())
    return max([fold.broker_epoch_base - 1, *claims, *(epoch for epoch, _ in fold.floors.values())])


def state_of(
    place: TieredPartition, state: PartitionCheckpoint | None, known: CommittedPartition | None
) -> PartitionCheckpoint:
    """Return what is known of a partition, also if only the commit log names it."""
    if state is None:
        assert known is not None
        epochs = tuple(zip(known.epochs.epochs, known.epochs.start_offsets, strict=True))
        state = PartitionCheckpoint(place, known.claim[0], known.start_offset, known.end_offset, epochs, ())
    if known is not None:
        state = state._replace(leader_epoch=max(state.leader_epoch, known.claim[0]))
    return state


def restored_ranges(
    found: RestoredPartition,
    known: CommittedPartition | None,
    sizes: Mapping[ObjectId, int],
    listed: Mapping[str, StoredObject],
    cluster_id: str,
) -> RestoredRanges:
    """Return a partition with its segments and the ranges behind them, and what is wrong with their objects."""
    if known is None or known.end_offset <= found.origin.end_offset:
        # The segments go on behind the checkpoint of the commit log.
        return RestoredRanges(found, _committed(found.state.leader_epoch, found.origin))
    start_offset = max(found.state.start_offset, known.start_offset)
    hole = first_hole(found.segments, start_offset=start_offset, end_offset=known.end_offset)
    covered = known.end_offset if hole is None else hole
    damages = [*found.damages]
    if covered < known.first_offset:
        damages.append(f"offsets {covered:,} to {known.first_offset:,} are in no segment and in no object")
    ranges = [each for each in known.ranges if each.end_offset > covered]
    for each in ranges:
        key = wal_key(cluster_id, each.object_id)
        stored, name = listed.get(key), f"offsets {each.base_offset:,} to {each.end_offset:,}"
        if stored is None:
            damages.append(f"{name} cannot be read: {key} is not in the store")
        elif stored.size != sizes[each.object_id]:
            damages.append(f"{name} cannot be read: {key} has {stored.size:,} bytes, not {sizes[each.object_id]:,}")
    entries = known.producers.entries
    transactions = tuple(
        SharedTransaction(producer_id, entries[producer_id].epoch, COORDINATOR_EPOCH, first_offset)
        for producer_id, first_offset in known.producers.open_transactions.items()
    )
    epochs = tuple(zip(known.epochs.epochs, known.epochs.start_offsets, strict=True))
    origin = PartitionOrigin(start_offset, known.end_offset, epochs, transactions)
    committed = _committed(found.state.leader_epoch, origin)
    committed.ranges, committed.bases = ranges, [each.base_offset for each in ranges]
    return RestoredRanges(found._replace(origin=origin, damages=tuple(damages)), committed)


def _committed(leader_epoch: int, origin: PartitionOrigin) -> CommittedPartition:
    """Return a partition that ends where its log begins, without ranges.

    Of producers only open transactions are known: ids are given again in the new cluster.
    """
    known = CommittedPartition()
    known.claim = leader_epoch, -1
    known.start_offset, known.end_offset = origin.start_offset, origin.end_offset
    for epoch, begins in origin.epochs:
        known.epochs.note(epoch, begins)
    known.producers = KnownProducers.of_entries(
        (each.producer_id, each.producer_epoch, [], _NO_TIME, each.coordinator_epoch, each.first_offset, NOT_SAID)
        for each in origin.transactions
    )
    return known


def ends_behind(heads: Iterable[Sequence[RangeCommit]]) -> dict[Key, int]:
    """Return up to where objects have records that no commit names, by partition."""
    ends: dict[Key, int] = {}
    for head in heads:
        for each in head:
            ends[each.key] = max(ends.get(each.key, 0), each.end_offset)
    return ends


def first_free_epoch(lost: LostLog | None, written: Iterable[ObjectId]) -> int:
    """Return an epoch above those of all processes of the lost cluster."""
    last = -1 if lost is None else _last_epoch(lost.fold)
    return max([last, *(each.broker_epoch for each in written)]) + 1


def restore_records(
    restored: Iterable[RestoredRanges], lost: LostLog, *, owner: str, base: int, is_complete: bool
) -> Iterator[PartitionsRestored]:
    """Yield the records of a new commit log that goes on where the lost one ended."""
    part, size = CommitFold(), 0
    part.floors = dict(lost.fold.floors)
    if is_complete and not owner:
        part.dead = dict(lost.fold.dead)
    for each in restored:
        place = each.found.state.place
        part.partitions[place.key] = each.known
        for one in each.known.ranges:
            part.objects[one.object_id] = LiveObject(lost.fold.objects[one.object_id].size_bytes)
        size += 100 * (1 + len(each.known.ranges) + len(each.known.producers.entries))
        if size >= RECORD_BYTES:
            yield PartitionsRestored(lost.log_id, owner, base, False, lost.offset, write_checkpoint(part, lost.offset))
            part, size = CommitFold(), 0
    # The last one says that it was all: a restore that is killed before goes on.
    yield PartitionsRestored(lost.log_id, owner, base, is_complete, lost.offset, write_checkpoint(part, lost.offset))
