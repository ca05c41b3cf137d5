"""Checks of transactions: each is seen whole and only when it is committed, and each input counts once.

Pure. A transaction counts if it was acknowledged, or if its outcome is unknown and a record of it was read. Aborted
records that were read are G1a, committed ones that were not are unseen or lost: `record_checks` reports both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from strandline.testing.history import Committed, Consumed, Op, Poll, Send
from strandline.testing.observed_log import ObservedLog
from strandline.testing.record_checks import Anomaly


def counts(op_index: int, op: Op, logs: Mapping[str, ObservedLog]) -> bool:
    """Whether the transaction certainly was committed."""
    if op.outcome == "ok":
        return True
    return op.outcome == "info" and any(
        op_index in logs[mop.partition].proven for mop in op.mops if isinstance(mop, Send)
    )


def precommitted_read(ops: Sequence[Op], logs: Mapping[str, ObservedLog]) -> Iterator[Anomaly]:
    """Find precommitted-read: a record was read before the commit of its transaction was asked for."""
    for op_index, op in enumerate(ops):
        for mop in op.mops:
            if not isinstance(mop, Poll):
                continue
            for offset, value in mop.records:
                writer = logs[mop.partition].writers.get(value)
                if writer is None or writer.op.f != "txn" or writer.op.outcome == "fail":
                    continue
                if op.completed_ns < writer.op.invoked_ns or writer.op_index == op_index:
                    evidence = (
                        f"process {op.process} read {value!r} at offset {offset} before process {writer.op.process} "
                        "asked for the commit of its transaction"
                    )
                    yield Anomaly("precommitted-read", mop.partition, evidence, (writer.op_index, op_index))


def torn(ops: Sequence[Op], logs: Mapping[str, ObservedLog]) -> Iterator[Anomaly]:
    """Of a transaction some records were read, and others are in no final read."""
    for op_index, op in enumerate(ops):
        if op.f != "txn" or op.outcome == "fail":
            continue
        sends = [mop for mop in op.mops if isinstance(mop, Send)]
        seen = [mop for mop in sends if mop.value in logs[mop.partition].readers]
        missing = [
            mop for mop in sends if any(mop.value not in read for read in logs[mop.partition].final_reads.values())
        ]
        if seen and missing:
            evidence = (
                f"of a transaction of process {op.process} {seen[0].value!r} was read in {seen[0].partition}, and "
                f"{len(missing)} of {len(sends)} records are missing, the first is {missing[0].value!r}"
            )
            yield Anomaly("torn", missing[0].partition, evidence, (op_index,))


def exactly_once(ops: Sequence[Op], logs: Mapping[str, ObservedLog]) -> Iterator[Anomaly]:
    """doubled and skipped: what transactions of a group took from a partition lies side by side, up to its position."""
    taken: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
    final: dict[tuple[str, str], tuple[int, int]] = {}
    for op_index, op in enumerate(ops):
        for mop in op.mops:
            if isinstance(mop, Consumed) and counts(op_index, op, logs):
                taken.setdefault((mop.group, mop.partition), []).append((mop.start, mop.end, op_index))
            elif isinstance(mop, Committed) and op.final and op.outcome == "ok":
                final[mop.group, mop.partition] = mop.offset, op_index
    for (group, partition), ranges in sorted(taken.items()):
        due, due_op = 0, -1
        position, position_op = final.get((group, partition), (None, -1))
        for start, end, op_index in sorted(ranges):
            if start < due:
                evidence = f"group {group} consumed offsets {start} to {min(end, due)} twice"
                yield Anomaly("doubled", partition, evidence, (due_op, op_index))
            elif start > due:
                evidence = f"group {group} consumed nothing from offset {due} to {start}"
                yield Anomaly("skipped", partition, evidence, (op_index,))
            if end > due:
                due, due_op = end, op_index
        if position is not None and position > due:
            evidence = f"group {group} stands at {position}, and consumed nothing from offset {due} on"
            yield Anomaly("skipped", partition, evidence, (position_op,))
        elif position is not None and position < due:
            evidence = f"group {group} stands at {position}, and consumed up to {due}: what lies between comes again"
            yield Anomaly("doubled", partition, evidence, (due_op, position_op))
