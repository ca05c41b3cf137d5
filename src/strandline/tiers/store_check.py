"""Compares what the metadata names with the objects in the store, and says what to do about each difference.

The store is listed first, and the metadata is read afterwards. Each object is named by a record before its upload
begins. So an object in the list that the metadata does not name was never named, or is about to be deleted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from uuid import UUID

from strandline.tiers.metadata_fold import NEEDS_OBJECTS, MetadataFold
from strandline.tiers.objects import key_of
from strandline.tiers.records import RemoteSegment, TieredPartition
from strandline.tiers.segment_states import SegmentState
from strandline.tiers.store.interface import StoredObject

ENDINGS: Final = (".log", ".idx")
COPY_MS_MAX: Final = 15 * 60_000
"""A copy takes less, whatever grace the user asks for: ending it would delete what its leader takes for copied."""
_HEX: Final = r"[0-9a-f]"
_UUID: Final = rf"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}"
_OBJECT: Final = re.compile(rf"[A-Za-z0-9_-]+/seg/({_UUID})/([0-9]{{1,10}})/[0-9]{{20}}-({_UUID})\.(?:log|idx)")


class StoreProblem(StrEnum):
    MISSING = "missing"
    TRUNCATED = "truncated"
    DAMAGED = "damaged"
    ORPHAN = "orphan"
    UNKNOWN = "unknown"
    COPY_STUCK = "copy-started"
    DELETE_STUCK = "delete-started"
    TOPIC_GONE = "topic-gone"


@dataclass(frozen=True)
class StoreFinding:
    """One difference. `segment` or `keys` are what a repair deletes; without either there is none."""

    problem: StoreProblem
    text: str
    repair: str
    """What a repair would do, or what the operator should do if it can do nothing."""
    place: TieredPartition | None = None
    segment: RemoteSegment | None = None
    keys: tuple[str, ...] = ()
    can_repair: bool = False


@dataclass(frozen=True)
class CheckedStore:
    """What a check compares. `now_ms` and the grace decide which objects and records are old."""

    fold: MetadataFold
    cluster_id: str
    listed: Mapping[str, StoredObject]
    topics: Mapping[UUID, str]
    """The topics of the cluster by id."""
    now_ms: int
    grace_ms: int
    is_metadata_whole: bool = True
    """Whether the metadata was read from its first record on."""

    def name_of(self, place: TieredPartition) -> str:
        return f"{self.topics.get(place.topic_id, place.topic or str(place.topic_id))}-{place.partition}"


def compare(checked: CheckedStore) -> list[StoreFinding]:
    """Return the differences: segments in the order of partitions and offsets, then objects without a name."""
    fold, named = checked.fold, set[str]()
    found: list[StoreFinding] = []
    for key in sorted(fold.states, key=lambda each: (fold.names[each].topic, each[0].int, each[1])):
        place = fold.names[key]
        for segment in fold.states[key].in_state(*SegmentState):
            base = key_of(checked.cluster_id, place, segment)
            named.update(f"{base}{end}" for end in ENDINGS)
            found += _of_segment(checked, place, segment, base)
    return [*found, *_without_name(checked, named)]


def _of_segment(
    checked: CheckedStore, place: TieredPartition, segment: RemoteSegment, base: str
) -> Iterator[StoreFinding]:
    name = f"segment {segment.start_offset} to {segment.end_offset} of {checked.name_of(place)}"
    age_ms = checked.now_ms - segment.event_ms
    is_under_way = segment.state == SegmentState.COPY_STARTED and age_ms <= COPY_MS_MAX
    is_old = age_ms > checked.grace_ms and not is_under_way
    if place.topic_id not in checked.topics:
        # A clone that is being made has its segments before its topic.
        if is_old:
            yield StoreFinding(
                StoreProblem.TOPIC_GONE,
                f"the topic of {name} is gone, and its segment is still in the store",
                "delete it from the store and record that",
                place,
                segment,
                can_repair=True,
            )
    elif segment.is_replaced:
        # Its records are in a compacted segment. The leader deletes it when its readers had time to leave.
        return
    elif segment.state == SegmentState.COPY_FINISHED:
        yield from _of_objects(checked, place, segment, base, name)
    elif is_old:
        is_copy = segment.state == SegmentState.COPY_STARTED
        yield StoreFinding(
            StoreProblem.COPY_STUCK if is_copy else StoreProblem.DELETE_STUCK,
            f"the {'copy' if is_copy else 'deletion'} of {name} was begun by node {segment.broker_id} and never ended",
            "delete what there is of it and record that",
            place,
            segment,
            can_repair=True,
        )


def _of_objects(
    checked: CheckedStore, place: TieredPartition, segment: RemoteSegment, base: str, name: str
) -> Iterator[StoreFinding]:
    missing = [f"{base}{end}" for end in ENDINGS if f"{base}{end}" not in checked.listed]
    if missing:
        yield lost(StoreProblem.MISSING, place, segment, missing, f"{name} lacks {' and '.join(missing)}")
        return
    size = checked.listed[f"{base}.log"].size
    if size != segment.size_bytes:
        yield lost(
            StoreProblem.TRUNCATED,
            place,
            segment,
            [f"{base}.log"],
            f"{name} has {size:,} bytes in {base}.log and should have {segment.size_bytes:,}",
        )


def lost(
    problem: StoreProblem, place: TieredPartition, segment: RemoteSegment, keys: list[str], text: str
) -> StoreFinding:
    """Return a finding of records that cannot be read. No repair deletes anything of them."""
    return StoreFinding(
        problem,
        text,
        "nothing can be repaired here: restore the object from a version or a backup of the bucket; until then reads "
        "of these offsets answer KAFKA_STORAGE_ERROR",
        place,
        segment,
        tuple(keys),
    )


def _without_name(checked: CheckedStore, named: set[str]) -> Iterator[StoreFinding]:
    for key in sorted(checked.listed.keys() - named):
        if not key.startswith(f"{checked.cluster_id}/seg/"):
            # Of another cluster, or of another part of this one.
            continue
        parts = _OBJECT.fullmatch(key)
        if parts is None:
            yield StoreFinding(
                StoreProblem.UNKNOWN,
                f"{key} is no object of a tiered topic",
                "nothing: look at it, and delete it by hand if it is yours",
                keys=(key,),
            )
            continue
        age_ms = checked.now_ms - checked.listed[key].modified_ms
        if checked.listed[key].modified_ms and age_ms > checked.grace_ms:
            yield _orphan(checked, key, (UUID(parts[1]), int(parts[2])))


def _orphan(checked: CheckedStore, key: str, owner: tuple[UUID, int]) -> StoreFinding:
    known = checked.fold.states.get(owner)
    text = f"no record of the metadata names {key}"
    if not checked.is_metadata_whole or (owner[0] in checked.topics and known is None):
        # Its records may have been lost. Without them the object is all that is left.
        return StoreFinding(
            StoreProblem.ORPHAN,
            f"{text}, and the metadata of its partition is lost or was never whole",
            "nothing: it may be the only copy of records; restore the metadata first",
            keys=(key,),
        )
    return StoreFinding(StoreProblem.ORPHAN, text, "delete the object", keys=(key,), can_repair=True)


def segments_to_read(fold: MetadataFold) -> Iterator[tuple[TieredPartition, RemoteSegment]]:
    """Yield each readable segment once, also where several partitions share its objects."""
    seen: set[UUID] = set()
    for key, state in fold.states.items():
        for segment in state.readable():
            if segment.id not in seen:
                seen.add(segment.id)
                yield fold.names[key], segment


def still_true(finding: StoreFinding, fold: MetadataFold, listed: Mapping[str, StoredObject]) -> bool:
    """Return whether a finding still holds by newer metadata, and by the newer state of its objects."""
    segment = finding.segment
    if finding.place is None or segment is None:
        return finding.keys[0] in listed
    known = fold.states.get(finding.place.key)
    now = None if known is None else known.by_id.get(segment.id)
    if now is None or now.state != segment.state:
        return False
    if finding.problem in (StoreProblem.MISSING, StoreProblem.TRUNCATED):
        sizes = [None if key not in listed else listed[key].size for key in finding.keys]
        return None in sizes or (finding.problem == StoreProblem.TRUNCATED and sizes != [segment.size_bytes])
    return True


def is_needed(fold: MetadataFold, place: TieredPartition, segment: RemoteSegment) -> bool:
    """Return whether the objects of a segment must stay, for its own partition or for another."""
    known = fold.states.get(place.key)
    now = None if known is None else known.by_id.get(segment.id)
    return (now is not None and now.state in NEEDS_OBJECTS) or fold.is_needed_by_others(place.key, segment.id)
