"""What acquired records cost in memory, and that work does not grow with what is in flight."""

from __future__ import annotations

import tracemalloc

from tests.unit.coordinators.shares.test_share_partition_model import FakeBatches

from strandline.coordinators.shares.delivery.share_partition import ACCEPT, AcknowledgedBatch, SharePartition
from strandline.coordinators.shares.delivery.share_settings import ShareSettings
from strandline.coordinators.shares.share_state import ShareState

SETTINGS = ShareSettings(record_locks_max=1 << 30)
RECORD_BYTES_MAX = 500
"""So 100,000 acquired records take less than 50 MB, even if each was acquired by a request of its own."""


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
