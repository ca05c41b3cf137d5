"""The WAL and its checksums, against what SQLite writes; and sums of pages."""

from __future__ import annotations

import os
import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.sqlite.file_systems import network_file_system
from strandline.sqlite.page_sums import PageSums
from strandline.sqlite.wal import (
    INDEX_BYTES,
    WAL_HEADER_BYTES,
    DamagedWal,
    checked_frames,
    parse_index_header,
    parse_wal_header,
)
from strandline.sqlite.wal_sums import FrameSums, word_sums


@pytest.mark.parametrize("page_bytes", [512, 4096, 65536])
def test_frames_of_sqlite_are_read(tmp_path: Path, page_bytes: int) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {page_bytes}")
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute("CREATE TABLE t (v)")
        connection.execute("INSERT INTO t VALUES (randomblob(100000))")
        wal = Path(f"{path}-wal").read_bytes()
        header = parse_wal_header(wal)
        index = parse_index_header(Path(f"{path}-shm").read_bytes()[:INDEX_BYTES])
    assert header is not None
    assert index is not None
    assert (header.page_bytes, header.salts) == (page_bytes, index.salts)
    content = memoryview(wal)[WAL_HEADER_BYTES:]
    frames = list(checked_frames(content, header, header.sum))
    assert len(frames) == index.frames
    assert frames[-1].sum == index.sum
    assert [each.pages_if_commit for each in frames if each.pages_if_commit][-1] == index.pages
    damaged = bytearray(content)
    damaged[-1] ^= 1
    with pytest.raises(DamagedWal):
        list(checked_frames(memoryview(damaged), header, header.sum))
    assert parse_wal_header(b"\0" + wal[1:]) is None
    assert parse_wal_header(wal[:20] + b"\1" + wal[21:]) is None


@given(st.booleans(), st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)))
def test_sums_with_numpy_are_those_without(is_big_endian: bool, before: tuple[int, int]) -> None:
    content = memoryview(os.urandom(3 * (24 + 512)))
    with_numpy = FrameSums(content, 512, is_big_endian=is_big_endian, with_numpy=True)
    plain = FrameSums(content, 512, is_big_endian=is_big_endian, with_numpy=False)
    for frame in range(3):
        assert with_numpy.after(frame, before) == plain.after(frame, before)


def test_the_sum_of_two_words() -> None:
    assert word_sums(struct.pack("<2I", 1, 2), (0, 0), is_big_endian=False) == (1, 3)
    assert word_sums(struct.pack(">4I", 1, 2, 3, 4), (0, 0), is_big_endian=True) == (7, 14)


@given(st.lists(st.tuples(st.integers(1, 12), st.binary(min_size=4, max_size=4)), max_size=30), st.integers(0, 12))
def test_the_sum_of_pages_depends_only_on_the_pages(changes: list[tuple[int, bytes]], pages: int) -> None:
    sums, content = PageSums(4), bytearray()
    for number, page in changes:
        sums.put(number, page)
        content.extend(bytes(max(0, number * 4 - len(content))))
        content[number * 4 - 4 : number * 4] = page
    sums.resize(pages)
    content.extend(bytes(max(0, pages * 4 - len(content))))
    fresh = PageSums(4)
    fresh.extend(memoryview(content)[: pages * 4])
    assert (sums.total, sums.pages) == (fresh.total, fresh.pages)


def test_pages_that_change_places_have_another_sum() -> None:
    one, other = PageSums(4), PageSums(4)
    one.extend(memoryview(b"aaaabbbb"))
    other.extend(memoryview(b"bbbbaaaa"))
    assert one.total != other.total


def test_file_systems_of_other_machines_are_known(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:5 / /mnt/a\\040b rw shared:1 - nfs4 host:/x rw\n"
        "3 2 8:2 / /mnt/a\\040b/disk rw - xfs /dev/b rw\n"
    )
    assert network_file_system(Path("/mnt/a b/x.db"), mounts) == "nfs4"
    assert network_file_system(Path("/mnt/a b/disk/x.db"), mounts) is None
    assert network_file_system(Path("/mnt/a bc/x.db"), mounts) is None
    assert network_file_system(Path("/x.db"), tmp_path / "none") is None
