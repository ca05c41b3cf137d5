"""Whether a partition counts its records as a reader finds them, for the end of a simulated run.

The reader here does what a client does that reads committed records: it takes every batch, the list of aborted
transactions that a broker would send along, and drops what is theirs, batch by batch, up to their markers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from strandline.codec.columns import decode_batch
from strandline.codec.record_batch import parse_header
from strandline.codec.transaction_marker import parse_marker
from strandline.log.segment.aborted_transactions import aborted_transactions
from strandline.log.segment.time_lookup import run_to_end
from strandline.partition.counting import Counted, count_unread
from strandline.partition.partition import Partition

if TYPE_CHECKING:
    from strandline.broker.node import Node

POSITIONS: Final = 9
"""From so many offsets of each partition records are counted, besides the last stable one."""


def miscounted(nodes: Iterable[Node | None]) -> Iterator[str]:
    """Yield what is counted wrong by any replica, in words; None is a node that is down."""
    for partition in _replicas(nodes):
        # Of object topics only the leader holds what counts.
        is_counted = partition.is_leader or not partition.config.commits_in_store
        if partition.log.failure is None and is_counted:
            committed, all_offsets = _read(partition)
            for offset in _positions(partition):
                found = run_to_end(count_unread(partition, offset))
                due = _due(partition, offset, committed, all_offsets)
                if found != due:
                    yield f"{partition!r}: from offset {offset} {found} is counted, and {due} is read"


def _replicas(nodes: Iterable[Node | None]) -> Iterator[Partition]:
    for node in nodes:
        for name, partitions in () if node is None else node.topics.items():
            if isinstance(name, str):
                yield from (partition for partition in partitions if partition is not None)


def _positions(partition: Partition) -> list[int]:
    start, end = partition.log.log_start_offset, partition.high_watermark
    step = max(1, (end - start) // POSITIONS)
    # What is in the object store alone is not counted, and an open transaction may have begun there.
    return sorted({*range(start, end + 1, step), max(start, partition.last_stable_offset), end})


def _due(partition: Partition, offset: int, committed: list[int], all_offsets: list[int]) -> Counted:
    stable, end = partition.last_stable_offset, partition.high_watermark
    return Counted(
        max(0, bisect_left(committed, stable) - bisect_left(committed, offset)),
        max(0, bisect_left(all_offsets, end) - bisect_left(all_offsets, max(offset, stable))),
    )


def _read(partition: Partition) -> tuple[list[int], list[int]]:
    """Return the offsets of records that were not aborted, and of all records."""
    log = partition.log
    aborted = aborted_transactions(log, log.log_start_offset, partition.last_stable_offset, may_block=True)
    coming = sorted(aborted, key=lambda each: each[1], reverse=True)
    dropped: set[int] = set()
    committed: list[int] = []
    all_offsets: list[int] = []
    for batch in log.batches():
        header = parse_header(batch)
        while coming and coming[-1][1] <= header.last_offset:
            dropped.add(coming.pop()[0])
        if header.is_control:
            marker = parse_marker(batch)
            if marker is not None and not marker.is_commit:
                dropped.discard(header.producer_id)
            continue
        offsets = [record.offset for record in decode_batch(batch)]
        all_offsets += offsets
        if not (header.is_transactional and header.producer_id in dropped):
            committed += offsets
    return committed, all_offsets
