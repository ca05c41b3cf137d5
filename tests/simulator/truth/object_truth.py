"""What must hold between the commit log of object topics, what readers find, and the objects in the bucket of a run.

| invariant | how it is seen |
|---|---|
| the rule of the commit log | `CommitRule` says it a second time, and both accept the same ranges |
| no offset twice | an accepted range begins where its partition ends, and later readers find these very batches |
| no commit without an object | at the commit: the bucket has the range, with its checksum, and its batches adjoin |
| no needed object is deleted | at each deletion |
| the log is cut behind a checkpoint | at the cut: a checkpoint in the bucket says what the log said below |
| no record is nowhere | each offset of a partition is in a range that the log names, or in a readable segment |
| no orphans after quiet | in the end each object has a range that is needed |
| merging goes on | in the end all ranges are in segments |

The truth of a partition is what the commit log accepted: a leader may die before it shows that. What leaders show is
compared with it by `invariants`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

from crc32c import crc32c
from tests.simulator.truth.invariants import Violation
from tests.simulator.truth.partition_truth import Truth

from strandline.codec.columns import decode_batch
from strandline.codec.record_batch import PREFIX_SIZE, parse_header
from strandline.tiers.wal.checkpoint import checkpoint_key, decode_checkpoint
from strandline.tiers.wal.commit_fold import CommitFold
from strandline.tiers.wal.events import (
    COMMIT_TOPIC,
    RELEASED,
    CommitEvent,
    Key,
    LeadersClaimed,
    ObjectCommitted,
    ObjectId,
    ObjectsCondemned,
    OffsetsMoved,
    RangeCommit,
    TopicsRemoved,
    decode_event,
)
from strandline.tiers.wal.wal_objects import object_id_of, wal_key, wal_prefix

if TYPE_CHECKING:
    from tests.simulator.truth.invariants import Invariants
    from tests.simulator.truth.tier_truth import TierTruth
    from tests.simulator.world.cluster import SimCluster

    from strandline.partition.partition import Partition


class CommitRule:
    """Which ranges count, as docs/object-topics.md says it."""

    def __init__(self) -> None:
        self._writers: dict[Key, tuple[int, int, int]] = {}
        """Who may write: leader epoch, broker epoch, broker."""
        self._ends: dict[Key, int] = {}
        self._newest: dict[int, tuple[int, int]] = {}
        """By broker, the newest object that was committed or condemned."""

    def accepts(self, event: CommitEvent) -> tuple[bool, ...]:
        match event:
            case LeadersClaimed():
                for topic_id, index, epoch in event.partitions:
                    key, writer = (topic_id, index), (epoch, event.broker_epoch, event.broker_id)
                    if writer[:2] >= self._writers.get(key, (-1, -1))[:2]:
                        self._writers[key] = writer
            case ObjectCommitted():
                is_late = not self._is_newest(event.object_id)
                return tuple([not is_late and self._accepts(event.object_id, each) for each in event.ranges])
            case ObjectsCondemned():
                for each in event.object_ids:
                    self._is_newest(each)
            case TopicsRemoved():
                for key in [each for each in self._writers if each[0] in event.topic_ids]:
                    del self._writers[key]
                    self._ends.pop(key, None)
            case _:
                pass
        return ()

    def _is_newest(self, object_id: ObjectId) -> bool:
        name = object_id.broker_epoch, object_id.number
        if name <= self._newest.get(object_id.broker_id, (-1, -1)):
            return False
        self._newest[object_id.broker_id] = name
        return True

    def _accepts(self, object_id: ObjectId, asked: RangeCommit) -> bool:
        writer = asked.leader_epoch, object_id.broker_epoch, object_id.broker_id
        if self._writers.get(asked.key) != writer or self._ends.get(asked.key, 0) != asked.base_offset:
            return False
        self._ends[asked.key] = asked.end_offset
        return True


def _returned(steps: Generator[None, None, CommitFold]) -> list[CommitFold]:
    found: list[CommitFold] = []

    def run() -> Iterator[None]:
        found.append((yield from steps))

    for _ in run():
        pass
    return found


def _described(fold: CommitFold) -> object:
    """Return all that a fold says, for a comparison."""
    partitions = {
        key: (
            (known.claim, known.broker_id, known.start_offset, known.end_offset),
            (known.epochs.epochs, known.epochs.start_offsets),
            known.ranges,
            known.producers.snapshot_entries(),
        )
        for key, known in fold.partitions.items()
    }
    objects = {each: (live.size_bytes, live.ranges) for each, live in fold.objects.items()}
    return partitions, objects, set(fold.dead), fold.floors


class ObjectTruth:
    def __init__(self, cluster: SimCluster, invariants: Invariants, tiers: TierTruth) -> None:
        self._cluster = cluster
        self._bucket = cluster.bucket
        self._invariants = invariants
        self._tiers = tiers
        self._rule = CommitRule()
        self.fold = CommitFold()
        self._cut = CommitFold()
        """What the log says below its highest start."""
        self._since: deque[tuple[int, CommitEvent]] = deque()
        """The records from there on, with their offsets."""
        self._start = 0
        self.objects = self.released = self.condemned = 0
        """Objects that were committed, ranges that segments took over, and orphans."""
        tiers.objects = self
        invariants.on_committed[COMMIT_TOPIC] = self._learn
        invariants.trimmed.add(COMMIT_TOPIC)
        self._bucket.on_deleted.append(self._on_deleted)

    def _fail(self, words: str) -> NoReturn:
        raise Violation(f"{words} (at {self._cluster.loop.now:.6f} s)")

    # The commit log

    def _learn(self, batch: bytes) -> None:
        for record in decode_batch(batch):
            event = None if record.value is None else decode_event(record.value)
            if event is not None:
                self._since.append((record.offset, event))
                self._apply(event)

    def look_at_start(self, node_id: int, commits: Partition) -> None:
        """Check that what the log says below its start can be read in the store."""
        if commits.log_start_offset <= self._start:
            return
        self._start = commits.log_start_offset
        while self._since and self._since[0][0] < self._start:
            self._cut.apply(self._since.popleft()[1])
        key = checkpoint_key(self._cluster.cluster_id, commits.topic_id, self._start)
        data = self._bucket.objects.get(key)
        if data is None:
            self._fail(f"node {node_id} cuts the commit log at {self._start}, and the bucket has no {key}")
        for found in _returned(decode_checkpoint(data, self._start)):
            if _described(found) != _described(self._cut):
                self._fail(f"{key} does not say what the commit log said: {_described(found)} {_described(self._cut)}")

    def _apply(self, event: CommitEvent) -> None:
        due = self._rule.accepts(event)
        ranges = sum(len(each.ranges) for each in self.fold.partitions.values())
        accepted = self.fold.apply(event)
        if isinstance(event, ObjectCommitted):
            if accepted != due:
                self._fail(f"the commit log accepts {accepted} of {event}, and {due} is right")
            self.objects += any(accepted)
            for each, is_accepted in zip(event.ranges, accepted, strict=True):
                if is_accepted:
                    self._learn_range(event, each)
        elif isinstance(event, ObjectsCondemned):
            self.condemned += len(event.object_ids)
        elif isinstance(event, OffsetsMoved) and event.kind == RELEASED:
            self.released += ranges - sum(len(each.ranges) for each in self.fold.partitions.values())
            for topic_id, index, *_ in event.partitions:
                self.check_coverage((topic_id, index))

    def _truth_of(self, key: Key) -> Truth | None:
        return self._invariants.partitions.get((key[0].bytes, key[1]))

    def _learn_range(self, event: ObjectCommitted, wanted: RangeCommit) -> None:
        """Take over the batches of a range that was accepted: they are what every reader must find."""
        truth = self._truth_of(wanted.key)
        if truth is None:
            self._fail(f"{event.object_id} has records of {wanted.key}, which never was")
        body = self._bucket.objects.get(wal_key(self._cluster.cluster_id, event.object_id))
        if body is None:
            self._fail(f"{event.object_id} is committed with records of {truth.name}, and is not in the bucket")
        data = body[wanted.position : wanted.position + wanted.size_bytes]
        if len(data) != wanted.size_bytes or crc32c(data) != wanted.crc:
            self._fail(f"{event.object_id} has other bytes of {truth.name} than its commit says")
        topic_name = truth.name.rpartition("-")[0]
        on_committed = self._invariants.on_committed.get(topic_name)
        at, due = 0, wanted.base_offset
        while at < len(data):
            size = int.from_bytes(data[at + 8 : at + 12], "big") + PREFIX_SIZE
            batch = data[at : at + size]
            header = parse_header(batch)
            if header.base_offset != due or header.leader_epoch != wanted.leader_epoch or due in truth.batches:
                self._fail(f"{event.object_id} has a batch at {header.base_offset} of {truth.name} where {due} is due")
            truth.learn(batch, (header.last_offset, header.leader_epoch, header.crc), self._cluster.loop.now)
            self._invariants.stabilities.learn((wanted.topic_id.bytes, wanted.partition), truth.name, batch)
            if on_committed is not None:
                on_committed(batch)
            at, due = at + size, header.last_offset + 1
        if due != wanted.end_offset:
            self._fail(f"{event.object_id} ends at {due} of {truth.name}, and its commit says {wanted.end_offset}")
        truth.end = due

    # The bucket

    def _on_deleted(self, keys: Sequence[str]) -> None:
        for key in keys:
            object_id = self._object_of(key)
            if object_id is not None and object_id in self.fold.objects:
                self._fail(f"{key} is deleted, and {self.fold.objects[object_id].ranges} ranges of it are needed")

    def _object_of(self, key: str) -> ObjectId | None:
        return object_id_of(key) if key.startswith(f"{wal_prefix(self._cluster.cluster_id)}/") else None

    def check_coverage(self, key: Key) -> None:
        """Check that each record of a partition is in a range or in a segment: the log of a leader does not count."""
        known, truth = self.fold.partitions.get(key), self._truth_of(key)
        if known is None or truth is None or self._invariants.image.topic_by_id(key[0]) is None:
            return
        segments = self._tiers.fold.states.get(key)
        offset = max(known.start_offset, truth.start)
        while offset < known.end_offset:
            after = offset if segments is None else segments.covered_up_to(offset, known.epochs)
            at = known.find(after)
            after = after if at is None else known.ranges[at].end_offset
            if after <= offset:
                self._fail(f"{truth.name}: offset {offset} is in no segment, and in no range of the commit log")
            offset = after

    def check_all(self) -> None:
        for key in self.fold.partitions:
            self.check_coverage(key)

    # In the end

    def is_needed(self, key: str) -> bool:
        object_id = self._object_of(key)
        return object_id is not None and object_id in self.fold.objects

    def left(self) -> list[str]:
        """Return objects that are committed and not there, and what is not merged yet, in words."""
        names = {each: wal_key(self._cluster.cluster_id, each) for each in self.fold.objects}
        found = [f"the bucket lacks {key}" for key in names.values() if key not in self._bucket.objects]
        for key, known in self.fold.partitions.items():
            truth = self._truth_of(key)
            if known.ranges and truth is not None and self._invariants.image.topic_by_id(key[0]) is not None:
                found.append(f"{truth.name} has {len(known.ranges)} ranges that are not merged")
        return found
