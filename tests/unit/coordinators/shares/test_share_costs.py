"""What acquired records cost in memory, and that work does not grow with what is in flight."""

from __future__ import annotations

import random
import sys
import tracemalloc

import pytest
from tests.unit.coordinators.shares.test_held_back_model import Task, TaskBatches
from tests.unit.coordinators.shares.test_share_partition_model import FakeBatches

from strandline.coordinators.shares.delivery.acknowledgements import ACCEPT, AcknowledgedBatch
from strandline.coordinators.shares.delivery.acquisition import LOOKED_MAX
from strandline.coordinators.shares.delivery.due_times import DueTimes
from strandline.coordinators.shares.delivery.share_partition import SharePartition
from strandline.coordinators.shares.delivery.share_settings import ShareSettings
from strandline.coordinators.shares.share_state import ShareState

SETTINGS = ShareSettings(record_locks_max=1 << 30)
RECORD_BYTES_MAX = 500
"""So 100,000 acquired records take less than 50 MB, even if each was acquired by a request of its own."""
WAITING_BYTES_MAX = 40
"""So a million records that wait take less than 40 MB, even if each is a batch of its own."""


def test_records_acquired_one_by_one_are_cheap() -> None:
    share, count = SharePartition(ShareState(1, 0, ()), 0), 10_000
    tracemalloc.start()
    try:
        for offset in range(count):
            share.acquire("ann", FakeBatches([(offset, offset)]), 0.0, SETTINGS, records_max=1, batch_size=1)
        assert tracemalloc.get_traced_memory()[0] < count * RECORD_BYTES_MAX
    finally:
        tracemalloc.stop()


def test_what_is_done_takes_one_range_however_it_was_acknowledged() -> None:
    share = SharePartition(ShareState(1, 0, ()), 0)
    share.acquire("ann", FakeBatches([(0, 999)]), 0.0, SETTINGS, records_max=1000, batch_size=1000)
    for offset in (*range(1, 1000, 2), *range(2, 1000, 2)):
        change = share.acknowledge("ann", [AcknowledgedBatch(offset, offset, bytes([ACCEPT]))], 0.0, SETTINGS)
        assert change is not None
        share.commit(change)
    assert len(share.ranges) == 2, "the first record, and all others"


class DelayedBatches:
    """Batches of one record each from an offset on, none of which is due."""

    def __init__(self, first: int, end: int) -> None:
        self.first_offset = first
        self._end = end

    def cover(self, offset: int) -> int:
        return min(offset, self._end - 1)

    def bases(self, first: int, last: int) -> list[int]:
        return list(range(first, last + 1))

    def undue(self, first: int, last: int, now_ms: int) -> list[tuple[int, int, int]]:
        # Some hours, in no order.
        return [(first, last, now_ms + 1 + first * 7_919_000 % 36_000_000)]

    def keys(self, first: int, last: int) -> list[tuple[int, int]]:
        raise AssertionError("the group has no order")


@pytest.mark.lengthy("large inputs")
def test_a_million_waiting_records_are_an_index() -> None:
    index, count, rng = DueTimes(), 1_000_000, random.Random(1)
    times = [rng.randrange(7 * 24 * 3_600_000) for _ in range(10_000)]
    for offset in range(count):
        index.add(times[offset % 10_000], offset, offset)
    # Counted here, because tracing a million calls takes long.
    buckets = [*index._coarse.values(), *index._coarse, index._coarse, index._coarse_order]
    assert sum(map(sys.getsizeof, buckets)) < count * WAITING_BYTES_MAX
    popped = 0
    while part := index.pop(7 * 24 * 3_600_000, 1_000):
        assert len(part) <= 1_000
        popped += len(part)
    # Some pops only move ranges from a coarse bucket to fine ones.
    while index:
        popped += len(index.pop(7 * 24 * 3_600_000, 1_000))
    assert popped == count


def test_records_that_wait_cost_no_range_each() -> None:
    share, count = SharePartition(ShareState(1, 0, ()), 0), 10_000
    share.is_delayed = True
    tracemalloc.start()
    try:
        while share.end_offset < count:
            before = share.end_offset
            batches = DelayedBatches(before, count)
            assert share.acquire("ann", batches, 0.0, SETTINGS, records_max=10, batch_size=10, now_ms=5) == []
            assert before < share.end_offset <= before + LOOKED_MAX
        assert tracemalloc.get_traced_memory()[0] < count * WAITING_BYTES_MAX
    finally:
        tracemalloc.stop()
    assert len(share.ranges) == 1
    assert share.held.count == count


def test_keys_that_are_done_are_forgotten() -> None:
    """Memory is that of the records in flight, however many keys there were."""
    share = SharePartition(ShareState(1, 0, ()), 0, is_key_ordered=True)
    tracemalloc.start()
    try:
        for offset in range(1_000):
            tasks = {offset: Task(0, key=offset)}
            batches = TaskBatches([(offset, offset)], tasks)
            assert share.acquire("ann", batches, 0.0, SETTINGS, records_max=1, batch_size=1)
            change = share.acknowledge("ann", [AcknowledgedBatch(offset, offset, bytes([ACCEPT]))], 0.0, SETTINGS)
            assert change is not None
            share.commit(change)
        assert tracemalloc.get_traced_memory()[0] < 50_000
    finally:
        tracemalloc.stop()


def test_records_behind_their_key_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.coordinators.shares.delivery.held_back.KEY_WAITING_MAX", 10)
    share = SharePartition(ShareState(1, 0, ()), 0, is_key_ordered=True)
    tasks = {offset: Task(0, key=1) for offset in range(1_000)}
    log = [(offset, offset) for offset in range(1_000)]
    assert share.acquire("ann", TaskBatches(log, tasks), 0.0, SETTINGS, records_max=50, batch_size=50) == [(0, 0, 1)]
    assert share.end_offset == 11
    assert not share.has_room(SETTINGS)
