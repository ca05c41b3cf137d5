"""Checks of share groups: each task is done, once, not before its time, and in the order of its key. Pure.

A leader that was replaced and does not know it may give out tasks. It stores nothing, so what it gave cannot be
acknowledged. That is why a delivery is held against a group only if its consumer could acknowledge it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from strandline.testing.history import Acknowledged, Acquired, Op, Send, SharePosition
from strandline.testing.record_checks import Anomaly

FINISHED = ("accept", "reject")
SharePartitionName = tuple[str, str]
"""Group and partition."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A delivery, or an acknowledgement."""

    op_index: int
    op: Op
    count: int
    key: str | None = None

    @property
    def process(self) -> int:
        return self.op.process


@dataclass(slots=True)
class _Tasks:
    """What happened to the tasks of one share partition, by offset."""

    given: defaultdict[int, list[_Step]] = field(default_factory=lambda: defaultdict(list))
    accepted: defaultdict[int, list[_Step]] = field(default_factory=lambda: defaultdict(list))
    """Acceptances that were acknowledged."""
    held: set[tuple[int, int, int]] = field(default_factory=set)
    """Offset, process and count of deliveries that the consumer could acknowledge."""
    finished: set[int] = field(default_factory=set)
    """Tasks that a consumer accepted or rejected, whatever the answer was."""
    lost_answers: int = 0
    """Fetches without an answer: each may have delivered a task once more."""


def tasks(ops: Sequence[Op]) -> Iterator[Anomaly]:
    """Find double-acquire, early-delay, reordered-key, lost-task and stuck-task."""
    found = _tasks_of(ops)
    for (group, partition), each in found.items():
        yield from _double_acquire(group, partition, each)
        yield from _reordered_key(group, partition, each)
    yield from _early_delay(ops)
    yield from _at_the_end(ops, found)


def _tasks_of(ops: Sequence[Op]) -> dict[SharePartitionName, _Tasks]:
    found: defaultdict[SharePartitionName, _Tasks] = defaultdict(_Tasks)
    for op_index, op in enumerate(ops):
        for mop in op.mops:
            if isinstance(mop, Acquired):
                each = found[mop.group, mop.partition]
                if op.outcome == "ok":
                    each.given[mop.offset].append(_Step(op_index, op, mop.deliveries, mop.key))
                else:
                    each.lost_answers += 1
            elif isinstance(mop, Acknowledged):
                each = found[mop.group, mop.partition]
                if mop.kind in FINISHED and op.outcome != "fail":
                    each.finished.add(mop.offset)
                if op.outcome == "ok":
                    each.held.add((mop.offset, op.process, mop.deliveries))
                    if mop.kind == "accept":
                        each.accepted[mop.offset].append(_Step(op_index, op, mop.deliveries))
    return dict(found)


def _double_acquire(group: str, partition: str, tasks: _Tasks) -> Iterator[Anomaly]:
    for offset, accepted in sorted(tasks.accepted.items()):
        first = accepted[0]
        for other in accepted[1:]:
            if (other.process, other.count) != (first.process, first.count):
                evidence = f"group {group}: offset {offset} was accepted by {first.process} and {other.process}"
                yield Anomaly("double-acquire", partition, evidence, (first.op_index, other.op_index))
        for given in tasks.given[offset]:
            is_held = (offset, given.process, given.count) in tasks.held
            if is_held and given.op.invoked_ns > first.op.completed_ns:
                evidence = (
                    f"group {group}: offset {offset} was accepted by {first.process}, then given to {given.process}"
                )
                yield Anomaly("double-acquire", partition, evidence, (first.op_index, given.op_index))


def _reordered_key(group: str, partition: str, tasks: _Tasks) -> Iterator[Anomaly]:
    """A task was given while one before it of the same key was accepted only later."""
    last_accepted: dict[str, tuple[int, _Step]] = {}
    """By key: of the tasks so far, the one that was accepted last."""
    for offset, steps in sorted(tasks.given.items()):
        key = steps[0].key
        if key is None:
            continue
        before = last_accepted.get(key)
        for given in steps if before is not None else ():
            assert before is not None
            is_held = (offset, given.process, given.count) in tasks.held
            if is_held and before[1].op.invoked_ns > given.op.completed_ns:
                evidence = f"group {group}: offset {offset} of key {key!r} was given before {before[0]} was accepted"
                yield Anomaly("reordered-key", partition, evidence, (given.op_index, before[1].op_index))
                break
        for step in tasks.accepted.get(offset, ()):
            if before is None or step.op.invoked_ns > before[1].op.invoked_ns:
                before = last_accepted[key] = offset, step


def _early_delay(ops: Sequence[Op]) -> Iterator[Anomaly]:
    for op_index, op in enumerate(ops):
        for mop in op.mops:
            if isinstance(mop, Acquired) and op.outcome == "ok" and mop.early_ms > 0:
                evidence = f"group {mop.group}: offset {mop.offset} was given {mop.early_ms} ms before it was due"
                yield Anomaly("early-delay", mop.partition, evidence, (op_index,))


def _at_the_end(ops: Sequence[Op], found: dict[SharePartitionName, _Tasks]) -> Iterator[Anomaly]:
    sent: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for op_index, op in enumerate(ops):
        for mop in op.mops:
            if isinstance(mop, Send) and op.outcome == "ok" and mop.offset is not None:
                sent[mop.partition][mop.offset] = op_index
    for op_index, op in enumerate(ops):
        for mop in op.mops if op.final else ():
            if not isinstance(mop, SharePosition):
                continue
            tasks = found.get((mop.group, mop.partition), _Tasks())
            for offset, send_index in sorted(sent[mop.partition].items()):
                deliveries = max((each.count for each in tasks.given.get(offset, ())), default=0)
                if offset >= mop.offset:
                    evidence = f"group {mop.group}: offset {offset} is not done; the start offset is {mop.offset}"
                    yield Anomaly("stuck-task", mop.partition, evidence, (send_index, op_index))
                elif offset not in tasks.finished and deliveries + tasks.lost_answers < mop.limit:
                    evidence = f"group {mop.group}: offset {offset} was never accepted or rejected, and is done"
                    yield Anomaly("lost-task", mop.partition, evidence, (send_index, op_index))
