"""Where one object ends and the next begins: decided by the records alone.

A partition is cut into chunks. A chunk ends when it has `flush.size` records or `buffer.bytes.max` bytes, before a
record whose timestamp is `rotate.interval.ms` behind that of the first one, and before a record with another schema.
Its records go into one object for each path. All objects of a chunk are complete before its end is an offset to go on
from. So a task that begins there again makes the same chunks and the same objects, however its batches are cut.
"""

from __future__ import annotations

import marshal
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from strandline.connect.records import SinkRecord
from strandline.connect.sinks.lake.columns import Shape, is_same_shape, shape_of

_MARSHAL_VERSION: Final = 2
"""Later versions write an object once and refer to it, so the size would depend on which strings are shared."""


@dataclass(frozen=True)
class CutRules:
    """When a chunk ends."""

    records_max: int
    bytes_max: int
    span_ms: int | None = None
    """Record time from the first record on."""


@dataclass
class ObjectChunk:
    """Records of one partition that are stored together."""

    opened_at: float
    """Monotonic time, for cuts by the clock."""
    groups: dict[str, list[SinkRecord]] = field(default_factory=dict)
    """Records by the path of their object."""
    shape: Shape | None = None
    records: int = 0
    size_bytes: int = 0
    end: int = 0
    """The offset behind its last record."""
    _first_ms: int | None = None

    def take(self, records: Sequence[SinkRecord], paths: Sequence[str], start: int, rules: CutRules) -> int:
        """Take records from an index on, up to where the chunk ends. Return how many.

        This runs once for each record, so it asks for the shape only where schema or class have changed.
        """
        groups, span_ms, shape = self.groups, rules.span_ms, self.shape
        count, size_bytes = self.records, self.size_bytes
        known: tuple[object, object] | None = None
        at = start
        for record in records[start:] if start else records:
            if span_ms is not None and self._is_later(record, span_ms):
                break
            value = record.value
            if value is not None and (
                known is None or type(value) is not known[0] or record.value_schema is not known[1]
            ):
                own = shape_of(record)
                if shape is None:
                    shape = own
                elif own is not None and not is_same_shape(own, shape):
                    break
                known = (type(value), record.value_schema)
            path = paths[at]
            if path in groups:
                groups[path].append(record)
            else:
                groups[path] = [record]
            at += 1
            count += 1
            size_bytes += size_of(value)
            if count >= rules.records_max or size_bytes >= rules.bytes_max:
                break
        self.records, self.size_bytes, self.shape = count, size_bytes, shape
        if at > start:
            self.end = records[at - 1].offset + 1
        return at - start

    def is_full(self, rules: CutRules) -> bool:
        return self.records >= rules.records_max or self.size_bytes >= rules.bytes_max

    def _is_later(self, record: SinkRecord, span_ms: int) -> bool:
        """Return whether a record is too late for this chunk, by its timestamp."""
        if record.timestamp_ms is None:
            return False
        if self._first_ms is None:
            self._first_ms = record.timestamp_ms
        return record.timestamp_ms - self._first_ms >= span_ms


def size_of(value: Any) -> int:
    """Return about how large a value is, the same in every process."""
    if type(value) is bytes or type(value) is str:
        return len(value)
    try:
        return len(marshal.dumps(value, _MARSHAL_VERSION))
    except ValueError:
        return len(repr(value))
