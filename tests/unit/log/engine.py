"""Logs to try: open them with few words, fill them with batches, and read back what they hold."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from strandline.codec.columns import Compression, Record, decode_batch, encode_batch
from strandline.codec.record_batch import HEADER, check_batch, parse_header
from strandline.config.topic_config import TopicConfig
from strandline.log import log_loader as opening
from strandline.log.disk import Disk, RealDisk, RealFile
from strandline.log.observer import BatchObserver
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.index import OffsetIndex, TimeIndex
from strandline.log.segment.open_files import OpenFiles

NOON_MS = 1_700_000_000_000
"""When the tests take place."""


class UnsyncedFile(RealFile):
    __slots__ = ()

    def datasync(self) -> None:
        pass


class UnsyncedDisk(RealDisk):
    """A real disk that promises nothing: tests that cut no power need not wait for the platter."""

    def open(self, path: Path, *, create: bool = False) -> RealFile:
        return UnsyncedFile(super().open(path, create=create).fileno())

    def sync_directory(self, path: Path) -> None:
        pass


def open_log(
    directory: Path,
    *,
    disk: Disk | None = None,
    open_files: OpenFiles | None = None,
    observer: BatchObserver | None = None,
    clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    now_ms: int = NOON_MS,
    **config: Any,
) -> PartitionLog:
    disk = disk or UnsyncedDisk()
    return opening.open_log(
        directory,
        TopicConfig(**config),
        disk=disk,
        open_files=OpenFiles(disk) if open_files is None else open_files,
        now_ms=now_ms,
        observer=observer,
        clean=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
    )


def batch_of(
    values: Sequence[bytes],
    *,
    timestamps: Sequence[int] | None = None,
    codec: Compression = Compression.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
) -> bytearray:
    """A producer's batch of these values, a millisecond apart unless it says otherwise."""
    times = timestamps or [NOON_MS + step for step in range(len(values))]
    records = [Record(timestamp_ms=time, value=value) for time, value in zip(times, values, strict=True)]
    return bytearray(
        encode_batch(
            records,
            compression=codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
        )
    )


def append(log: PartitionLog, batch: bytearray, *, leader_epoch: int = 0, now_ms: int = NOON_MS) -> int:
    """Append as a leader does: check, store, tell the observer."""
    header = check_batch(batch)
    base_offset = log.append(batch, header, leader_epoch=leader_epoch, now_ms=now_ms)
    if log.observer is not None:
        log.observer.note_header(HEADER.unpack_from(batch), now_ms)
    return base_offset


def fill(log: PartitionLog, batches: int, *, records: int = 1, value_bytes: int = 20, leader_epoch: int = 0) -> None:
    """Append batches whose values name their offsets."""
    for _ in range(batches):
        first = log.log_end_offset
        values = [b"%d" % (first + step) + b"." * value_bytes for step in range(records)]
        append(
            log,
            batch_of(values, timestamps=[NOON_MS + first + step for step in range(records)]),
            leader_epoch=leader_epoch,
        )


def records_in(log: PartitionLog) -> list[Record]:
    """Every record that can be read, decoded."""
    return [
        record for batch in log.batches() for record in decode_batch(batch) if record.offset >= log.log_start_offset
    ]


def offsets_in(log: PartitionLog) -> list[int]:
    return [record.offset for record in records_in(log)]


def read_bytes(log: PartitionLog, offset: int, **limits: Any) -> bytes:
    """The bytes of one read; empty if there is nothing."""
    limits.setdefault("size_bytes_max", 1 << 20)
    piece = log.read(offset, **limits)
    if piece is None:
        return b""
    try:
        data = piece.read()
        assert len(data) == piece.size_bytes
        return data
    finally:
        piece.release()


def split(data: bytes) -> list[bytes]:
    """The whole batches at the beginning of `data`; a batch cut off at the end is left out, as readers do."""
    batches = []
    at = 0
    while len(data) - at >= 61:
        size = parse_header(data, at).size_bytes
        if len(data) - at < size:
            break
        batches.append(data[at : at + size])
        at += size
    return batches


def crash(log: PartitionLog, copy: Path) -> Path:
    """What a kill leaves: the files as they are now, nothing closed or completed."""
    shutil.copytree(log.directory, copy)
    return copy


def abandon(log: PartitionLog) -> None:
    """Let go of the descriptors of a log that was left as a crash leaves it."""
    for segment in log.segments:
        segment.close()


def expected_indexes(
    batches: Iterable[bytes], *, base_offset: int, interval_bytes: int, sealed: bool
) -> tuple[bytes, bytes]:
    """The two index files by Kafka's rule, written down a second time: an entry for the first batch that comes after
    more than `interval_bytes` bytes since the last entry, and the largest timestamp so far along with it."""
    index, time_index = b"", b""
    since = position = 0
    largest, largest_at, written = -1, base_offset, -1
    for batch in batches:
        header = parse_header(batch)
        if header.max_timestamp > largest:
            largest, largest_at = header.max_timestamp, header.last_offset
        if since > interval_bytes:
            index += (header.last_offset - base_offset).to_bytes(4, "big") + position.to_bytes(4, "big")
            if largest > written:
                time_index += largest.to_bytes(8, "big") + (largest_at - base_offset).to_bytes(4, "big")
                written = largest
            since = 0
        since += len(batch)
        position += len(batch)
    if sealed and largest > written:
        time_index += largest.to_bytes(8, "big") + (largest_at - base_offset).to_bytes(4, "big")
    return index, time_index


def index_entries(path: Path) -> list[tuple[int, int]]:
    index = OffsetIndex.parse(path.read_bytes())
    return list(zip(index.relative_offsets, index.positions, strict=True))


def time_entries(path: Path) -> list[tuple[int, int]]:
    index = TimeIndex.parse(path.read_bytes())
    return list(zip(index.timestamps, index.relative_offsets, strict=True))
