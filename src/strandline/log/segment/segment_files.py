"""The files beside a segment's log: those of its indexes, and all of them when the segment is deleted."""

from __future__ import annotations

from pathlib import Path

from strandline.log.disk import Disk
from strandline.log.segment.file_names import DELETED_SUFFIX, SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX
from strandline.log.segment.index import OffsetIndex, TimeIndex
from strandline.log.segment.transaction_index import TransactionIndex

AnyIndex = OffsetIndex | TimeIndex | TransactionIndex


def read_index(disk: Disk, path: Path) -> bytes:
    """Return the content of a file, empty if there is none."""
    try:
        return disk.read_whole(path) if disk.exists(path) else b""
    except FileNotFoundError:
        return b""


def rewrite_index(disk: Disk, path: Path, index: AnyIndex) -> None:
    """Replace the content of a file by what is in memory."""
    data = index.to_bytes()
    file = disk.open(path, create=True)
    try:
        file.truncate(len(data))
        file.write_at(0, data)
    finally:
        file.close()
    index.unwritten.clear()


def write_index(disk: Disk, path: Path, index: AnyIndex) -> None:
    """Append to a file what only memory holds."""
    if index.unwritten:
        file = disk.open(path, create=True)
        try:
            file.write_at(index.written_bytes, index.unwritten)
        finally:
            file.close()
        # Only now: if the disk was full, the next attempt writes them again.
        index.unwritten.clear()


def truncate_index(disk: Disk, path: Path, index: AnyIndex) -> None:
    """Cut a file to what memory knows. What it lacks is written later, because a full disk would refuse that."""
    if disk.exists(path):
        file = disk.open(path)
        try:
            file.truncate(index.written_bytes)
        finally:
            file.close()


def rename_away(disk: Disk, log_path: Path) -> None:
    """Rename all files of a segment to names that count for nothing."""
    # The log itself last: without it an index would be left that belongs to nothing.
    for suffix in (SNAPSHOT_SUFFIX, *reversed(SEGMENT_SUFFIXES)):
        path = log_path.with_suffix(suffix)
        if disk.exists(path):
            disk.rename(path, _renamed(path))


def remove_renamed(disk: Disk, log_path: Path) -> None:
    """Remove the files that `rename_away` left."""
    for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX):
        disk.remove(_renamed(log_path.with_suffix(suffix)))


def _renamed(path: Path) -> Path:
    return path.with_name(path.name + DELETED_SUFFIX)
