"""What all clients together observed of each partition: the value at each offset, its writer and its readers.

Pure. Built once from a history and read by every check.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from strandline.testing.history import Op, Poll, Send


@dataclass(slots=True)
class Writer:
    """The operation that sent a value: its place in the history, its outcome, and the offset it was given."""

    op_index: int
    op: Op
    offset: int | None


@dataclass
class ObservedLog:
    """One partition as the history shows it. The common case, one value per offset and one offset per value, is two
    plain dicts; what breaks it stands beside them.
    """

    partition: str
    value_at: dict[int, str] = field(default_factory=dict)
    offset_of: dict[str, int] = field(default_factory=dict)
    more_values_at: dict[int, set[str]] = field(default_factory=dict)
    more_offsets_of: dict[str, set[int]] = field(default_factory=dict)
    writers: dict[str, Writer] = field(default_factory=dict)
    readers: dict[str, int] = field(default_factory=dict)
    """Each value that an ok poll returned, with the index of the first such operation."""
    polled: dict[str, int] = field(default_factory=dict)
    """The same for polls of any outcome: a poll must never show unsafe records, however it ended."""
    final_reads: dict[int, set[str]] = field(default_factory=dict)
    """What each process read in the final phase."""
    proven: set[int] = field(default_factory=set)
    """Transactions, by their index in the history, of which a record was read, in any partition."""

    def place(self, offset: int, value: str) -> None:
        known_value = self.value_at.setdefault(offset, value)
        if known_value != value:
            self.more_values_at.setdefault(offset, {known_value}).add(value)
        known_offset = self.offset_of.setdefault(value, offset)
        if known_offset != offset:
            self.more_offsets_of.setdefault(value, {known_offset}).add(offset)

    def observe_poll(self, op_index: int, op: Op, records: Sequence[tuple[int, str]]) -> None:
        readers = self.readers if op.outcome == "ok" else self.polled
        value_at, offset_of = self.value_at, self.offset_of
        for offset, value in records:
            # This loop runs once per record read, so the common case is written out.
            if value_at.setdefault(offset, value) != value or offset_of.setdefault(value, offset) != offset:
                self.place(offset, value)
            if value not in readers:
                readers[value] = op_index
        if op.final and op.outcome == "ok":
            self.final_reads.setdefault(op.process, set()).update(value for _, value in records)

    def must_have_committed(self, writer: Writer) -> bool:
        """Whether the write certainly happened: it was acknowledged, or its outcome is unknown and it was read."""
        if writer.op.outcome == "ok":
            return True
        if writer.op.f == "txn":
            return writer.op.outcome == "info" and writer.op_index in self.proven
        # An operation is one whole, so any of its values that was read proves all of them.
        return writer.op.outcome == "info" and any(
            isinstance(mop, Send) and mop.partition == self.partition and mop.value in self.readers
            for mop in writer.op.mops
        )

    def first_offset(self, value: str) -> int:
        more = self.more_offsets_of.get(value)
        return min(more) if more else self.offset_of[value]

    def last_offset(self, value: str) -> int:
        more = self.more_offsets_of.get(value)
        return max(more) if more else self.offset_of[value]

    @cached_property
    def sorted_offsets(self) -> list[int]:
        return sorted(self.value_at)

    @cached_property
    def index_of(self) -> dict[int, int]:
        """The dense rank of each offset. Control records take offsets that no client sees, so plain differences of
        offsets would show gaps where there are none."""
        return {offset: index for index, offset in enumerate(self.sorted_offsets)}


def observe(ops: Sequence[Op]) -> dict[str, ObservedLog]:
    """Return the observed log of each partition that was sent to or polled. ValueError if a value was sent twice."""
    logs: dict[str, ObservedLog] = {}
    proven: set[int] = set()
    for op_index, op in enumerate(ops):
        for mop in op.mops:
            if isinstance(mop, Poll):
                _log_of(logs, mop.partition).observe_poll(op_index, op, mop.records)
            elif isinstance(mop, Send):
                writer = Writer(op_index, op, mop.offset)
                earlier = _log_of(logs, mop.partition).writers.setdefault(mop.value, writer)
                if earlier is not writer:
                    raise ValueError(
                        f"{mop.partition}: value {mop.value!r} was sent by op {earlier.op_index} and by op {op_index}; "
                        "a value must name one record"
                    )
    for op_index, op in enumerate(ops):
        if op.f == "txn" and any(isinstance(mop, Send) and mop.value in logs[mop.partition].readers for mop in op.mops):
            proven.add(op_index)
    # Sends come after all polls, because a send of unknown outcome counts only if a poll has proven it.
    for log in logs.values():
        log.proven = proven
        for value, writer in log.writers.items():
            if writer.offset is not None and log.must_have_committed(writer):
                log.place(writer.offset, value)
    return logs


def _log_of(logs: dict[str, ObservedLog], partition: str) -> ObservedLog:
    log = logs.get(partition)
    if log is None:
        log = logs[partition] = ObservedLog(partition)
    return log
