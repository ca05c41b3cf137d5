"""Where one object ends and the next begins: decided by the records alone.

A partition is cut into chunks. A chunk ends when it has `flush.size` records or `buffer.bytes.max` bytes, before a
record whose timestamp is `rotate.interval.ms` behind that of the first one, and before a record with another schema.
Its records go into one object for each path. All objects of a chunk are complete before its end is an offset to go on
from. So a task that begins there again makes the same chunks and the same objects, however its batches are cut.
"""

from __future__ import annotations

import marshal
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final

from strandline.connect.records import SinkRecord
from strandline.connect.sinks.lake.columns import Shape, is_same_shape, shape_of

_MARSHAL_VERSION: Final = 2
"""Later versions write an object once and refer to it, so the size would depend on which strings are shared."""


_TOGETHER: Final = 1_000
"""Records that are looked at before it is known whether all are taken."""


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

        There are tens of thousands in a batch, so what can be is asked of many of them at once.
        """
        at = start
        while at < len(records) and not self.is_full(rules):
            some = records[at : at + min(_TOGETHER, rules.records_max - self.records)]
            count = self._take(some, paths[at : at + len(some)], rules)
            at += count
            if count < len(some):
                break
        if at > start:
            self.end = records[at - 1].offset + 1
        return at - start

    def is_full(self, rules: CutRules) -> bool:
        return self.records >= rules.records_max or self.size_bytes >= rules.bytes_max

    def _take(self, records: Sequence[SinkRecord], paths: Sequence[str], rules: CutRules) -> int:
        """Take records up to where the chunk ends by time, shape or bytes; all if it does not. Return how many."""
        if rules.span_ms is not None:
            records = records[: self._in_time(records, rules.span_ms)]
        values = [each.value for each in records]
        kinds = set(map(type, values))
        sizes = map(len if kinds <= {bytes, str} else size_of, values)
        totals = list(accumulate(sizes, initial=self.size_bytes))
        # Shapes last: a record that is not taken must not decide that of the chunk.
        records = records[: bisect_left(totals, rules.bytes_max)]
        count = self._of_one_shape(records, is_one_kind=len(kinds) == 1)
        self.records += count
        self.size_bytes = totals[count]
        if len(set(paths[:count])) == 1:
            self.groups.setdefault(paths[0], []).extend(records[:count])
        else:
            for path, record in zip(paths[:count], records, strict=False):
                self.groups.setdefault(path, []).append(record)
        return count

    def _in_time(self, records: Sequence[SinkRecord], span_ms: int) -> int:
        """Return how many records come before the first that is too late for this chunk, by its timestamp."""
        for index, record in enumerate(records):
            if record.timestamp_ms is None:
                continue
            if self._first_ms is None:
                self._first_ms = record.timestamp_ms
            if record.timestamp_ms - self._first_ms >= span_ms:
                return index
        return len(records)

    def _of_one_shape(self, records: Sequence[SinkRecord], *, is_one_kind: bool) -> int:
        """Return how many records come before the first of another shape. A record without a value has none."""
        if is_one_kind and len({id(each.value_schema) for each in records}) == 1:
            # Class and schema decide, so the first speaks for all.
            return len(records) if self._fits(records[0]) else 0
        known: tuple[object, object] | None = None
        for index, record in enumerate(records):
            kind = type(record.value), record.value_schema
            if known is None or kind[0] is not known[0] or kind[1] is not known[1]:
                if not self._fits(record):
                    return index
                known = kind
        return len(records)

    def _fits(self, record: SinkRecord) -> bool:
        """Return whether a record has the shape of the chunk, which is that of the first record that has one."""
        own = shape_of(record)
        if own is None:
            return True
        if self.shape is None:
            self.shape = own
        return is_same_shape(own, self.shape)


def size_of(value: Any) -> int:
    """Return about how large a value is, the same in every process."""
    if type(value) is bytes or type(value) is str:
        return len(value)
    try:
        return len(marshal.dumps(value, _MARSHAL_VERSION))
    except ValueError:
        return len(repr(value))
