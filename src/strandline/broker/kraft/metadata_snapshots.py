"""The snapshots beside the metadata log: found at start, written in parts, sent in parts, removed.

    <end offset, 20 digits>-<epoch, 10 digits>.checkpoint         whole, synced, and never changed
    ....checkpoint.part                                           being written; dropped by the next start

A snapshot gets its name only once all of it is on disk, and the name is on disk before it is relied on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from strandline.codec.messages.voters_record import VotersRecord
from strandline.errors import CorruptLog
from strandline.log.disk import Disk, File
from strandline.quorum.image.snapshot_format import BOOTSTRAP, bootstrap_snapshot, header_timestamp_ms
from strandline.quorum.raft.raft_log import SnapshotId

SUFFIX: Final = ".checkpoint"
PARTIAL_SUFFIX: Final = ".checkpoint.part"
DELETED_SUFFIX: Final = ".checkpoint.deleted"
HEADER_BYTES_MAX: Final = 64 * 1024
"""How much of a snapshot is read to find its first batch, which names all voters."""
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


def file_name(snapshot_id: SnapshotId) -> str:
    return f"{snapshot_id.end_offset:020d}-{snapshot_id.epoch:010d}{SUFFIX}"


class PartialSnapshot:
    """A snapshot that is being written, by a node from its image or by a follower from what its leader sends."""

    def __init__(self, disk: Disk, directory: Path, snapshot_id: SnapshotId) -> None:
        self.id = snapshot_id
        self.size_bytes = 0
        self._disk = disk
        self._directory = directory
        self._path = (directory / file_name(snapshot_id)).with_suffix(PARTIAL_SUFFIX)
        disk.remove(self._path)
        self._file: File | None = disk.open(self._path, create=True)

    def append(self, data: bytes) -> None:
        assert self._file is not None
        self._file.write_at(self.size_bytes, data)
        self.size_bytes += len(data)

    def read(self) -> bytes:
        """All that was written so far. Blocks: for a thread."""
        assert self._file is not None
        return self._file.read_at(0, self.size_bytes)

    def finish(self) -> None:
        """Sync it and give it its name. Blocks: for a thread."""
        assert self._file is not None
        self._file.datasync()
        self._disk.sync_directory(self._directory)
        self._close()
        self._disk.rename(self._path, self._directory / file_name(self.id))
        self._disk.sync_directory(self._directory)

    def abandon(self) -> None:
        self._close()
        self._disk.remove(self._path)

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class MetadataSnapshots:
    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory
        self.ids: list[SnapshotId] = []
        """Those that stand for a part of the log, oldest first; the bootstrap snapshot is none of them."""
        self.has_bootstrap = False
        for name in disk.names(directory) if disk.exists(directory) else []:
            match = _NAME.fullmatch(name)
            if name.endswith((PARTIAL_SUFFIX, DELETED_SUFFIX)):
                disk.remove(directory / name)
            elif match is not None:
                self.add(SnapshotId(int(match[1]), int(match[2])))

    def add(self, snapshot_id: SnapshotId) -> None:
        if snapshot_id == BOOTSTRAP:
            self.has_bootstrap = True
        elif snapshot_id not in self.ids:
            self.ids.append(snapshot_id)
            self.ids.sort()

    @property
    def latest(self) -> SnapshotId | None:
        return self.ids[-1] if self.ids else None

    @property
    def earliest(self) -> SnapshotId | None:
        return self.ids[0] if self.ids else None

    def path(self, snapshot_id: SnapshotId) -> Path:
        return self._directory / file_name(snapshot_id)

    def begin(self, snapshot_id: SnapshotId) -> PartialSnapshot:
        return PartialSnapshot(self._disk, self._directory, snapshot_id)

    def read_whole(self, snapshot_id: SnapshotId) -> bytes:
        return self._disk.read_whole(self.path(snapshot_id))

    def read_part(self, snapshot_id: SnapshotId, position: int, size_bytes_max: int) -> tuple[int, bytes]:
        """The size of the whole, and the bytes from `position` on. Blocks on the disk."""
        file = self._disk.open(self.path(snapshot_id))
        try:
            size = file.size()
            if not 0 <= position < size:
                return size, b""
            return size, file.read_at(position, min(max(0, size_bytes_max), size - position))
        finally:
            file.close()

    def size_bytes(self, snapshot_id: SnapshotId) -> int:
        return self._disk.size(self.path(snapshot_id))

    def timestamp_ms(self, snapshot_id: SnapshotId) -> int:
        """The time of the last record it holds."""
        _, first = self.read_part(snapshot_id, 0, HEADER_BYTES_MAX)
        try:
            return header_timestamp_ms(first)
        except CorruptLog as error:
            raise CorruptLog(f"{self.path(snapshot_id)}: {error}") from error

    def remove_before(self, end_offset: int) -> list[SnapshotId]:
        """Remove those that end before `end_offset`, oldest first; which."""
        gone = [each for each in self.ids if each.end_offset < end_offset]
        for each in gone:
            self._disk.remove(self.path(each))
            self.ids.remove(each)
        return gone


def write_bootstrap(
    disk: Disk,
    directory: Path,
    *,
    voters: VotersRecord | None,
    features: Mapping[str, int],
    kraft_version: int,
    now_ms: int,
    records: Sequence[Any] = (),
) -> Path:
    """Write the bootstrap snapshot into a data directory that is being formatted; its path."""
    home = directory / "__cluster_metadata-0"
    disk.make_directory(home)
    disk.sync_directory(directory)
    path = home / file_name(BOOTSTRAP)
    disk.write_whole(
        path, bootstrap_snapshot(voters, features, kraft_version, now_ms=now_ms, records=records), sync=True
    )
    return path
