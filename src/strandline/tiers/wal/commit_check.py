"""Compares what the commit log of object topics says with the objects in the store, and with the segments.

The store is listed first, then the commit log is read, and then the metadata of segments. An object is uploaded before
its commit, and a segment is recorded before its ranges are released. What differs only for a moment is gone in a second
comparison of newer data: `confirmed` keeps what both have found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from uuid import UUID

from strandline.codec.checksum import crc32c
from strandline.errors import CorruptLog
from strandline.tiers.metadata_fold import MetadataFold
from strandline.tiers.remote_segments import RemoteSegments
from strandline.tiers.store.interface import StoredObject
from strandline.tiers.store_check import StoreFinding, StoreProblem
from strandline.tiers.wal.commit_fold import CommitFold, WalRange
from strandline.tiers.wal.events import COMMIT_TOPIC, Key, ObjectId, RangeCommit
from strandline.tiers.wal.wal_objects import object_id_of, unpack_head, wal_key, wal_prefix

NAMED_MAX = 3
"""Ranges that a sentence names. The others are counted."""


class NamedRange(NamedTuple):
    """Offsets of a partition that a finding is about."""

    topic: str
    topic_id: UUID
    partition: int
    start_offset: int
    end_offset: int

    def __str__(self) -> str:
        return f"offsets {self.start_offset} to {self.end_offset - 1} of {self.topic}-{self.partition}"


@dataclass(frozen=True)
class CommitFinding(StoreFinding):
    """A difference between the commit log and the store."""

    object_id: ObjectId | None = None
    topic_id: UUID | None = None
    """The topic that the log is to forget."""
    ranges: tuple[NamedRange, ...] = ()

    @property
    def identity(self) -> tuple[object, ...]:
        return self.problem, self.object_id, self.topic_id, self.keys, self.ranges


@dataclass(frozen=True)
class CheckedCommits:
    """What a check compares. `now_ms` and the grace decide which objects and records are old."""

    fold: CommitFold
    segments: MetadataFold
    cluster_id: str
    listed: Mapping[str, StoredObject]
    topics: Mapping[UUID, str]
    """The topics of the cluster by id."""
    now_ms: int
    grace_ms: int
    dead_ms: Mapping[ObjectId, int] = field(default_factory=dict)
    """When each dead object was last needed."""
    touched_ms: Mapping[UUID, int] = field(default_factory=dict)
    """When a record named a topic last."""
    is_whole: bool = True
    """Whether the log was read from its first record, or from a checkpoint, on."""

    def name_of(self, key: Key) -> str:
        return f"{self.topics.get(key[0], str(key[0]))}-{key[1]}"

    def is_old(self, since_ms: int) -> bool:
        return self.now_ms - since_ms > self.grace_ms


def compare_commits(checked: CheckedCommits) -> list[CommitFinding]:
    """Return the differences: partitions with a gap, objects that are needed, those that are not, those unknown."""
    found: list[CommitFinding] = []
    if checked.is_whole:
        found += _topics_gone(checked)
        found += _gaps(checked)
        found += _objects_needed(checked)
        found += _objects_dead(checked)
    return [*found, *_without_name(checked)]


def confirmed(first: Iterable[CommitFinding], second: Iterable[CommitFinding]) -> list[CommitFinding]:
    """Return the findings of a comparison that an earlier one had, too."""
    known = {each.identity for each in first}
    return [each for each in second if each.identity in known]


def ranges_by_object(checked: CheckedCommits) -> dict[ObjectId, list[tuple[Key, WalRange]]]:
    """Return the ranges that are needed of each object, without those of topics that are gone."""
    found: dict[ObjectId, list[tuple[Key, WalRange]]] = {}
    for key, known in checked.fold.partitions.items():
        if key[0] in checked.topics:
            for each in known.ranges:
                found.setdefault(each.object_id, []).append((key, each))
    return found


def lost_ranges(
    checked: CheckedCommits,
    problem: StoreProblem,
    object_id: ObjectId,
    ranges: Sequence[tuple[Key, WalRange]],
    what: str,
) -> CommitFinding:
    """Return a finding of records that cannot be read. No repair deletes anything of them."""
    named = [NamedRange(checked.topics[key[0]], *key, each.base_offset, each.end_offset) for key, each in ranges]
    named.sort(key=lambda each: (each.topic, each.partition, each.start_offset))
    more = f" and {len(named) - NAMED_MAX} more ranges" if len(named) > NAMED_MAX else ""
    key = wal_key(checked.cluster_id, object_id)
    return CommitFinding(
        problem,
        f"{key} {what}; it has {', '.join(map(str, named[:NAMED_MAX]))}{more}",
        "nothing can be repaired here: restore the object from a version or a backup of the bucket; until then reads "
        "of these offsets answer KAFKA_STORAGE_ERROR",
        keys=(key,),
        object_id=object_id,
        ranges=tuple(named),
    )


def damages_in(data: bytes, ranges: Sequence[tuple[Key, WalRange]]) -> tuple[list[tuple[Key, WalRange]], str]:
    """Return the ranges of an object that hold other bytes than were written, and what is wrong, in words."""
    bad = [
        (key, each) for key, each in ranges if crc32c(data[each.position : each.position + each.size_bytes]) != each.crc
    ]
    if bad:
        return bad, "holds other bytes than were written"
    try:
        head = {(each.key, each.base_offset, each.end_offset, each.crc) for each in unpack_head(data)}
    except CorruptLog:
        return list(ranges), "has a damaged head, and a cluster that lost its commit log could not use it"
    if not head >= {(key, each.base_offset, each.end_offset, each.crc) for key, each in ranges}:
        return list(ranges), "has other ranges in its head than the commit log"
    return [], ""


def is_doubtful(checked: CheckedCommits, head: Sequence[RangeCommit]) -> bool:
    """Return whether an object without a commit has records of which the commit log may have lost its memory."""
    for each in head:
        known = checked.fold.partitions.get(each.key)
        if each.topic_id in checked.topics and (known is None or each.base_offset > known.end_offset):
            return True
    return False


def doubtful(finding: CommitFinding) -> CommitFinding:
    """Return the finding of such an object: no repair deletes it."""
    return replace(
        finding,
        text=f"{finding.text}, and it has records behind the end that the log knows",
        repair="nothing: it may be the only copy of records. A node deletes it after strandline.object.orphan.ms if "
        f"{COMMIT_TOPIC} is whole; if that was deleted, restore the cluster first",
        can_repair=False,
    )


def _topics_gone(checked: CheckedCommits) -> Iterator[CommitFinding]:
    for topic_id in sorted(set(checked.fold.topic_ids()) - checked.topics.keys(), key=lambda each: each.int):
        if checked.is_old(checked.touched_ms.get(topic_id, checked.now_ms)):
            ranges = [
                each for key, known in checked.fold.partitions.items() if key[0] == topic_id for each in known.ranges
            ]
            yield CommitFinding(
                StoreProblem.TOPIC_GONE,
                f"the topic {topic_id} is gone, and the commit log still has {len(ranges)} ranges of it",
                "record that it was removed; a node then deletes what only it needed",
                can_repair=True,
                topic_id=topic_id,
            )


def _gaps(checked: CheckedCommits) -> Iterator[CommitFinding]:
    """Yield where a partition has neither a segment nor a range."""
    for key, known in sorted(checked.fold.partitions.items(), key=lambda each: (checked.name_of(each[0]), each[0][1])):
        if key[0] not in checked.topics:
            continue
        segments = checked.segments.states.get(key) or RemoteSegments()
        covered = segments.covered_up_to(known.start_offset, known.epochs)
        if covered < known.first_offset:
            gap = NamedRange(checked.topics[key[0]], *key, covered, known.first_offset)
            yield CommitFinding(
                StoreProblem.MISSING,
                f"no segment and no object has {gap}",
                "nothing can be repaired here: their metadata is lost; move the log start behind them with "
                "`strandline topic trim`, or consumers stop there",
                ranges=(gap,),
            )


def _objects_needed(checked: CheckedCommits) -> Iterator[CommitFinding]:
    for object_id, ranges in sorted(ranges_by_object(checked).items()):
        stored = checked.listed.get(wal_key(checked.cluster_id, object_id))
        size_bytes = checked.fold.objects[object_id].size_bytes
        if stored is None:
            yield lost_ranges(checked, StoreProblem.MISSING, object_id, ranges, "is not in the store")
        elif stored.size != size_bytes:
            what = f"has {stored.size:,} bytes and should have {size_bytes:,}"
            yield lost_ranges(checked, StoreProblem.TRUNCATED, object_id, ranges, what)


def _objects_dead(checked: CheckedCommits) -> Iterator[CommitFinding]:
    for object_id in sorted(checked.fold.dead):
        key = wal_key(checked.cluster_id, object_id)
        if key in checked.listed and checked.is_old(checked.dead_ms.get(object_id, checked.now_ms)):
            yield CommitFinding(
                StoreProblem.DELETE_STUCK,
                f"{key} is needed no more, and its deletion has not ended",
                "delete the object and record that",
                keys=(key,),
                object_id=object_id,
                can_repair=True,
            )


def _without_name(checked: CheckedCommits) -> Iterator[CommitFinding]:
    prefix = f"{wal_prefix(checked.cluster_id)}/"
    for key in sorted(each for each in checked.listed if each.startswith(prefix)):
        object_id, stored = object_id_of(key), checked.listed[key]
        if object_id is None or key != wal_key(checked.cluster_id, object_id):
            yield CommitFinding(
                StoreProblem.UNKNOWN,
                f"{key} is no object of object topics",
                "nothing: look at it, and delete it by hand if it is yours",
                keys=(key,),
            )
        elif object_id in checked.fold.objects or object_id in checked.fold.dead:
            continue
        elif stored.modified_ms and checked.is_old(stored.modified_ms):
            yield _orphan(checked, key, object_id)


def _orphan(checked: CheckedCommits, key: str, object_id: ObjectId) -> CommitFinding:
    text = f"no commit names {key}"
    if not checked.is_whole:
        return CommitFinding(
            StoreProblem.ORPHAN,
            f"{text}, and the commit log is lost or was never whole",
            "nothing: it may be the only copy of records; restore the commit log first",
            keys=(key,),
            object_id=object_id,
        )
    return CommitFinding(
        StoreProblem.ORPHAN,
        text,
        "have the commit log reject it, and delete the object",
        keys=(key,),
        object_id=object_id,
        can_repair=True,
    )
