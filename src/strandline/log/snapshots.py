"""The `.snapshot` files of a log: what its observer knew as of an offset, so that a start need not read everything.

A snapshot is checked when it is read, so it need not be synced: one that a crash tore is dropped, and the log itself
knows everything that a snapshot knows, only slower.
"""

from __future__ import annotations

from pathlib import Path

from strandline.errors import CorruptLog
from strandline.log.disk import Disk
from strandline.log.observer import BatchObserver
from strandline.log.segment.file_names import SNAPSHOT_SUFFIX, file_stem


class ProducerSnapshots:
    def __init__(self, directory: Path, disk: Disk, observer: BatchObserver | None) -> None:
        self._directory = directory
        self.disk = disk
        self._observer = observer

    def _path(self, offset: int) -> Path:
        return self._directory / (file_stem(offset) + SNAPSHOT_SUFFIX)

    def offsets(self) -> list[int]:
        """Return the offsets of the snapshots, oldest first."""
        names = [name for name in self.disk.names(self._directory) if name.endswith(SNAPSHOT_SUFFIX)]
        stems = [name[: -len(SNAPSHOT_SUFFIX)] for name in names]
        return sorted(int(stem) for stem in stems if stem.isdecimal())

    def save(self, offset: int) -> None:
        """Keep what the observer knows now, when the log ends at `offset`."""
        if self._observer is not None:
            self.disk.write_whole(self._path(offset), self._observer.snapshot())

    def adopt(self, offset: int, data: bytes) -> None:
        """Keep what another replica knew when its log ended at `offset`."""
        self.disk.write_whole(self._path(offset), data, sync=True)

    def restore(self, *, at_most: int | None, now_ms: int) -> int | None:
        """Load the newest sound snapshot at or below `at_most`. Return its offset, or None if the observer is empty.

        Nothing in it was appended after `now_ms`.
        """
        if self._observer is None:
            return None
        for offset in reversed(self.offsets()):
            if at_most is not None and offset > at_most:
                continue
            try:
                self._observer.restore(self.disk.read_whole(self._path(offset)), now_ms)
            except CorruptLog:
                self.disk.remove(self._path(offset))
                continue
            return offset
        self._observer.clear()
        return None

    def keep_useful(self, base_offsets: list[int], end_offset: int) -> None:
        """Keep the snapshots at the beginning of segments and the newest one; each clean stop would leave one more."""
        self.remove_beyond(end_offset)
        useful = set(base_offsets)
        for offset in self.offsets()[:-1]:
            if offset not in useful:
                self.disk.remove(self._path(offset))

    def remove_beyond(self, end_offset: int) -> None:
        """Remove snapshots of truncated records, so that no recovery finds them."""
        for offset in self.offsets():
            if offset > end_offset:
                self.disk.remove(self._path(offset))
