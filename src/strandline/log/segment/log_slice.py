"""A piece of a log for a reader, and the files of a log that one flush syncs."""

from __future__ import annotations

from pathlib import Path

from strandline.log.disk import Disk, File, RealFile
from strandline.log.segment.segment import Segment


class LogSlice:
    """Whole batches in one segment's file, held until `release`."""

    __slots__ = ("position", "segment", "size_bytes")

    def __init__(self, segment: Segment, position: int, size_bytes: int) -> None:
        segment.retain()
        self.segment = segment
        self.position = position
        self.size_bytes = size_bytes

    def read(self) -> bytes:
        return self.segment.file().read_at(self.position, self.size_bytes)

    def release(self) -> None:
        self.segment.release()


class FlushJob:
    """What one flush has to sync; `run` is called in a thread."""

    __slots__ = ("_directories", "_disk", "_files", "_paths", "cuts", "end_offset", "segments")

    def __init__(
        self, disk: Disk, segments: list[Segment], paths: list[Path], directories: list[Path], end_offset: int
    ) -> None:
        held: list[Segment] = []
        try:
            for segment in segments:
                segment.retain()
                held.append(segment)
        except OSError:
            for segment in held:
                segment.release()
            raise
        self.segments = segments
        self.end_offset = end_offset
        self.cuts = 0
        """How often the log was truncated before the flush began: these truncations are on disk when it ends."""
        self._disk = disk
        self._files: list[File] = [segment.file() for segment in segments]
        self._paths = paths
        self._directories = directories

    def plain_files(self) -> list[int] | None:
        """Return the descriptors whose fdatasync is all that `run` would do, or None if it would do more."""
        if self._paths or self._directories:
            return None
        fds: list[int] = []
        for segment, file in zip(self.segments, self._files, strict=True):
            # Other files are a simulated disk's, or fail because a test wants it.
            if type(file) is not RealFile or segment.sync_error is not None:
                return None
            fds.append(file.fileno())
        return fds

    def run(self, synced: set[Path] | None = None) -> None:
        """Sync everything. `synced` are directories that were synced since this job was made: new logs share theirs."""
        for segment, file in zip(self.segments, self._files, strict=True):
            if segment.sync_error is not None:
                raise segment.sync_error
            file.datasync()
        for path in self._paths:
            try:
                index = self._disk.open(path)
            except FileNotFoundError:
                continue  # Trimmed away since, perhaps while this flush runs.
            try:
                index.datasync()
            finally:
                index.close()
        synced = set() if synced is None else synced
        for directory in self._directories:
            if directory not in synced:
                self._disk.sync_directory(directory)
                synced.add(directory)


def slice_size(
    segment: Segment, position: int, end: int, size_bytes_max: int, at_least_one: bool, may_block: bool
) -> int:
    """Return how many bytes to send from `position`, ending between batches."""
    if end - position <= size_bytes_max:
        return end - position
    boundary = segment.index.boundary_before(position + max(0, size_bytes_max))
    if boundary > position:
        return boundary - position
    # No index entry in reach: one batch at a time, or as many bytes as asked with a batch cut at the end, which
    # readers drop. A first batch that does not fit is sent whole or not at all.
    first = segment.batch_size_at(position, may_block=may_block)
    if first > size_bytes_max:
        return first if at_least_one else 0
    return size_bytes_max
