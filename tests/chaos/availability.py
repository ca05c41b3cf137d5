"""How long nobody could produce, per fault, or read, faults not counted: taken from what clients saw alone. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from strandline.testing.history import Op, Send


def acknowledgement_times(ops: Sequence[Op]) -> dict[str, list[int]]:
    """When each partition acknowledged something, in order."""
    times: dict[str, list[int]] = {}
    for op in ops:
        if op.f == "send" and op.outcome == "ok":
            for mop in op.mops:
                if isinstance(mop, Send):
                    times.setdefault(mop.partition, []).append(op.completed_ns)
    for found in times.values():
        found.sort()
    return times


def longest_silence_s(times: dict[str, list[int]], start_ns: int, end_ns: int) -> float:
    """The longest span inside [start, end] in which some partition acknowledged nothing.

    What lies behind the end belongs to the next fault, which comes when the cluster has recovered from this one.
    """
    longest_ns = 0
    for found in times.values():
        inside = found[bisect_left(found, start_ns) : bisect_left(found, end_ns)]
        for before_ns, after_ns in pairwise([start_ns, *inside, end_ns]):
            longest_ns = max(longest_ns, after_ns - before_ns)
    return longest_ns / 1e9


def time_without(start_ns: int, end_ns: int, spans: Sequence[tuple[int, int]]) -> float:
    """Seconds from start to end outside the spans, which may overlap."""
    outside_ns, at_ns = 0, start_ns
    for begin, end in sorted(spans):
        outside_ns += max(0, min(begin, end_ns) - at_ns)
        at_ns = max(at_ns, min(end, end_ns))
    return (outside_ns + max(0, end_ns - at_ns)) / 1e9
