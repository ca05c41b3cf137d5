"""Checks of records: each is where it was acknowledged, once, and still there.

Pure. Each check takes the observed log of one partition and yields anomalies; the table in `checker` names them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from strandline.testing.observed_log import ObservedLog


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One thing that must not be, with the evidence in words and the indexes of the operations that prove it."""

    kind: str
    partition: str
    evidence: str
    ops: tuple[int, ...] = ()

    def __str__(self) -> str:
        proof = f" [op {', '.join(map(str, self.ops))}]" if self.ops else ""
        place = f"{self.partition}: " if self.partition else ""
        return f"{self.kind}: {place}{self.evidence}{proof}"


def _ops_about(log: ObservedLog, value: str) -> tuple[int, ...]:
    writer = log.writers.get(value)
    found = [writer.op_index] if writer else []
    found += [readers[value] for readers in (log.readers, log.polled) if value in readers]
    return tuple(found)


def inconsistent_offsets(log: ObservedLog) -> Iterator[Anomaly]:
    """Find inconsistent-offsets: one offset held two values."""
    for offset, values in sorted(log.more_values_at.items()):
        ops = tuple(op for value in sorted(values) for op in _ops_about(log, value))
        yield Anomaly("inconsistent-offsets", log.partition, f"offset {offset} held {sorted(values)}", ops)


def duplicate(log: ObservedLog) -> Iterator[Anomaly]:
    """Find duplicate: a value stands at two offsets. An idempotent producer's must not, however often it was sent."""
    for value, offsets in log.more_offsets_of.items():
        evidence = f"value {value!r} stands at offsets {sorted(offsets)}"
        yield Anomaly("duplicate", log.partition, evidence, _ops_about(log, value))


def lost_write(log: ObservedLog) -> Iterator[Anomaly]:
    """Find lost-write: a committed record was never read, though a later one was."""
    bound = max((log.first_offset(value) for value in log.readers), default=-1)
    for value, writer in log.writers.items():
        if value in log.readers or value not in log.offset_of or log.last_offset(value) > bound:
            continue
        if log.must_have_committed(writer):
            evidence = f"value {value!r} at offset {log.last_offset(value)} was never read, though offset {bound} was"
            yield Anomaly("lost-write", log.partition, evidence, _ops_about(log, value))


def unseen(log: ObservedLog) -> Iterator[Anomaly]:
    """Find unseen: an acknowledged record was never read, the final phase included."""
    for value, writer in log.writers.items():
        if writer.op.outcome == "ok" and value not in log.readers:
            place = "an unknown offset" if writer.offset is None else f"offset {writer.offset}"
            evidence = f"value {value!r} was acknowledged at {place} and never read"
            yield Anomaly("unseen", log.partition, evidence, (writer.op_index,))


def vanished(log: ObservedLog) -> Iterator[Anomaly]:
    """Find vanished: a record was read once and is missing from a full read at the end."""
    for process, found in log.final_reads.items():
        for value, op_index in log.readers.items():
            if value not in found:
                evidence = (
                    f"value {value!r} was read at offset {log.offset_of[value]} "
                    f"and is missing from the final read of process {process}"
                )
                yield Anomaly("vanished", log.partition, evidence, (op_index,))


def aborted_read(log: ObservedLog) -> Iterator[Anomaly]:
    """Find G1a (Adya): a record was read whose write certainly failed."""
    for value, op_index in log.readers.items():
        writer = log.writers.get(value)
        if writer is not None and writer.op.outcome == "fail":
            evidence = f"value {value!r} was read, but its write failed ({writer.op.error or 'no reason given'})"
            yield Anomaly("G1a", log.partition, evidence, (writer.op_index, op_index))


def phantom(log: ObservedLog) -> Iterator[Anomaly]:
    """Find phantom: a record was read that was never sent."""
    for readers in (log.readers, log.polled):
        for value, op_index in readers.items():
            if value not in log.writers:
                evidence = f"value {value!r} was read at offset {log.offset_of[value]} and never sent"
                yield Anomaly("phantom", log.partition, evidence, (op_index,))
