"""Segments that were cut off the front of a log, until none of their files bears a segment's name any more.

They are out of sight already. Their files are renamed oldest first, by a thread, after it is written down that the log
starts behind them: a crash on the way leaves a log that begins earlier and is trimmed when it is opened, never one with
a hole. Meanwhile the log may be deleted, and another made in its place, or begin anew with files of the same names:
whoever does that calls `stop` or `rename_rest` first, and from then on the thread finds nothing left to do.
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
        """Rename the files of the oldest one, which the caller, or its loop, then releases; None if none is left.

        If that fails it stays, and those behind it: the next attempt begins with it.
        """
        with self._lock:
            if not self._segments:
                return None
            self._segments[0].rename_away()
            return self._segments.pop(0)

    def rename_rest(self) -> None:
        """Rename what is left here and now: files of the same names are about to be made."""
        while (segment := self.rename_next()) is not None:
            segment.release()

    def stop(self) -> None:
        """Leave the files as they are: the directory goes, or the next start trims it."""
        with self._lock:
            segments, self._segments = self._segments, []
        for segment in segments:
            segment.release()
