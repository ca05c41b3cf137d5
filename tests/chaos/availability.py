"""How long nobody could produce, per fault: read from the history alone. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

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

    A gap that reaches over the end counts in full, so that slow recovery is not cut short by the next fault.
    """
    longest_ns = 0
    for found in times.values():
        at = bisect_left(found, start_ns)
        before_ns = start_ns
        while at < len(found) and before_ns < end_ns:
            longest_ns = max(longest_ns, found[at] - before_ns)
            before_ns = found[at]
            at += 1
        if at >= len(found):
            longest_ns = max(longest_ns, end_ns - before_ns)
    return longest_ns / 1e9
