"""Appends to, and seeks in, a log of one segment and one of many, in turns, by the engine of the broker.

The logs are made of batches of 16 KiB whose records are a hole in the file: only the page with the header is written,
so a log of 50 GB takes a quarter of that on disk. The checksum is the same for all of them, because it does not cover
the base offset. Nobody decodes them; a seek finds the batch that holds an offset, by the index and the headers behind
it.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from array import array
from pathlib import Path

from crc32c import crc32c

from bench.clients.turn import finish, task, wait_for_sign
from strandline.codec.record_batch import CRC_START, HEADER, HEADER_SIZE, PREFIX_SIZE, check_batch
from strandline.config.topic_config import TopicConfig
from strandline.log.disk import RealDisk
from strandline.log.log_loader import open_log
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.open_files import OpenFiles

BATCH_BYTES = 16 * 1024
RECORDS = 16
NOW_MS = 1_700_000_000_000


def template() -> bytearray:
    """A batch of zeros with a header that is true of it."""
    batch = bytearray(BATCH_BYTES)
    fields = (BATCH_BYTES - PREFIX_SIZE, 0, 2, 0, 0, RECORDS - 1, NOW_MS, NOW_MS, -1, -1, -1, RECORDS)
    HEADER.pack_into(batch, 0, 0, *fields)
    crc = crc32c(memoryview(batch)[CRC_START:])
    HEADER.pack_into(batch, 0, 0, *fields[:3], crc, *fields[4:])
    check_batch(batch)
    return batch


def write_segment(directory: Path, base_offset: int, size_bytes: int, header: bytes) -> int:
    """A sealed segment with its indexes; the offset after it."""
    stem = directory / f"{base_offset:020d}"
    batches = size_bytes // BATCH_BYTES
    descriptor = os.open(stem.with_suffix(".log"), os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.ftruncate(descriptor, batches * BATCH_BYTES)
        behind = header[8:]
        for number in range(batches):
            os.pwrite(descriptor, (base_offset + number * RECORDS).to_bytes(8, "big") + behind, number * BATCH_BYTES)
    finally:
        os.close(descriptor)
    # As a broker writes them: an entry for each batch behind the first, for each is larger than the interval.
    entries = array("I")
    for number in range(1, batches):
        entries.extend((number * RECORDS + RECORDS - 1, number * BATCH_BYTES))
    entries.byteswap()
    stem.with_suffix(".index").write_bytes(entries.tobytes())
    stem.with_suffix(".timeindex").write_bytes(NOW_MS.to_bytes(8, "big") + (RECORDS - 1).to_bytes(4, "big"))
    return base_offset + batches * RECORDS


def build(directory: Path, *, segments: int, segment_bytes: int, header: bytes) -> PartitionLog:
    """The log, opened as after a clean stop, with an active segment that is empty."""
    directory.mkdir(parents=True)
    end = 0
    for _ in range(segments):
        end = write_segment(directory, end, segment_bytes, header)
    (directory / f"{end:020d}.log").touch()
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    disk = RealDisk()
    log = open_log(
        directory,
        TopicConfig(),
        disk=disk,
        open_files=OpenFiles(disk),
        now_ms=NOW_MS,
        clean=True,
        recovery_point=end,
    )
    assert log.log_end_offset == end
    for segment in log.segments:
        # As in the process that wrote it: what another wrote is checked once, when it is first read.
        segment.verified_from = 0
    return log


def seeks_us(log: PartitionLog, places: list[int]) -> float:
    start = time.perf_counter()
    for offset in places:
        piece = log.read(offset, size_bytes_max=HEADER_SIZE)
        assert piece is not None
        piece.release()
    return (time.perf_counter() - start) / len(places) * 1e6


def appends_us(log: PartitionLog, batch: bytearray, count: int) -> float:
    """What an append takes; what was appended is cut off again, so that rounds are alike."""
    end = log.log_end_offset
    start = time.perf_counter()
    for _ in range(count):
        log.append(batch, check_batch(batch), leader_epoch=0, now_ms=NOW_MS)
    took_us = (time.perf_counter() - start) / count * 1e6
    log.truncate_to(end)
    return took_us


def main() -> None:
    work = task()
    root = Path(work["directory"])
    batch = template()
    header = bytes(batch[:HEADER_SIZE])
    try:
        logs = {
            name: build(root / name, segments=work[name], segment_bytes=work["segment_bytes"], header=header)
            for name in ("small", "large")
        }
        rng = random.Random(1)
        places = {name: [rng.randrange(log.log_end_offset) for _ in range(work["seeks"])] for name, log in logs.items()}
        for name, log in logs.items():
            # Everything that is measured is in the page cache, as in a broker that is in use.
            seeks_us(log, places[name])
            appends_us(log, batch, work["appends"])
        wait_for_sign()
        rounds = []
        for _ in range(work["rounds"]):
            measured: dict[str, float] = {}
            for name, log in logs.items():
                measured[f"seek_{name}"] = seeks_us(log, places[name])
                measured[f"append_{name}"] = appends_us(log, batch, work["appends"])
            rounds.append(measured)
        for log in logs.values():
            log.close()
    finally:
        shutil.rmtree(root, ignore_errors=True)
    finish(rounds=rounds)


if __name__ == "__main__":
    main()
