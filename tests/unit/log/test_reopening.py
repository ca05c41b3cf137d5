"""Opening a directory again: clean or not, with indexes lost, empty, zeroed, preallocated or full of noise."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.unit.log.engine import (
    NOON_MS,
    append,
    batch_of,
    crash,
    fill,
    index_entries,
    offsets_in,
    open_log,
    read_bytes,
)

from strandline.codec.record_batch import parse_header
from strandline.errors import CorruptLog
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.time_lookup import find_time
from strandline.log.trimming import trim_now
from strandline.partition.producers import Producers

SEED = 20_241_107
CONFIG = {"segment_bytes": 4000, "index_interval_bytes": 200}
RECORDS = 120


def a_log(directory: Path) -> PartitionLog:
    log = open_log(directory, **CONFIG)
    fill(log, RECORDS)
    assert len(log.segments) >= 3
    return log


def check(log: PartitionLog, records: int = RECORDS) -> None:
    """Everything is found, by offset and by time, and the log goes on."""
    assert offsets_in(log) == list(range(records))
    for offset in range(records):
        assert parse_header(read_bytes(log, offset, size_bytes_max=1)).base_offset == offset
        found = find_time(log.segments, NOON_MS + offset, start_offset=0, limit_offset=log.log_end_offset)
        assert found is not None
        assert found.offset == offset
    assert append(log, batch_of([b"next"], timestamps=[NOON_MS + records])) == records


@pytest.mark.parametrize("clean", [True, False])
def test_a_closed_log_opens_as_it_was(tmp_path: Path, clean: bool) -> None:
    log = a_log(tmp_path / "orders-0")
    log.close()
    again = open_log(tmp_path / "orders-0", clean=clean, **CONFIG)
    check(again)
    again.close()


def test_a_killed_log_opens_as_it_was(tmp_path: Path) -> None:
    log = a_log(tmp_path / "orders-0")
    for recovery_point in (0, 50, log.active.base_offset, RECORDS):
        again = open_log(crash(log, tmp_path / f"copy-{recovery_point}"), recovery_point=recovery_point, **CONFIG)
        check(again)
        again.close()
    log.close()


def test_growing_on_after_a_clean_start_keeps_the_index_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    steady = open_log(tmp_path / "steady-0", **CONFIG)
    fill(steady, RECORDS)
    steady.close()
    log = open_log(tmp_path / "orders-0", **CONFIG)
    for _ in range(RECORDS // 7 + 1):
        fill(log, min(7, RECORDS - log.log_end_offset))
        log.close()
        log = open_log(tmp_path / "orders-0", clean=True, **CONFIG)
    log.close()
    for suffix in ("log", "index", "timeindex"):
        assert {path.name: path.read_bytes() for path in (tmp_path / "orders-0").glob(f"*.{suffix}")} == {
            path.name: path.read_bytes() for path in (tmp_path / "steady-0").glob(f"*.{suffix}")
        }


def noise(path: Path) -> None:
    path.write_bytes(random.Random(SEED).randbytes(max(24, path.stat().st_size)))


HARM = {
    "lost": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "zeroed": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "preallocated": lambda path: path.write_bytes(path.read_bytes() + bytes(10_000 - 10_000 % 24)),
    "odd size": lambda path: path.write_bytes(path.read_bytes() + b"\x00\x00\x07"),
    "noise": noise,
    "noise behind": lambda path: path.write_bytes(path.read_bytes() + random.Random(SEED).randbytes(48)),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2 + 5]),
}
BELIEVED = {("cut", ".timeindex", "clean"), ("cut", ".timeindex", "unclean-late")}
"""A time index that merely ends too early looks like one of a segment whose later records are older. No crash leaves
that: the file is synced with its segment before the recovery point moves beyond it."""


@pytest.mark.lengthy("hundreds of cases")
@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("which", ["first", "active", "every"])
@pytest.mark.parametrize("how", ["clean", "unclean", "unclean-late"])
def test_a_harmed_index_costs_time_at_most(tmp_path: Path, harm: str, suffix: str, which: str, how: str) -> None:
    print("seed", SEED)
    if (harm, suffix, how) in BELIEVED:
        which = "active"
    log = a_log(tmp_path / "orders-0")
    log.close()
    harmed = {"first": log.segments[:1], "active": [log.active], "every": log.segments}[which]
    for segment in harmed:
        HARM[harm](segment.path.with_suffix(suffix))
    again = open_log(
        tmp_path / "orders-0",
        clean=how == "clean",
        recovery_point=RECORDS if how == "unclean-late" else 0,
        **CONFIG,
    )
    check(again)
    again.close()


def test_an_index_of_zeroes_behind_its_entries_is_kafkas_after_a_kill(tmp_path: Path) -> None:
    """Kafka maps the files of its active segment at their full size and trims them only when it stops in peace."""
    log = a_log(tmp_path / "orders-0")
    log.close()
    path = log.active.path.with_suffix(".index")
    entries = index_entries(path)
    path.write_bytes(path.read_bytes() + bytes(1 << 20))
    assert index_entries(path) == entries
    again = open_log(tmp_path / "orders-0", recovery_point=RECORDS, **CONFIG)
    again.close()
    assert index_entries(path) == entries
    assert path.stat().st_size == 8 * len(entries)


def test_leftovers_of_an_interrupted_deletion_are_removed(tmp_path: Path) -> None:
    log = a_log(tmp_path / "orders-0")
    log.close()
    for name in ("00000000000000000000.log.deleted", "leader-epoch-checkpoint.tmp"):
        (tmp_path / "orders-0" / name).write_bytes(b"left over")
    again = open_log(tmp_path / "orders-0", clean=True, **CONFIG)
    assert not list((tmp_path / "orders-0").glob("*.deleted"))
    assert not list((tmp_path / "orders-0").glob("*.tmp"))
    check(again)
    again.close()


def test_files_of_strangers_are_left_alone(tmp_path: Path) -> None:
    log = a_log(tmp_path / "orders-0")
    log.close()
    strangers = ["notes.log", "notes.snapshot", "README", "00000000000000000007.checkpoint", "-1.log"]
    for name in strangers:
        (tmp_path / "orders-0" / name).write_bytes(b"not ours")
    for clean in (True, False):
        again = open_log(tmp_path / "orders-0", clean=clean, observer=Producers(), **CONFIG)
        assert offsets_in(again) == list(range(RECORDS))
        again.close()
    assert all((tmp_path / "orders-0" / name).read_bytes() == b"not ours" for name in strangers)


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_whose_segments_are_gone_is_not_begun_anew(tmp_path: Path, clean: bool) -> None:
    log = a_log(tmp_path / "orders-0")
    log.close()
    for path in (tmp_path / "orders-0").glob("0*"):
        path.unlink()
    with pytest.raises(CorruptLog, match=f"everything below offset {RECORDS}"):
        open_log(tmp_path / "orders-0", clean=clean, recovery_point=RECORDS, **CONFIG)


def test_a_new_log_may_begin_at_a_later_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", log_start_offset=100)
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    assert append(log, batch_of([b"v"])) == 100
    assert log.active.path.name == "00000000000000000100.log"
    log.close()


def test_the_log_start_offset_survives(tmp_path: Path) -> None:
    log = a_log(tmp_path / "orders-0")
    trim_now(log, 70)
    first = log.base_offsets[0]
    assert 0 < first <= 70
    log.close()
    again = open_log(tmp_path / "orders-0", clean=True, log_start_offset=70, **CONFIG)
    assert offsets_in(again) == list(range(70, RECORDS))
    again.close()
    forgotten = open_log(tmp_path / "orders-0", clean=True, **CONFIG)
    assert offsets_in(forgotten) == list(range(first, RECORDS)), "the first segment's offset is the least it can be"
    forgotten.close()
