"""A log whose files are a cache: they are never synced, and no flush of the disk counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from strandline.log.disk import Disk
from strandline.log.segment.log_slice import FlushJob
from strandline.log.unsynced import Unsynced


class NeverSynced(Unsynced):
    """What is written and needs no sync: no flush of the disk may count as a commit."""

    __slots__ = ()

    def begin(self, disk: Disk, end_offset: int) -> FlushJob | None:
        for segment in self.segments:
            segment.dirty = False
        self.segments, self.files, self.directories = [], [], []
        return None


class CacheDisk:
    """A disk that syncs nothing by itself: a thousand partitions may begin their logs at once."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def write_whole(self, path: Path, data: bytes, *, sync: bool = False) -> None:
        self._disk.write_whole(path, data)

    def sync_directory(self, path: Path) -> None:
        """Do nothing: what a power cut leaves is dropped."""
