"""Reads spans of offsets of one partition, whole batches at a time, and says which transactions were decided how.

Only whole answers are held: one fetch of a mebibyte is in flight, and a batch that is larger comes alone. A limit of
records, bytes and seconds holds for all spans that one visitor asks for at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from struct import Struct
from struct import error as StructError
from typing import Final
from uuid import UUID

from strandline.cli.records.record import ReadRecord
from strandline.client.cluster_client import READ_COMMITTED, READ_UNCOMMITTED, ClusterClient
from strandline.client.fetcher import FetchSettings, OffsetRange, PartitionFetcher, fetch_beginnings, walked
from strandline.codec.columns.batch import Columns
from strandline.codec.columns.decode import columns_of
from strandline.codec.fetched_records import FetchedRecords
from strandline.codec.transaction_marker import COMMIT
from strandline.errors import PeerError

FETCH_BYTES_MAX: Final = 1024 * 1024
FETCH_BYTES_MIN: Final = 64 * 1024
WAIT_MS: Final = 200
STALL_S: Final = 4.0
PLAIN: Final = ""
COMMITTED: Final = "committed"
ABORTED: Final = "aborted"
OPEN: Final = "open"
_MARKER_KEY: Final = Struct(">hh")


@dataclass(slots=True)
class FoundRecord:
    """A record, and what became of its transaction: `state` is empty for a record without one."""

    record: ReadRecord
    state: str = PLAIN
    producer_id: int = -1
    codec: str = ""
    leader_epoch: int = -1
    time_kind: str = ""

    @property
    def size_bytes(self) -> int:
        return len(self.record.key or b"") + len(self.record.value or b"")


@dataclass
class ReadLimits:
    """What one question may cost. `reason` says what was reached."""

    clock: Callable[[], float]
    records: int
    size_bytes: int
    seconds: float
    began_s: float = field(init=False)
    looked_at: int = 0
    read_bytes: int = 0
    reason: str = ""

    def __post_init__(self) -> None:
        self.began_s = self.clock()

    def reached(self) -> bool:
        """Return whether a limit is reached; from then on it stays so."""
        if not self.reason:
            if self.looked_at >= self.records:
                self.reason = f"{self.looked_at:,} records were looked at"
            elif self.read_bytes >= self.size_bytes:
                self.reason = f"{self.read_bytes / 1024 / 1024:,.0f} MiB were read"
            elif self.clock() - self.began_s >= self.seconds:
                self.reason = f"{self.seconds:g} s were over"
        return bool(self.reason)

    @property
    def bytes_left(self) -> int:
        return max(0, self.size_bytes - self.read_bytes)


@dataclass(frozen=True)
class PartitionBounds:
    """Where a partition begins, and up to where its transactions are decided and its records are replicated."""

    topic: str
    partition: int
    topic_id: UUID
    start: int
    stable: int
    end: int


def begin_together(client: ClusterClient, starts: Sequence[tuple[SpanReader, int]]) -> None:
    """Have readers of one topic begin at an offset each, with a fetch for each leader rather than each partition."""
    for isolation in (READ_COMMITTED, READ_UNCOMMITTED):
        some = {
            reader.bounds.partition: (reader, start)
            for reader, start in starts
            if reader.isolation_at(start) == isolation
        }
        if len(some) > 1:
            settings = FetchSettings(isolation, FETCH_BYTES_MIN, WAIT_MS)
            bounds = starts[0][0].bounds
            offsets = {partition: start for partition, (_, start) in some.items()}
            for partition, answer in fetch_beginnings(client, bounds.topic, bounds.topic_id, offsets, settings).items():
                reader, start = some[partition]
                reader.begin(start, answer)


class SpanReader:
    """Reads one partition. `notes` are sentences about what could not be read."""

    def __init__(self, client: ClusterClient, bounds: PartitionBounds, limits: ReadLimits, notes: list[str]) -> None:
        self._client = client
        self._limits = limits
        self._notes = notes
        self._undecided: dict[int, list[FoundRecord]] = {}
        self._markers: dict[int, dict[int, str]] = {}
        self._beginning: tuple[int, FetchedRecords] | None = None
        self.bounds = bounds
        self.bytes_per_offset = 0.0

    def isolation_at(self, offset: int) -> int:
        """Return how a fetch from an offset on reads: what is decided as a consumer does, because only then brokers
        tell what was aborted."""
        return READ_COMMITTED if offset < self.bounds.stable else READ_UNCOMMITTED

    def begin(self, offset: int, answer: FetchedRecords) -> None:
        """Take the first answer of a span that begins at `offset`, if that is what is read next."""
        self._beginning = offset, answer

    def pieces(self, first: int, end: int) -> Iterator[tuple[list[FoundRecord], int]]:
        """Yield the records of each answer with the offset behind it, from `first` up to `end`."""
        decided = min(end, self.bounds.stable)
        if first < decided:
            yield from self._pieces(first, decided, READ_COMMITTED)
        if max(first, decided) < end:
            yield from self._pieces(max(first, decided), end, READ_UNCOMMITTED)

    def _pieces(self, first: int, end: int, isolation: int) -> Iterator[tuple[list[FoundRecord], int]]:
        bounds = self.bounds
        wanted = int((end - first) * self.bytes_per_offset * 1.1) if self.bytes_per_offset else FETCH_BYTES_MIN
        settings = FetchSettings(
            isolation_level=isolation,
            partition_bytes_max=max(FETCH_BYTES_MIN, min(FETCH_BYTES_MAX, wanted)),
            wait_ms_max=WAIT_MS,
            stall_timeout_s=STALL_S,
        )
        place = OffsetRange(bounds.topic, bounds.partition, first, end, bounds.topic_id)
        begun, self._beginning = self._beginning, None
        beginning = begun[1] if begun is not None and begun[0] == first else None
        fetcher = PartitionFetcher(self._client, place, settings, asks_ahead=False, beginning=beginning)
        for start, answer in fetcher.answers():
            self._limits.read_bytes += len(answer.records)
            self.bytes_per_offset = fetcher.bytes_per_offset
            behind = min(end, walked(answer.records, start)[0])
            yield self._records(answer, start, behind, is_decided=isolation == READ_COMMITTED), behind
            if self._limits.reached():
                return

    def _records(self, answer: FetchedRecords, first: int, end: int, *, is_decided: bool) -> list[FoundRecord]:
        found: list[FoundRecord] = []
        aborted = sorted(answer.aborted or (), key=lambda each: each[1])
        aborting: set[int] = set()
        at = first
        try:
            for columns in columns_of(answer.records):
                while aborted and aborted[0][1] <= columns.last_offset:
                    aborting.add(aborted.pop(0)[0])
                if columns.is_control:
                    aborting.discard(columns.producer_id)
                    self._decide(columns)
                else:
                    state = PLAIN
                    if columns.is_transactional:
                        is_aborted = columns.producer_id in aborting
                        state = OPEN if not is_decided else ABORTED if is_aborted else COMMITTED
                    found += self._of_batch(columns, first, end, state)
                at = columns.last_offset + 1
        except PeerError as error:
            # The rest of a log is readable, although one batch is not.
            self._note(f"partition {self.bounds.partition}: the offsets {at:,} to {end - 1:,} cannot be read: {error}")
        return found

    def _of_batch(self, columns: Columns, first: int, end: int, state: str) -> Iterator[FoundRecord]:
        codec = columns.compression.name.lower()
        time_kind = "of the log" if columns.header.attributes & 0x08 else "of the producer"
        self._limits.looked_at += len(columns)
        for row, offset in enumerate(columns.offsets):
            if not first <= offset < end:
                continue
            one = columns.record(row)
            record = ReadRecord(
                self.bounds.topic,
                self.bounds.partition,
                offset,
                one.timestamp_ms,
                one.key,
                one.value,
                list(one.headers),
            )
            made = FoundRecord(record, state, columns.producer_id, codec, columns.leader_epoch, time_kind)
            if state == OPEN:
                made.state = self._fate(columns.producer_id, offset)
                self._undecided.setdefault(columns.producer_id, []).append(made)
            yield made

    def _decide(self, columns: Columns) -> None:
        """Learn from a marker what became of records before it, which an older open transaction still hides."""
        try:
            _, kind = _MARKER_KEY.unpack_from(columns.key(0) or b"")
        except StructError:
            return
        self._markers.setdefault(columns.producer_id, {})[columns.base_offset] = (
            COMMITTED if kind == COMMIT else ABORTED
        )
        for each in self._undecided.get(columns.producer_id, ()):
            each.state = self._fate(columns.producer_id, each.record.offset)

    def _fate(self, producer_id: int, offset: int) -> str:
        """Return what the first marker of the producer behind an offset says. Spans may be read from the end."""
        markers = self._markers.get(producer_id, {})
        behind = min((each for each in markers if each > offset), default=None)
        return OPEN if behind is None else markers[behind]

    def _note(self, sentence: str) -> None:
        if sentence not in self._notes:
            self._notes.append(sentence)
