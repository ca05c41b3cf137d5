"""A log of sealed segments as files, what a reader gets from it, and a cleaner that is run on it as a worker does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from tests.unit.twins import as_parameters, load_plain

from strandline.codec.columns import BatchHeader, Record, _clean, decode_batch, encode_batch
from strandline.codec.record_batch import PREFIX, PREFIX_SIZE, parse_header
from strandline.codec.transaction_marker import encode_marker, parse_marker
from strandline.log.cleaning import mapping
from strandline.log.cleaning.clean import clean
from strandline.log.cleaning.job import CLEANED_SUFFIX, CleanedGroup, CleaningJob, CleaningResult, SourceSegment
from strandline.log.disk import Disk, RealDisk
from strandline.log.segment.file_names import SEGMENT_SUFFIXES, file_stem
from strandline.log.segment.transaction_index import AbortedTransaction, TransactionIndex

CLEAN_SOURCE = Path(mapping.__file__).parents[2] / "codec" / "columns" / "_clean.py"


PLAIN = load_plain(CLEAN_SOURCE)
COMPILED = _clean if _clean.is_compiled() else None
TWINS = as_parameters(PLAIN, COMPILED)


@contextmanager
def using(twin: ModuleType) -> Iterator[None]:
    """Clean with this twin, whichever the installation has chosen."""
    chosen = mapping._clean
    mapping._clean = twin
    try:
        yield
    finally:
        mapping._clean = chosen


class SegmentedLog:
    """Batches in segments; the last one is active, and never cleaned."""

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        self.directory = directory
        self.disk: Disk = disk or RealDisk()
        self.bases = [0]
        self.end_offset = 0
        self.clean_up_to = 0
        self.tombstone_horizon = 0
        self.aborted: dict[int, list[AbortedTransaction]] = {0: []}
        self.open_since: dict[int, int] = {}
        self.active_producers: tuple[tuple[int, ...], ...] = ()
        self.written: dict[int, Record] = {}
        """Every data record ever, by offset."""
        self.size = {0: 0}

    def append(self, batch: bytes) -> None:
        view = bytearray(batch)
        view[:8] = self.end_offset.to_bytes(8, "big")
        base = self.bases[-1]
        file = self.disk.open(self.path(base), create=True)
        file.write_at(self.size[base], view)
        file.close()
        self.size[base] += len(view)
        self.end_offset += parse_header(view).last_offset_delta + 1

    def put(self, records: list[Record], **options: int | bool | None) -> None:
        numbered = [each._replace(offset=self.end_offset + at) for at, each in enumerate(records)]
        append_time_ms = options.get("append_time_ms")
        for each in numbered:
            timestamp_ms = each.timestamp_ms if append_time_ms is None else append_time_ms
            self.written[each.offset] = each._replace(timestamp_ms=timestamp_ms)
        if options.get("transactional"):
            self.open_since.setdefault(int(options["producer_id"] or 0), self.end_offset)
        self.append(encode_batch(numbered, base_offset=self.end_offset, **options))  # type: ignore[arg-type]

    def end_transaction(self, producer_id: int, *, is_commit: bool, epoch: int = 0, timestamp_ms: int = 1) -> None:
        first_offset = self.open_since.pop(producer_id, None)
        if first_offset is not None and not is_commit:
            stable = min(self.open_since.values(), default=self.end_offset + 1)
            entry = AbortedTransaction(producer_id, first_offset, self.end_offset, stable)
            self.aborted[self.bases[-1]].append(entry)
        marker = encode_marker(producer_id, epoch, is_commit=is_commit, coordinator_epoch=0, timestamp_ms=timestamp_ms)
        self.append(bytes(marker))

    def roll(self) -> None:
        if self.size[self.bases[-1]]:
            self.write_index(self.bases[-1])
            self.bases.append(self.end_offset)
            self.aborted[self.end_offset] = []
            self.size[self.end_offset] = 0

    def write_index(self, base: int) -> None:
        if self.aborted[base]:
            index = TransactionIndex()
            for entry in self.aborted[base]:
                index.append(entry)
            self.disk.write_whole(self.path(base, ".txnindex"), index.to_bytes())

    def path(self, base: int, suffix: str = ".log") -> Path:
        return self.directory / (file_stem(base) + suffix)

    @property
    def first_uncleanable(self) -> int:
        stable = min(self.open_since.values(), default=self.end_offset)
        return max((base for base in self.bases if base <= stable), default=0)

    def job(self, *, now_ms: int = 1000, **changed: object) -> CleaningJob:
        end = self.first_uncleanable
        sealed = [base for base in self.bases if base < end]
        ends = [*sealed[1:], end] if sealed else []
        options: dict[str, object] = {
            "directory": self.directory,
            "segments": tuple(
                SourceSegment(base, self.size[base], following, bool(self.aborted[base]))
                for base, following in zip(sealed, ends, strict=True)
            ),
            "log_start_offset": 0,
            "first_dirty_offset": self.clean_up_to,
            "end_offset": end,
            "now_ms": now_ms,
            "delete_retention_ms": 100,
            "segment_bytes": 1 << 20,
            "segment_index_bytes": 1 << 20,
            "index_interval_bytes": 4096,
            "dedupe_buffer_bytes": 1 << 20,
            "load_factor": 0.9,
            "io_buffer_bytes": 1 << 16,
            "io_bytes_per_s": 0.0,
            "aborted_later": tuple(
                each for base in self.bases if base >= end for each in self.aborted[base] if each.first_offset < end
            ),
            "active_producers": self.active_producers,
        }
        return CleaningJob(**{**options, **changed})  # type: ignore[arg-type]

    def clean(self, job: CleaningJob | None = None) -> tuple[CleaningResult, list[CleanedGroup]]:
        """Clean and swap, as the owner of a log does it."""
        groups: list[CleanedGroup] = []
        result = clean(
            job or self.job(),
            self.disk,
            on_group=lambda group: groups.append(CleanedGroup.from_dict(group.to_dict())),
            is_stopped=lambda: False,
            sleep=lambda _: None,
        )
        for group in groups:
            self.tombstone_horizon = max(self.tombstone_horizon, group.removed_below)
            self.swap(group)
        self.clean_up_to = result.clean_up_to
        return result, groups

    def swap(self, group: CleanedGroup) -> None:
        for base in group.replaced:
            for suffix in SEGMENT_SUFFIXES:
                self.disk.remove(self.path(base, suffix))
            self.bases.remove(base)
            del self.size[base], self.aborted[base]
        for suffix in group.suffixes:
            path = self.path(group.base_offset, suffix)
            self.disk.rename(path.with_name(path.name + CLEANED_SUFFIX), path)
        self.bases = sorted([*self.bases, group.base_offset])
        self.size[group.base_offset] = group.size_bytes
        path = self.path(group.base_offset, ".txnindex")
        self.aborted[group.base_offset] = read_index(self.disk, path, group.base_offset)
        assert group.has_transaction_index == bool(self.aborted[group.base_offset])
        assert self.disk.size(self.path(group.base_offset)) == group.size_bytes

    def batches(self) -> Iterator[tuple[BatchHeader, bytes]]:
        for base in self.bases:
            path = self.path(base)
            data = self.disk.read_whole(path) if self.disk.exists(path) else b""
            at = 0
            while at < len(data):
                size = PREFIX.unpack_from(data, at)[1] + PREFIX_SIZE
                yield parse_header(data, at), data[at : at + size]
                at += size

    def records(self) -> list[Record]:
        """All data records that are there."""
        return [each for header, batch in self.batches() if not header.is_control for each in decode_batch(batch)]

    def committed(self) -> list[Record]:
        """What a reader of committed records gets, who is told of the aborted transactions like a consumer is."""
        entries = sorted((each for base in self.bases for each in self.aborted[base]), key=lambda each: each[1])
        aborted: set[int] = set()
        found: list[Record] = []
        for header, batch in self.batches():
            while entries and entries[0].first_offset <= header.last_offset:
                aborted.add(entries.pop(0).producer_id)
            if header.is_control:
                marker = parse_marker(batch)
                if marker is not None and not marker.is_commit:
                    aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                found += decode_batch(batch)
        return found


def read_index(disk: Disk, path: Path, base: int) -> list[AbortedTransaction]:
    index = TransactionIndex.parse(disk.read_whole(path) if disk.exists(path) else b"", base_offset=base)
    columns = index.producer_ids, index.first_offsets, index.last_offsets, index.stable_offsets
    return [AbortedTransaction(*each) for each in zip(*columns, strict=True)]


def record(key: bytes | None, value: bytes | None, timestamp_ms: int = 1) -> Record:
    return Record(-1, timestamp_ms, key, value)
