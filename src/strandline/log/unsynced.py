"""The files of a log that are written and not yet synced."""

from __future__ import annotations

from pathlib import Path

from strandline.log.disk import Disk
from strandline.log.segment.log_slice import FlushJob
from strandline.log.segment.segment import Segment


class Unsynced:
    """Segments, small files beside them and directories that the next flush syncs, and the flush under way."""

    __slots__ = ("directories", "files", "job", "segments")

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        """Each has `dirty` set."""
        self.files: list[Path] = []
        self.directories: list[Path] = []
        self.job: FlushJob | None = None

    @property
    def is_plain(self) -> bool:
        """Whether a flush would sync segments and nothing else."""
        return not self.files and not self.directories

    def add(self, segment: Segment) -> None:
        segment.dirty = True
        if segment not in self.segments:
            self.segments.append(segment)

    def discard(self, segment: Segment) -> None:
        if segment in self.segments:
            self.segments.remove(segment)

    def begin(self, disk: Disk, end_offset: int) -> FlushJob | None:
        """Return a flush of everything here, or None if there is nothing. Raises OSError, and everything stays."""
        if not self.segments and not self.directories:
            return None
        job = FlushJob(disk, self.segments, self.files, list(dict.fromkeys(self.directories)), end_offset)
        for segment in self.segments:
            segment.dirty = False
        self.segments, self.files, self.directories = [], [], []
        self.job = job
        return job

    def limit(self, end_offset: int) -> None:
        """Keep the flush under way from counting for offsets from `end_offset` on."""
        if self.job is not None:
            self.job.end_offset = min(self.job.end_offset, end_offset)
