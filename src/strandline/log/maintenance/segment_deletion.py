"""Segments that were trimmed off the front of a log, until their files are renamed.

Readers do not see them any more. After the new log start is written down, a thread renames their files, oldest first.
So a crash on the way leaves a log that begins earlier and is trimmed when it is opened, never one with a hole.
Meanwhile the log may be deleted and another made in its place, or restarted with files of the same names. Before that
the loop calls `stop` or `rename_rest`, after which the thread finds nothing left to do.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from strandline.log.segment.segment import Segment


class TrimmedSegments:
    __slots__ = ("_lock", "_segments")

    def __init__(self) -> None:
        self._segments: list[Segment] = []
        # Held for the few renames of one segment: the loop waits no longer for it than for renames of its own.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._segments)

    def add(self, segments: Iterable[Segment]) -> None:
        with self._lock:
            self._segments += segments

    def rename_next(self) -> Segment | None:
        """Rename the files of the oldest segment, and return it for the loop to release; None if none is left.

        If that fails it stays, and those behind it: the next attempt begins with it.
        """
        with self._lock:
            if not self._segments:
                return None
            self._segments[0].rename_away()
            return self._segments.pop(0)

    def rename_rest(self) -> None:
        """Rename the rest now, because files of the same names are about to be made."""
        while (segment := self.rename_next()) is not None:
            segment.release()

    def stop(self) -> None:
        """Leave the files as they are: the directory is removed, or the next start trims it."""
        with self._lock:
            segments, self._segments = self._segments, []
        for segment in segments:
            segment.release()
