"""The records of several partitions together, the newest first or the oldest first, as far as limits allow.

Within a partition the order of offsets is the truth; between partitions timestamps decide. From the end windows grow,
so that the first records are there after one small fetch, whatever their size. `marks` say where to go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from strandline.cli.common.positions import Earliest, Latest, Position, TimePosition, start_offset
from strandline.client.cluster_client import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, ClusterClient
from strandline.client.failures import TopicMissing
from strandline.console.reading.record_spans import (
    ABORTED,
    FETCH_BYTES_MIN,
    OPEN,
    FoundRecord,
    PartitionBounds,
    ReadLimits,
    SpanReader,
    begin_together,
)
from strandline.ids import TopicPartition

RECORDS_LOOKED_AT_MAX: Final = 100_000
BYTES_MAX: Final = 32 * 1024 * 1024
SECONDS_MAX: Final = 4.0
PARTITIONS_READ_MAX: Final = 200
"""Partitions that are read together; a visitor chooses some of a topic that has more."""
_WINDOW: Final = 2
_WINDOW_GROWTH: Final = 8
_WINDOW_MAX: Final = 4096

Wanted = Callable[[FoundRecord], bool]


@dataclass(frozen=True)
class RecordsAsked:
    """Which records of a topic. `begin` is Latest for the newest; `marks` go on where another answer ended."""

    topic: str
    count: int
    begin: Position = field(default_factory=Latest)
    partitions: Sequence[int] = ()
    """All of them if empty."""
    marks: Mapping[int, int] = field(default_factory=dict)
    is_committed_only: bool = False


@dataclass
class RecordsRead:
    """The answer. `marks` is where its neighbour begins, by partition; empty at the end of the log."""

    records: list[FoundRecord]
    marks: dict[int, int]
    bounds: dict[int, PartitionBounds]
    looked_at: int
    read_bytes: int
    stopped: str
    """Which limit ended it; empty if none did."""
    notes: list[str]


def read_bounds(
    client: ClusterClient, topic: str, partitions: Sequence[int], notes: list[str]
) -> dict[int, PartitionBounds]:
    """Return where the partitions begin and end. Those without a leader are missing, and noted."""
    found = client.topic(topic)
    if found is None:
        raise TopicMissing(f"topic {topic} does not exist, or no longer")
    unknown = sorted(set(partitions) - set(found.leaders))
    if unknown:
        raise TopicMissing(f"topic {topic} has no partition {unknown[0]}; it has {len(found.leaders):,}")
    chosen = sorted(partitions or found.leaders)
    if len(chosen) > PARTITIONS_READ_MAX:
        notes.append(f"{PARTITIONS_READ_MAX:,} of {len(chosen):,} partitions are read; choose others by number")
        chosen = chosen[:PARTITIONS_READ_MAX]
    led = [each for each in chosen if found.leaders[each] >= 0]
    if len(led) < len(chosen):
        notes.append(f"{len(chosen) - len(led):,} of {len(chosen):,} partitions have no leader, and cannot be read")
    places = [TopicPartition(topic, each) for each in led]
    starts = client.list_offsets(dict.fromkeys(places, EARLIEST), isolation_level=READ_UNCOMMITTED)
    stables = client.list_offsets(dict.fromkeys(places, LATEST), isolation_level=READ_COMMITTED)
    ends = client.list_offsets(dict.fromkeys(places, LATEST), isolation_level=READ_UNCOMMITTED)
    return {
        each.partition: PartitionBounds(
            topic, each.partition, found.topic_id, starts[each], min(stables[each], ends[each]), ends[each]
        )
        for each in places
    }


def read_records(
    client: ClusterClient, asked: RecordsAsked, clock: Callable[[], float], wanted: Wanted | None = None
) -> RecordsRead:
    """Return records as they are asked for: from Latest backwards, from any other position forwards."""
    limits = ReadLimits(clock, RECORDS_LOOKED_AT_MAX, BYTES_MAX, SECONDS_MAX)
    notes: list[str] = []
    bounds = read_bounds(client, asked.topic, asked.partitions, notes)
    is_backward = isinstance(asked.begin, Latest)
    begins = {} if is_backward else _begins(client, asked, bounds)
    takes = _taken(asked, wanted)
    sources: list[_Source] = []
    for partition, each in bounds.items():
        reader = SpanReader(client, each, limits, notes)
        mark = asked.marks.get(partition)
        if is_backward:
            end = each.end if mark is None else max(each.start, min(mark, each.end))
            sources.append(_Backward(reader, each.start, end, takes))
        else:
            first = begins[partition] if mark is None else max(each.start, mark)
            sources.append(_Forward(reader, first, each.end, takes))
    records = _merged(client, sources, asked.count, limits, is_backward=is_backward)
    marks = {each.partition: mark for each in sources if (mark := each.mark()) is not None}
    return RecordsRead(
        records,
        marks if any(not each.is_over for each in sources) else {},
        bounds,
        limits.looked_at,
        limits.read_bytes,
        limits.reason if len(records) < asked.count else "",
        notes,
    )


def _taken(asked: RecordsAsked, wanted: Wanted | None) -> Wanted:
    def takes(found: FoundRecord) -> bool:
        if asked.is_committed_only and found.state in (ABORTED, OPEN):
            return False
        return wanted is None or wanted(found)

    return takes


def _begins(client: ClusterClient, asked: RecordsAsked, bounds: Mapping[int, PartitionBounds]) -> dict[int, int]:
    at_time: dict[int, int] = {}
    if isinstance(asked.begin, TimePosition) and not asked.marks:
        places = {TopicPartition(asked.topic, each): asked.begin.timestamp_ms for each in bounds}
        found = client.list_offsets(places, isolation_level=READ_UNCOMMITTED)
        at_time = {place.partition: offset for place, offset in found.items() if offset >= 0}
    position = Earliest() if asked.marks else asked.begin
    return {
        partition: start_offset(
            position, log_start_offset=each.start, end_offset=each.end, offset_at_time=at_time.get(partition)
        )
        for partition, each in bounds.items()
    }


class _Source:
    """One partition of a merge: records that were read and not yet given out, and the span that is not yet read."""

    def __init__(self, reader: SpanReader, first: int, end: int, takes: Wanted) -> None:
        self.reader = reader
        self._takes = takes
        self.first = first
        self.end = end
        self.buffer: deque[FoundRecord] = deque()

    @property
    def partition(self) -> int:
        return self.reader.bounds.partition

    @property
    def is_read(self) -> bool:
        return self.first >= self.end

    @property
    def is_over(self) -> bool:
        return self.is_read and not self.buffer

    @property
    def is_empty(self) -> bool:
        return not self.buffer and not self.is_read

    @property
    def is_low(self) -> bool:
        """Whether it is soon empty, and more of it costs little."""
        return False

    def next_start(self, limits: ReadLimits) -> int:
        """Return where the span begins that is read next."""
        raise NotImplementedError

    def read_on(self, limits: ReadLimits) -> None:
        raise NotImplementedError

    def fill(self, limits: ReadLimits) -> None:
        """Read until there is a record, or no more of them, or a limit is reached."""
        while self.is_empty and not limits.reached():
            self.read_on(limits)

    def mark(self) -> int | None:
        raise NotImplementedError


class _Forward(_Source):
    def next_start(self, limits: ReadLimits) -> int:
        return self.first

    def read_on(self, limits: ReadLimits) -> None:
        for records, behind in self.reader.pieces(self.first, self.end):
            self.buffer.extend(each for each in records if self._takes(each))
            self.first = behind
            return
        # What is left was compacted.
        self.first = self.end

    def mark(self) -> int | None:
        return self.buffer[0].record.offset if self.buffer else self.first


class _Backward(_Source):
    _window = _WINDOW

    @property
    def is_low(self) -> bool:
        is_cheap = self._window * self.reader.bytes_per_offset <= FETCH_BYTES_MIN
        return len(self.buffer) <= _WINDOW and not self.is_read and is_cheap

    def next_start(self, limits: ReadLimits) -> int:
        window = self._window
        if self.reader.bytes_per_offset:
            # A window that is begun must fit, because its oldest records alone are not the newest.
            window = max(1, min(window, int(limits.bytes_left / self.reader.bytes_per_offset)))
        return max(self.first, self.end - window)

    def read_on(self, limits: ReadLimits) -> None:
        begin = self.next_start(limits)
        found: list[FoundRecord] = []
        reached = begin
        for records, behind in self.reader.pieces(begin, self.end):
            found += [each for each in records if self._takes(each)]
            reached = behind
        if reached < self.end and limits.reached():
            return
        self.buffer.extend(reversed(found))
        self.end = begin
        self._window = min(self._window * _WINDOW_GROWTH, _WINDOW_MAX)

    def mark(self) -> int | None:
        return self.buffer[0].record.offset + 1 if self.buffer else self.end


def _merged(
    client: ClusterClient, sources: list[_Source], count: int, limits: ReadLimits, *, is_backward: bool
) -> list[FoundRecord]:
    found: list[FoundRecord] = []
    while len(found) < count:
        if any(each.is_empty for each in sources) and not limits.reached():
            _fill(client, sources, limits)
        # Without the next record of every partition the order is not known; at a limit what is there is shown.
        ready = [each for each in sources if each.buffer]
        if not ready:
            break
        choose = max if is_backward else min
        chosen = choose(ready, key=lambda each: (each.buffer[0].record.timestamp_ms, each.partition))
        found.append(chosen.buffer.popleft())
    return found


def _fill(client: ClusterClient, sources: list[_Source], limits: ReadLimits) -> None:
    """Read on where records are wanted, in few round trips: where they will be wanted soon, too."""
    empty = [each for each in sources if each.is_empty]
    low = [each for each in sources if each.is_low and not each.is_empty]
    begin_together(client, [(each.reader, each.next_start(limits)) for each in (*empty, *low)])
    for each in empty:
        each.fill(limits)
    for each in low:
        if not limits.reached():
            each.read_on(limits)
