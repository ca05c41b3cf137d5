"""Clones and deletions in any order, with a crash at any step: no hole, and no object that is never deleted."""

from __future__ import annotations

import random
from collections.abc import Iterator
from uuid import UUID

import pytest

from strandline.tiers.metadata_fold import MetadataFold
from strandline.tiers.records import (
    MetadataEvent,
    PartitionDeleted,
    RemoteSegment,
    SegmentAdded,
    SegmentChanged,
    SharedObjects,
    TieredPartition,
    metadata_partition,
    twin_of,
)
from strandline.tiers.segment_states import PartitionDeleteState, SegmentState
from strandline.tiers.sharing import reference_events

CLUSTER = "Cluster-0123456789"
FIRST = TieredPartition(UUID(int=1), 0, "first")
SEGMENTS = [UUID(int=100 + number) for number in range(3)]
STEPS = 400


def segment(number: int) -> RemoteSegment:
    return RemoteSegment(
        SEGMENTS[number],
        number * 10,
        number * 10 + 9,
        ((0, number * 10),),
        5,
        100,
        1,
        1,
        SegmentState.COPY_STARTED,
        is_txn_index_empty=True,
    )


class World:
    """One partition of the metadata topic, and the objects. Each actor reads the records up to its own."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._fold = MetadataFold(CLUSTER)
        self.objects = set(SEGMENTS)
        self.clones = 0
        for number in range(len(SEGMENTS)):
            self.append(SegmentAdded(FIRST, segment(number)))
            self.append(SegmentChanged(FIRST, SEGMENTS[number], SegmentState.COPY_FINISHED, 1, 1))

    def append(self, event: MetadataEvent) -> MetadataFold:
        self._fold.apply(event)
        return self._fold

    def fold(self) -> MetadataFold:
        return self._fold

    def clone(self) -> Iterator[None]:
        """As `topic clone`: read, then write; what it reads may be old by then."""
        fold = self.fold()
        key = self.random.choice(list(fold.states))
        shared = fold.states[key].readable()
        yield
        self.clones += 1
        place = TieredPartition(UUID(int=10 + self.clones), 0, f"clone-{self.clones}")
        for event in reference_events(place, shared, SharedObjects(CLUSTER, key[0], key[1]), 1):
            self.append(event)
            yield

    def delete(self) -> Iterator[None]:
        """As `SegmentCopier.delete`, also of what a crash has left."""
        fold = self.fold()
        key = self.random.choice(list(fold.states))
        known = list(fold.states[key].by_id)
        if not known:
            return
        segment_id, place = self.random.choice(known), fold.names[key]
        yield
        fold = self.append(SegmentChanged(place, segment_id, SegmentState.DELETE_STARTED, 1, 1))
        yield
        if not fold.is_needed_by_others(key, segment_id):
            self.objects.discard(segment_id)
        yield
        self.append(SegmentChanged(place, segment_id, SegmentState.DELETE_FINISHED, 1, 1))

    def check(self) -> None:
        for state in self.fold().states.values():
            for each in state.readable():
                assert each.id in self.objects, "a readable segment has no objects"


@pytest.mark.parametrize("seed", range(60))
def test_any_order_with_crashes_leaves_neither_hole_nor_orphan(seed: int) -> None:
    world = World(seed)
    under_way: list[Iterator[None]] = []
    for _ in range(STEPS // 4):
        if len(under_way) < 4:
            under_way.append(world.clone() if world.random.random() < 0.4 and world.clones < 4 else world.delete())
        actor = world.random.choice(under_way)
        is_crash = world.random.random() < 0.1
        if is_crash or next(actor, "ended") == "ended":
            under_way.remove(actor)
        world.check()
    # Every topic goes; what crashes left is taken up again.
    for _ in range(STEPS):
        if not any(state.by_id for state in world.fold().states.values()):
            break
        for _ in world.delete():
            world.check()
    assert not world.objects, f"seed {seed}: objects that nobody deletes"


def test_nothing_is_added_to_a_partition_that_is_deleted() -> None:
    fold = MetadataFold(CLUSTER)
    fold.apply(PartitionDeleted(FIRST, PartitionDeleteState.MARKED, 1, 1))
    fold.apply(SegmentAdded(FIRST, segment(0)))
    assert not fold.knows(FIRST.key, SEGMENTS[0])
    fold.apply(PartitionDeleted(FIRST, PartitionDeleteState.FINISHED, 1, 1))
    fold.apply(SegmentAdded(FIRST, segment(1)))
    assert fold.knows(FIRST.key, SEGMENTS[1])


def test_a_clone_has_its_records_beside_those_of_its_source() -> None:
    rng = random.Random(1)
    for _ in range(200):
        source, candidate = (UUID(int=rng.getrandbits(128), version=4) for _ in range(2))
        twin = twin_of(source, candidate)
        assert twin.version == 4
        assert twin != source
        for index in (0, 1, 7, 999):
            one, other = (metadata_partition(TieredPartition(each, index), 50) for each in (source, twin))
            assert one == other
