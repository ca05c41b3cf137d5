"""A bound on open descriptors: segments open their files on demand, and the ones not lately used are closed.

The clock algorithm: a hand goes round the open segments; one touched since the last round gets a second chance. It
costs the hot path one attribute, where a true least-recently-used order would cost a dictionary move per append.
"""

from __future__ import annotations

import errno
from collections import deque
from typing import Final

from strandline.log.disk import Disk, File
from strandline.log.segment.segment import Segment

OPEN_FILES_MAX_DEFAULT: Final = 1000
STEPS_MAX: Final = 64
"""How far the hand goes for one file that is opened: a bound on what one append may pay for the others."""


class OpenFiles:
    def __init__(self, disk: Disk, *, open_files_max: int = OPEN_FILES_MAX_DEFAULT) -> None:
        self.disk = disk
        self.open_files_max = max(8, open_files_max)
        self._clock: deque[Segment] = deque()

    def __len__(self) -> int:
        return len(self._clock)

    def open(self, segment: Segment, *, create: bool = False) -> File:
        assert not segment.is_open
        if len(self._clock) >= self.open_files_max:
            self._make_room()
        while True:
            try:
                file = self.disk.open(segment.path, create=create)
                break
            except OSError as error:
                # The process ran out of descriptors, to connections perhaps: give up even one that needs a flush.
                if error.errno != errno.EMFILE or not self._close_unflushed():
                    raise
        segment.attach(file)
        segment.touched = True
        self._clock.append(segment)
        return file

    def adopt(self, segment: Segment, file: File) -> None:
        """Count a segment whose file is open already."""
        assert not segment.is_open
        segment.attach(file)
        segment.touched = True
        self._clock.append(segment)

    def trim(self) -> None:
        """Come back under the limit after a burst of appends to many logs, whose files had to wait for a flush."""
        for _ in range(len(self._clock) // STEPS_MAX + 1):
            if len(self._clock) <= self.open_files_max:
                return
            self._make_room()

    def _make_room(self) -> None:
        """Close what the hand meets and may close. What waits for a flush has it asked for, and is closed later."""
        clock = self._clock
        for _ in range(STEPS_MAX):
            if len(clock) < self.open_files_max:
                return
            segment = clock[0]
            clock.rotate(-1)
            if segment.touched:
                segment.touched = False
            elif segment.dirty:
                segment.want_flush()
            elif segment.references == 0:
                clock.pop()
                segment.detach()

    def _close_unflushed(self) -> bool:
        """Close any file that is not retained. Return False if every one is."""
        clock = self._clock
        for _ in range(len(clock)):
            segment = clock[0]
            clock.rotate(-1)
            if segment.references == 0:
                if segment.dirty:
                    # The kernel reports a writeback error once, to an open descriptor: never close an unflushed one.
                    try:
                        segment.file().datasync()
                    except OSError as error:
                        # The kernel has reported it here and will not report it again: the next flush must fail by it.
                        segment.sync_error = error
                        continue
                clock.pop()
                segment.detach()
                return True
        return False

    def forget(self, segment: Segment) -> None:
        """Close the file of a segment that is closed or deleted."""
        if segment.is_open:
            self._clock.remove(segment)
            segment.detach()
