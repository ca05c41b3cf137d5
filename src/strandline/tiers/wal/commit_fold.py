"""What the records of the commit log say together. Every reader applies them in their order, and decides alike.

Nothing else fences: a record that comes too late is in the log, and every reader rejects it.

- A claim counts if its leader epoch is newer than the one known. Within a leader epoch a newer process counts.
- A range is accepted if the leader that claimed the partition last wrote it, and it begins where the partition ends.
- An object is accepted once, in the order of its process's numbers. So a commit that was written twice counts once, and
  none can name an object that was condemned.
- Offsets move on the word of the leader that claimed the partition last.

An object lives while a range of it is needed. Then it is dead, and the leader of the commit log deletes it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple
from uuid import UUID

from strandline.log.leader_epochs import LeaderEpochs
from strandline.log.segment.transaction_index import AbortedTransaction
from strandline.tiers.wal.events import (
    STARTS,
    CommitEvent,
    Key,
    LeadersClaimed,
    ObjectCommitted,
    ObjectId,
    ObjectsCondemned,
    ObjectsDeleted,
    OffsetsMoved,
    RangeCommit,
    TopicsRemoved,
)
from strandline.tiers.wal.producer_notes import KnownProducers

NO_CLAIM: Final = (-1, -1)


class WalRange(NamedTuple):
    """Committed batches of one partition in one object."""

    base_offset: int
    end_offset: int
    object_id: ObjectId
    position: int
    size_bytes: int
    crc: int
    max_timestamp_ms: int
    aborted: tuple[AbortedTransaction, ...] = ()
    """Transactions whose markers are in the range."""


class CommittedPartition:
    """One partition: where it ends, who may write, and the ranges that no segment holds yet."""

    __slots__ = ("bases", "broker_id", "claim", "end_offset", "epochs", "producers", "ranges", "start_offset")

    def __init__(self) -> None:
        self.claim: tuple[int, int] = NO_CLAIM
        """Leader epoch, and epoch of the broker that leads."""
        self.broker_id = -1
        self.start_offset = self.end_offset = 0
        self.ranges: list[WalRange] = []
        self.bases: list[int] = []
        self.epochs = LeaderEpochs()
        self.producers = KnownProducers()

    def find(self, offset: int) -> int | None:
        """Return which range holds an offset; None if a segment has it, or nothing."""
        at = bisect_right(self.bases, offset) - 1
        return at if at >= 0 and offset < self.ranges[at].end_offset else None

    @property
    def first_offset(self) -> int:
        """Return where the ranges begin; the end if there are none."""
        return self.bases[0] if self.bases else self.end_offset


class LiveObject:
    __slots__ = ("ranges", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.ranges = 0
        """How many of its ranges are needed."""


class CommitFold:
    """All partitions and objects of a cluster."""

    def __init__(self) -> None:
        self.partitions: dict[Key, CommittedPartition] = {}
        self.objects: dict[ObjectId, LiveObject] = {}
        """Those that are needed."""
        self.dead: dict[ObjectId, None] = {}
        """Those that are to be deleted."""
        self.floors: dict[int, tuple[int, int]] = {}
        """By broker: its epoch and number, up to which nothing is accepted any more."""
        self.rejected = 0
        """Ranges that came too late."""
        self.owner = ""
        """The cluster whose objects these are; empty if it is this one. Another's are only read."""
        self.broker_epoch_base = 0
        """Added to the epochs of processes. A cluster that was restored begins behind those of the lost one."""
        self.restored_logs: set[UUID] = set()
        """Commit logs of lost clusters that were restored as a whole."""

    def apply(self, event: CommitEvent) -> tuple[bool, ...]:
        """Apply the next record. Return what was accepted of it, in the order of its partitions.

        Of `PartitionsRestored` only `checkpoint.apply_event` knows what is in it.
        """
        match event:
            case ObjectCommitted():
                return self._commit(event)
            case LeadersClaimed():
                return tuple([self._claim(event, *each) for each in event.partitions])
            case OffsetsMoved():
                return tuple([self._move(event.kind, *each) for each in event.partitions])
            case TopicsRemoved():
                self._remove(set(event.topic_ids))
            case ObjectsCondemned():
                for each in event.object_ids:
                    self._raise_floor(each)
                    if each not in self.objects:
                        self.dead[each] = None
            case ObjectsDeleted():
                for each in event.object_ids:
                    self.dead.pop(each, None)
        return ()

    def _claim(self, event: LeadersClaimed, topic_id: UUID, partition: int, leader_epoch: int) -> bool:
        known = self.partitions.setdefault((topic_id, partition), CommittedPartition())
        if (leader_epoch, event.broker_epoch) < known.claim:
            return False
        known.claim, known.broker_id = (leader_epoch, event.broker_epoch), event.broker_id
        return True

    def _raise_floor(self, object_id: ObjectId) -> None:
        floor = self.floors.get(object_id.broker_id, (-1, -1))
        self.floors[object_id.broker_id] = max(floor, object_id[1:])

    def is_too_late(self, object_id: ObjectId) -> bool:
        """Return whether no commit of an object is accepted any more."""
        return object_id[1:] <= self.floors.get(object_id.broker_id, (-1, -1))

    def _commit(self, event: ObjectCommitted) -> tuple[bool, ...]:
        object_id = event.object_id
        if self.is_too_late(object_id):
            self.rejected += len(event.ranges)
            return (False,) * len(event.ranges)
        self._raise_floor(object_id)
        live = LiveObject(event.size_bytes)
        accepted = tuple([self._accept(event, each) for each in event.ranges])
        live.ranges = sum(accepted)
        self.rejected += len(accepted) - live.ranges
        if live.ranges:
            self.objects[object_id] = live
        else:
            self.dead[object_id] = None
        return accepted

    def _accept(self, event: ObjectCommitted, asked: RangeCommit) -> bool:
        known = self.partitions.get(asked.key)
        if (
            known is None
            or known.claim != (asked.leader_epoch, event.object_id.broker_epoch)
            or known.broker_id != event.object_id.broker_id
            or known.end_offset != asked.base_offset
            or asked.end_offset <= asked.base_offset
        ):
            return False
        known.epochs.note(asked.leader_epoch, asked.base_offset)
        aborted = known.producers.apply(asked.notes, event.appended_ms) if asked.notes else ()
        known.end_offset = asked.end_offset
        known.ranges.append(
            WalRange(
                asked.base_offset,
                asked.end_offset,
                event.object_id,
                asked.position,
                asked.size_bytes,
                asked.crc,
                asked.max_timestamp_ms,
                tuple(aborted),
            )
        )
        known.bases.append(asked.base_offset)
        return True

    def _move(self, kind: int, topic_id: UUID, partition: int, leader_epoch: int, offset: int) -> bool:
        known = self.partitions.get((topic_id, partition))
        if known is None or known.claim[0] != leader_epoch or offset > known.end_offset:
            return False
        if kind == STARTS:
            if offset <= known.start_offset:
                return False
            known.start_offset = offset
            known.epochs.truncate_start(offset)
        count = 0
        while count < len(known.ranges) and known.ranges[count].end_offset <= offset:
            self._let_go(known.ranges[count].object_id)
            count += 1
        del known.ranges[:count], known.bases[:count]
        return True

    def _let_go(self, object_id: ObjectId) -> None:
        live = self.objects[object_id]
        live.ranges -= 1
        if not live.ranges:
            del self.objects[object_id]
            self.dead[object_id] = None

    def _remove(self, topic_ids: set[UUID]) -> None:
        for key in [each for each in self.partitions if each[0] in topic_ids]:
            for each in self.partitions.pop(key).ranges:
                self._let_go(each.object_id)

    def topic_ids(self) -> Iterator[UUID]:
        return iter({topic_id for topic_id, _ in self.partitions})
