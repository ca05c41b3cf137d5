"""What the crash tests share: the seed, the verdict, and the words to read a broker's files without its help."""

from __future__ import annotations

import os
import random
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from strandline.testing.checker import Report, check
from strandline.testing.client_threads import Settings
from strandline.testing.history import Op, Poll, Send, save
from strandline.testing.workload import Workload

RESUME_TIMEOUT_S = 60.0
"""How long a broker may take, on a busy machine, from its restart until it acknowledges again."""


SEGMENT_BYTES = 16 * 1024
SMALL_BATCHES: Settings = {"batch.size": SEGMENT_BYTES // 2}
"""A batch must fit into a segment; what does not is refused for good (RECORD_LIST_TOO_LARGE)."""


def new_seed() -> int:
    """The seed of a run: STRANDLINE_SEED to repeat one, else a new one. It is printed; pytest shows it on failure."""
    seed = int(os.environ.get("STRANDLINE_SEED") or random.SystemRandom().getrandbits(32))
    print(f"STRANDLINE_SEED={seed}")
    return seed


def judge(workload: Workload, directory: Path) -> tuple[list[Op], Report]:
    """Reads everything, checks the history, and keeps it as a file beside the broker's directory."""
    ops = workload.history()
    path = directory / "history.jsonl"
    with path.open("w") as file:
        save(ops, file)
    report = check(ops)
    print(f"{report}\nhistory: {path}")
    assert report.ok, report
    assert not report.without_final_read
    assert workload.fatal_errors == []
    return ops, report


def without_one_record(ops: Sequence[Op], rng: random.Random) -> list[Op]:
    """The history of a log that lost one acknowledged record: the planted bug that a check must notice."""
    acknowledged = [mop for op in ops if op.outcome == "ok" for mop in op.mops if isinstance(mop, Send)]
    lost = rng.choice(acknowledged)
    planted = []
    for op in ops:
        mops = tuple(
            Poll(mop.partition, tuple(record for record in mop.records if record[1] != lost.value))
            if isinstance(mop, Poll) and mop.partition == lost.partition
            else mop
            for mop in op.mops
        )
        planted.append(replace(op, mops=mops))
    return planted


class StoredBatch(NamedTuple):
    base_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    payload: bytes


# The header of a record batch of magic 2: base offset, batch length, leader epoch, magic, CRC, attributes, last offset
# delta, base and max timestamp, producer id, producer epoch, base sequence, record count.
_BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH_FROM = 12
_VALUE = re.compile(rb"(\d+):(\d+) x")


def stored_batches(log_file: Path) -> Iterator[StoredBatch]:
    """Every whole batch in a segment file, read without the broker's own code."""
    content = log_file.read_bytes()
    position = 0
    while position + _BATCH_HEADER.size <= len(content):
        base_offset, length, _, magic, *_, producer_id, producer_epoch, base_sequence, count = (
            _BATCH_HEADER.unpack_from(content, position)
        )
        end = position + _LENGTH_FROM + length
        if magic != 2 or end > len(content):
            return
        payload = content[position + _BATCH_HEADER.size : end]
        yield StoredBatch(base_offset, producer_id, producer_epoch, base_sequence, count, payload)
        position = end


def processes_by_producer_id(data: Path, topic: str) -> dict[int, set[int]]:
    """Which workload processes wrote under each producer id, according to the segment files."""
    found: dict[int, set[int]] = {}
    for log_file in sorted(data.rglob(f"{topic}-*/*.log")):
        for batch in stored_batches(log_file):
            processes = {int(match[1]) for match in _VALUE.finditer(batch.payload)}
            assert processes, f"{log_file}: the batch at {batch.base_offset} holds no value of the workload"
            found.setdefault(batch.producer_id, set()).update(processes)
    return found
