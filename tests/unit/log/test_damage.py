"""Damage that no crash makes: the log refuses to open, says where, and leaves every byte as it was."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.unit.log.engine import fill, open_log, split
from tests.unit.log.faulty_disk import FaultyDisk

from strandline.errors import CorruptLog
from strandline.log.segment.open_files import OpenFiles

SEED = 20_241_106
CONFIG = {"segment_bytes": 2000, "index_interval_bytes": 200}


def a_log(directory: Path, batches: int = 60) -> dict[Path, bytes]:
    """A closed log of several segments: its files."""
    log = open_log(directory, **CONFIG)
    fill(log, batches)
    log.close()
    assert len(log.segments) >= 3
    return contents(directory)


def contents(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(directory.iterdir())}


def refuse(directory: Path, **how: int) -> str:
    before = contents(directory)
    disk = FaultyDisk()
    open_files = OpenFiles(disk)
    with pytest.raises(CorruptLog) as caught:
        open_log(directory, disk=disk, open_files=open_files, **CONFIG, **how)
    assert contents(directory) == before, "not a byte was changed"
    assert len(open_files) == 0, "a log that is not opened keeps no file open"
    assert disk.open_now == 0
    return str(caught.value)


def test_a_bad_byte_in_the_middle_is_never_cut(tmp_path: Path) -> None:
    files = a_log(tmp_path / "orders-0")
    path = sorted(path for path in files if path.suffix == ".log")[-1]
    batches = split(files[path])
    seed = random.Random(SEED)
    print("seed", SEED)
    starts = [sum(map(len, batches[:number])) for number in range(len(batches) - 1)]
    for start, batch in zip(starts, batches, strict=False):
        at = start + seed.choice([*range(8, 12), *range(16, len(batch))])
        damaged = bytearray(files[path])
        damaged[at] ^= 1 << seed.randrange(8)
        path.write_bytes(damaged)
        message = refuse(path.parent)
        assert f"at position {start}," in message
        assert path.name in message
    path.write_bytes(files[path])
    open_log(path.parent, **CONFIG).close()


def test_a_hole_of_zeroes_in_the_middle_is_never_cut(tmp_path: Path) -> None:
    files = a_log(tmp_path / "orders-0")
    path = sorted(path for path in files if path.suffix == ".log")[-1]
    first, second, *_ = split(files[path])
    data = files[path]
    path.write_bytes(data[: len(first)] + bytes(len(second)) + data[len(first) + len(second) :])
    assert f"at position {len(first)}," in refuse(path.parent)


def test_damage_in_an_older_segment_is_never_cut(tmp_path: Path) -> None:
    files = a_log(tmp_path / "orders-0")
    path = sorted(path for path in files if path.suffix == ".log")[0]
    # Even at the very end of the segment: what follows is in the next one.
    damaged = bytearray(files[path])
    damaged[-1] ^= 0x01
    path.write_bytes(damaged)
    assert path.name in refuse(path.parent)


def test_the_last_batch_is_damage_when_it_was_on_disk_before(tmp_path: Path) -> None:
    files = a_log(tmp_path / "orders-0", batches=60)
    path = sorted(path for path in files if path.suffix == ".log")[-1]
    damaged = bytearray(files[path])
    damaged[-1] ^= 0xFF
    path.write_bytes(damaged)
    assert "below offset 60 had reached the disk" in refuse(path.parent, recovery_point=60)
    # The same bytes at the same place, never flushed as far as anybody knows: a torn tail.
    log = open_log(path.parent, recovery_point=59, **CONFIG)
    assert log.log_end_offset == 59
    log.close()


def test_a_shortened_file_is_damage_when_it_was_on_disk_before(tmp_path: Path) -> None:
    files = a_log(tmp_path / "orders-0")
    path = sorted(path for path in files if path.suffix == ".log")[-1]
    batches = split(files[path])
    path.write_bytes(files[path][: -len(batches[-1])])
    with pytest.raises(CorruptLog, match="ends at offset 59, but everything below 60"):
        open_log(path.parent, recovery_point=60, **CONFIG)
    assert path.read_bytes() == files[path][: -len(batches[-1])]


def test_offsets_that_go_back_are_damage(tmp_path: Path) -> None:
    files = a_log(tmp_path / "orders-0")
    path = sorted(path for path in files if path.suffix == ".log")[-1]
    batches = split(files[path])
    path.write_bytes(batches[0] + batches[0] + b"".join(batches[1:]))
    assert "follows" in refuse(path.parent)


def test_one_sound_batch_far_behind_the_damage_is_found(tmp_path: Path) -> None:
    """The search goes by leader epochs: also by one that only the damaged part of the log would have told of."""
    log = open_log(tmp_path / "orders-0")
    fill(log, 3, leader_epoch=0)
    fill(log, 3, leader_epoch=7)
    log.close()
    path = log.active.path
    batches = split(path.read_bytes())
    noise = random.Random(SEED).randbytes(5_000_000)
    path.write_bytes(batches[0] + noise + batches[5])
    before = path.read_bytes()
    with pytest.raises(CorruptLog, match=f"follows at position {len(batches[0]) + len(noise)}"):
        open_log(tmp_path / "orders-0")
    assert path.read_bytes() == before


@pytest.mark.parametrize("recovery_point", [0, 30, 60])
def test_a_log_without_damage_opens_from_any_recovery_point(tmp_path: Path, recovery_point: int) -> None:
    a_log(tmp_path / "orders-0")
    log = open_log(tmp_path / "orders-0", recovery_point=recovery_point, **CONFIG)
    assert log.log_end_offset == 60
    log.close()
