"""Checks of a group: each record is processed before the group's position passes it, and fenced members move nothing.

Pure. A process is a member of the group that its `Member` names; what it polls counts as processed. A group is expected
to begin at the start of each partition. Commits of outcome `fail` were rejected. Those of outcome `info` may take
effect late, but not after another member has committed, because their sender is fenced by then.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from strandline.testing.history import Committed, Member, Op, Poll
from strandline.testing.observed_log import ObservedLog
from strandline.testing.record_checks import Anomaly

NO_PROCESS = -1
MOVES = ("commit", "txn")
"""Operations that move a position. A transaction's moves with its marker, after the answer. Until then a client that
asks for stable positions has to retry, so no client can see the difference."""
GroupPartition = tuple[str, str]


def groups_of(ops: Sequence[Op]) -> dict[int, str]:
    """Return the group of each process that is a member of one."""
    return {op.process: mop.group for op in ops for mop in op.mops if isinstance(mop, Member)}


def group_skip(ops: Sequence[Op], logs: Mapping[str, ObservedLog]) -> Iterator[Anomaly]:
    """Find group-skip: a position was committed or read before all records below it were processed."""
    processed = _processed(ops)
    reported: set[tuple[str, str, int]] = set()
    last_read: dict[GroupPartition, list[float]] = {}
    for op_index, op in enumerate(ops):
        for mop in op.mops:
            if not isinstance(mop, Committed) or op.outcome != "ok" or mop.group not in processed:
                continue
            log = logs.get(mop.partition)
            count = 0 if log is None else bisect_left(log.sorted_offsets, mop.offset)
            if log is None or count == 0:
                continue
            key = mop.group, mop.partition
            if key not in last_read:
                last_read[key] = _last_read(log.sorted_offsets, processed[mop.group].get(mop.partition, {}))
            at_ns = op.invoked_ns if op.f in MOVES else op.completed_ns
            skipped = bisect_right(last_read[key], at_ns)
            if skipped < count and (*key, skipped) not in reported:
                # A hole is reported once, not with every commit above it.
                reported.add((*key, skipped))
                offset = log.sorted_offsets[skipped]
                evidence = (
                    f"group {mop.group} stood at {mop.offset} (process {op.process}), and no member had processed "
                    f"offset {offset} ({log.value_at[offset]!r})"
                )
                yield Anomaly("group-skip", mop.partition, evidence, (op_index,))


def _processed(ops: Sequence[Op]) -> dict[str, dict[str, dict[int, int]]]:
    """By group, partition and offset: when a member had first processed the record."""
    groups = groups_of(ops)
    processed: dict[str, dict[str, dict[int, int]]] = {group: {} for group in groups.values()}
    for op in ops:
        group = groups.get(op.process)
        if group is None or op.outcome != "ok":
            continue
        for mop in op.mops:
            if isinstance(mop, Poll):
                times = processed[group].setdefault(mop.partition, {})
                for offset, _ in mop.records:
                    if times.setdefault(offset, op.completed_ns) > op.completed_ns:
                        times[offset] = op.completed_ns
    return processed


def _last_read(offsets: Sequence[int], processed: Mapping[int, int]) -> list[float]:
    """For each offset when it and all before it had been processed; never falls, so it can be searched."""
    latest, times = -inf, []
    for offset in offsets:
        latest = max(latest, processed.get(offset, inf))
        times.append(latest)
    return times


@dataclass(slots=True)
class _Unknown:
    """A commit that may be carried out at any time."""

    offset: int
    process: int
    invoked_ns: int


@dataclass(slots=True)
class _Position:
    """What is known of a group's position in a partition, in the order in which it became known."""

    completed_ns: list[int] = field(default_factory=list)
    known: list[tuple[int, int, int]] = field(default_factory=list)
    """Offset, the process that committed it or NO_PROCESS if it was read, and the operation."""
    unknown: list[_Unknown] = field(default_factory=list)
    commits: list[tuple[int, Op]] = field(default_factory=list)
    """Offsets, with the operations that committed them, or may have."""

    def before(self, at_ns: int) -> tuple[int, int, int] | None:
        """Return what was last known when an operation began."""
        count = bisect_right(self.completed_ns, at_ns)
        return self.known[count - 1] if count else None

    def learn(self, op_index: int, op: Op, offset: int, process: int) -> None:
        self.completed_ns.append(op.completed_ns)
        self.known.append((offset, process, op_index))

    def is_excused(self, op: Op, offset: int, process: int) -> bool:
        """Whether a commit of another process, of unknown outcome or in flight, may have moved it so low."""
        return any(each.offset <= offset and each.process != process for each in self.unknown) or any(
            other <= offset and commit.process != process and commit.invoked_ns <= op.completed_ns
            for other, commit in self.commits
            if commit.completed_ns >= op.invoked_ns
        )


def positions(ops: Sequence[Op]) -> Iterator[Anomaly]:
    """zombie-commit and nonmonotonic-position, for groups that have members."""
    with_members = set(groups_of(ops).values())
    found: dict[GroupPartition, _Position] = {}
    moves = [
        (op_index, op, mop)
        for op_index, op in sorted(enumerate(ops), key=lambda item: item[1].completed_ns)
        for mop in op.mops
        if isinstance(mop, Committed) and mop.group in with_members and op.outcome != "fail"
    ]
    for _, op, mop in moves:
        if op.f in MOVES:
            found.setdefault((mop.group, mop.partition), _Position()).commits.append((mop.offset, op))
    for op_index, op, mop in moves:
        position = found.setdefault((mop.group, mop.partition), _Position())
        if op.outcome == "info":
            position.unknown.append(_Unknown(mop.offset, op.process, op.invoked_ns))
        elif op.f in MOVES:
            yield from _on_commit(position, op_index, op, mop)
        else:
            yield from _on_read(position, op_index, op, mop)


def _on_commit(position: _Position, op_index: int, op: Op, mop: Committed) -> Iterator[Anomaly]:
    known = position.before(op.invoked_ns)
    is_back = known is not None and mop.offset < known[0] and known[1] not in (NO_PROCESS, op.process)
    if known is not None and is_back and not position.is_excused(op, mop.offset, op.process):
        evidence = (
            f"process {op.process} moved group {mop.group} back to {mop.offset}, after process {known[1]} had "
            f"committed {known[0]}"
        )
        yield Anomaly("zombie-commit", mop.partition, evidence, (known[2], op_index))
    # This process owns the partition now, so what others have in flight from before is fenced.
    position.unknown = [
        each for each in position.unknown if each.process == op.process or each.invoked_ns > op.invoked_ns
    ]
    position.learn(op_index, op, mop.offset, op.process)


def _on_read(position: _Position, op_index: int, op: Op, mop: Committed) -> Iterator[Anomaly]:
    known = position.before(op.invoked_ns)
    if known is not None and mop.offset < known[0] and not position.is_excused(op, mop.offset, NO_PROCESS):
        evidence = f"process {op.process} read offset {mop.offset} of group {mop.group} after {known[0]} was known"
        yield Anomaly("nonmonotonic-position", mop.partition, evidence, (known[2], op_index))
    is_same = known is not None and known[0] == mop.offset
    position.learn(op_index, op, mop.offset, known[1] if known is not None and is_same else NO_PROCESS)
