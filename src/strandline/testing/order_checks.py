"""The checks that follow one client through time: does it see each partition in order, without holes or steps back?

Pure. Each check is a small machine that is shown every operation in the order of the calls. `d` is the distance of two
records in the dense order of the partition: 1 for neighbours, more for a skip, less for a step back.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from strandline.testing.history import Assign, Committed, GivenProducerId, Member, Op, Poll, Send, Watermark
from strandline.testing.observed_log import ObservedLog
from strandline.testing.record_checks import Anomaly


def in_call_order(ops: Sequence[Op]) -> list[tuple[int, Op]]:
    """Operations with their index in the history, by the time of the call; equal times keep their order."""
    return sorted(enumerate(ops), key=lambda item: item[1].invoked_ns)


class _ConsumerPosition:
    """Where one process stands: the index of the last record of each partition, and the operation that read it."""

    def __init__(self) -> None:
        self.last: dict[str, tuple[int, int]] = {}
        self.subscribed = False

    def assign(self, op_index: int, op: Op, logs: Mapping[str, ObservedLog]) -> None:
        self.subscribed = False
        kept: dict[str, tuple[int, int]] = {}
        for mop in op.mops:
            if not isinstance(mop, Assign):
                continue
            if mop.position is None:
                if mop.partition in self.last:
                    kept[mop.partition] = self.last[mop.partition]
            elif mop.partition in logs:
                # The next record due is the first at or above the position, so the one before it counts as read.
                due = bisect_left(logs[mop.partition].sorted_offsets, mop.position)
                kept[mop.partition] = (due - 1, op_index)
        self.last = kept

    def subscribe(self) -> None:
        # A group moves partitions between members as it likes; only what one call returns must be in order.
        self.subscribed = True
        self.last = {}


def poll_order(ops: Sequence[tuple[int, Op]], logs: Mapping[str, ObservedLog]) -> Iterator[Anomaly]:
    """poll-skip and nonmonotonic-poll from call to call, int-poll-skip and int-nonmonotonic-poll inside one call."""
    positions: dict[int, _ConsumerPosition] = {}
    for op_index, op in ops:
        if op.f == "send" or op.outcome != "ok":
            continue
        position = positions.setdefault(op.process, _ConsumerPosition())
        if op.f == "assign":
            position.assign(op_index, op, logs)
        elif op.f == "subscribe":
            position.subscribe()
        elif op.f == "crash":
            positions[op.process] = _ConsumerPosition()
        else:
            for mop in op.mops:
                if isinstance(mop, Poll) and mop.records and mop.partition not in op.rebalanced:
                    yield from _poll_steps(op_index, op, mop, position, logs[mop.partition])


def _poll_steps(op_index: int, op: Op, poll: Poll, position: _ConsumerPosition, log: ObservedLog) -> Iterator[Anomaly]:
    index_of = log.index_of
    last = position.last.get(poll.partition)
    previous, previous_op = last if last is not None else (None, op_index)
    for offset, value in poll.records:
        index = index_of[offset]
        if previous is not None and index != previous + 1:
            prefix = "int-" if previous_op == op_index else ""
            kind = "poll-skip" if index > previous + 1 else "nonmonotonic-poll"
            before = f"offset {log.sorted_offsets[previous]}" if previous >= 0 else "the start"
            evidence = (
                f"process {op.process} read offset {offset} ({value!r}) after {before}: "
                f"d = {index - previous} where 1 is due"
            )
            yield Anomaly(prefix + kind, poll.partition, evidence, tuple(sorted({previous_op, op_index})))
        previous, previous_op = index, op_index
    if previous is not None and not position.subscribed:
        position.last[poll.partition] = (previous, op_index)


def send_order(ops: Sequence[tuple[int, Op]], logs: Mapping[str, ObservedLog]) -> Iterator[Anomaly]:
    """nonmonotonic-send: a later send of a process stands at or before an earlier one; int- inside one operation."""
    last: dict[tuple[int, str], tuple[int, int]] = {}
    for op_index, op in ops:
        if op.outcome != "ok":
            continue
        for mop in op.mops:
            if not isinstance(mop, Send) or mop.offset is None:
                continue
            index = logs[mop.partition].index_of[mop.offset]
            key = (op.process, mop.partition)
            before = last.get(key)
            if before is not None and index <= before[0]:
                previous, previous_op = before
                kind = "int-nonmonotonic-send" if previous_op == op_index else "nonmonotonic-send"
                evidence = (
                    f"process {op.process} was given offset {mop.offset} for {mop.value!r} after "
                    f"offset {logs[mop.partition].sorted_offsets[previous]}: d = {index - previous}"
                )
                yield Anomaly(kind, mop.partition, evidence, tuple(sorted({previous_op, op_index})))
            last[key] = (index, op_index)


def watermark_order(ops: Sequence[tuple[int, Op]]) -> Iterator[Anomaly]:
    """Find nonmonotonic-watermark: a client that asked for the end of a partition got a lower one than before."""
    highest: dict[tuple[int, str], tuple[int, int]] = {}
    for op_index, op in ops:
        if op.outcome != "ok":
            continue
        for mop in op.mops:
            if not isinstance(mop, Watermark):
                continue
            key = (op.process, mop.partition)
            high, high_op = highest.get(key, (mop.high, op_index))
            if mop.high < high:
                evidence = f"process {op.process} saw the high watermark at {high}, then at {mop.high}"
                yield Anomaly("nonmonotonic-watermark", mop.partition, evidence, (high_op, op_index))
            else:
                highest[key] = (mop.high, op_index)


def commit_order(ops: Sequence[tuple[int, Op]]) -> Iterator[Anomaly]:
    """Find nonmonotonic-commit: the only committer of a group read a lower position than it had committed or read.

    An acknowledged commit holds for every later read. One of unknown outcome may take effect at any time, even after
    later ones, so its position may be read ever after. Groups with members are judged by `group_checks`.
    """
    lowest: dict[tuple[int, str, str], tuple[int, int]] = {}
    unknown: set[tuple[int, str, str, int]] = set()
    with_members = {mop.group for _, op in ops for mop in op.mops if isinstance(mop, Member)}
    for op_index, op in ops:
        for mop in op.mops:
            if not isinstance(mop, Committed) or mop.group in with_members:
                continue
            key = (op.process, mop.group, mop.partition)
            if op.outcome != "ok":
                unknown.add((*key, mop.offset))
                continue
            due, due_op = lowest.get(key, (mop.offset, op_index))
            if op.f == "read_committed_offset" and mop.offset < due and (*key, mop.offset) not in unknown:
                evidence = f"process {op.process} read offset {mop.offset} of group {mop.group} after {due}"
                yield Anomaly("nonmonotonic-commit", mop.partition, evidence, (due_op, op_index))
            lowest[key] = (mop.offset, op_index)


def producer_id_twice(ops: Sequence[tuple[int, Op]]) -> Iterator[Anomaly]:
    """Two producers got one producer id: the broker would take records of one for retries of the other."""
    given: dict[int, int] = {}
    for op_index, op in ops:
        if op.outcome != "ok":
            continue
        for mop in op.mops:
            if isinstance(mop, GivenProducerId):
                earlier = given.setdefault(mop.producer_id, op_index)
                if earlier != op_index:
                    evidence = f"producer id {mop.producer_id} was given twice"
                    yield Anomaly("producer-id-twice", "", evidence, (earlier, op_index))


def realtime_lag_ns(ops: Sequence[tuple[int, Op]]) -> int:
    """Return the longest time between a record's being known to exist and the poll of a consumer that got it.

    A metric and no anomaly: a consumer may be as slow as it likes. Reading again does not count.
    """
    known = _existence(ops)
    longest = 0
    furthest: dict[tuple[int, str], int] = {}
    for _, op in ops:
        if op.outcome != "ok" or op.final:
            continue
        for mop in op.mops:
            if isinstance(mop, Poll) and mop.records:
                first, key = mop.records[0][0], (op.process, mop.partition)
                if first > furthest.get(key, -1):
                    offsets, times = known[mop.partition]
                    longest = max(longest, op.invoked_ns - times[bisect_left(offsets, first)])
                furthest[key] = max(furthest.get(key, -1), mop.records[-1][0])
    return longest


def _existence(ops: Sequence[tuple[int, Op]]) -> dict[str, tuple[list[int], list[int]]]:
    """Return the offsets of each partition in order, and when each, or a later one, was first known to exist."""
    seen: dict[str, list[tuple[int, int]]] = {}
    for _, op in ops:
        for mop in op.mops if op.outcome == "ok" else ():
            if isinstance(mop, Send) and mop.offset is not None:
                seen.setdefault(mop.partition, []).append((mop.offset, op.completed_ns))
            elif isinstance(mop, Poll) and mop.records:
                seen.setdefault(mop.partition, []).append((mop.records[-1][0], op.completed_ns))
    known: dict[str, tuple[list[int], list[int]]] = {}
    for partition, found in seen.items():
        found.sort()
        times = [time for _, time in found]
        for at in range(len(times) - 2, -1, -1):
            times[at] = min(times[at], times[at + 1])
        known[partition] = [offset for offset, _ in found], times
    return known
