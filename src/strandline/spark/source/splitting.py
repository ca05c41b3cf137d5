"""Ranges of offsets cut into tasks, and limits spread over partitions (pure)."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from strandline.client.fetcher import OffsetRange
from strandline.ids import TopicPartition

Positions = dict[TopicPartition, int]


def split(
    ranges: Iterable[OffsetRange], *, partitions_min: int | None, records_per_partition_max: int | None
) -> list[OffsetRange]:
    """The ranges that have offsets, cut so that none is too long and, if there are enough offsets, none are too few.

    What is cut next is what has the most offsets per part, so the parts come out alike.
    """
    whole = [each for each in ranges if each.size > 0]
    parts = [1] * len(whole)
    if records_per_partition_max is not None:
        parts = [math.ceil(each.size / records_per_partition_max) for each in whole]
    missing = (partitions_min or 0) - sum(parts)
    longest = [(-each.size / count, index) for index, (each, count) in enumerate(zip(whole, parts, strict=True))]
    heapq.heapify(longest)
    while missing > 0 and longest:
        _, index = heapq.heappop(longest)
        if parts[index] < whole[index].size:
            parts[index] += 1
            missing -= 1
            heapq.heappush(longest, (-whole[index].size / parts[index], index))
    return [part for each, count in zip(whole, parts, strict=True) for part in _cut(each, count)]


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    bounds = [whole.start + whole.size * part // parts for part in range(parts + 1)]
    return [replace(whole, start=start, end=end) for start, end in itertools.pairwise(bounds) if start < end]


def limited(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    limit: float,
    *,
    cost: Mapping[TopicPartition, float] | None = None,
) -> Positions:
    """`end` moved back so that about `limit` offsets lie between; partitions share it as they share what is there.

    With `cost` an offset counts that much (its bytes). Every partition that has anything moves by one offset at least:
    a small one must not starve beside a large one, and a limit below one record must not stop the stream.
    """
    costs = {partition: (cost or {}).get(partition, 1.0) for partition in end}
    sizes = {partition: max(0, end[partition] - start[partition]) for partition in end}
    total = sum(sizes[partition] * costs[partition] for partition in end)
    if total <= limit:
        return dict(end)
    moved = {}
    for partition, size in sizes.items():
        share = limit * size / total
        moved[partition] = min(end[partition], start[partition] + max(int(share), 1 if size else 0))
        if not size:
            moved[partition] = end[partition]
    return moved
