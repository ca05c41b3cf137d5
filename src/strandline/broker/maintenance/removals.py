"""What was deleted goes from the disk later, piece after piece, in one thread.

To remove a tree, or a large file, is some Python between system calls that may take long. Done by several threads at
once it takes the interpreter from the loop again and again, and a thousand deleted topics would be a stall. Files are
renamed at first, and unlinked `file.delete.delay.ms` later, as in Kafka. What is left at a stop, or by a crash, bears
the name of something that is being deleted, and the next start removes it.

Segments that were cut off the front of a log are renamed only when it is written down that the log starts behind them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from strandline.log.disk import Disk
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.segment import Segment
from strandline.runtime.runtime import Runtime

TREES_PER_JOB: Final = 8
"""Directories removed, or segments unlinked, in one trip to the thread."""
SEGMENTS_PER_JOB: Final = 64
"""Segments renamed in one trip."""

log = logging.getLogger("strandline.node")

Work = tuple[str, Callable[[], None]]
"""What is to be removed, for a person to read, and what removes it."""


class Removals:
    def __init__(self, runtime: Runtime, disk: Disk) -> None:
        self._runtime = runtime
        self._disk = disk
        self._due: deque[Work] = deque()
        self._is_removing = False
        self._delayed: dict[int, list[Work]] = {}

    def remove(self, path: Path, *, delay_ms: int = 0) -> None:
        """Remove a directory and all that is in it."""
        self._remove_later((str(path), partial(self._disk.remove_tree, path)), delay_ms)

    def remove_files_of(self, partition_log: PartitionLog, unlink: Callable[[], None]) -> None:
        """Unlink the files of a segment, when the topic says so."""
        self._remove_later((f"{partition_log.directory}", unlink), partition_log.config.file_delete_delay_ms)

    def _remove_later(self, work: Work, delay_ms: int) -> None:
        if delay_ms <= 0:
            self._begin([work])
            return
        # What comes in one turn of the loop is one timer: thousands of segments may leave together.
        waiting = self._delayed.get(delay_ms)
        if waiting is None:
            waiting = self._delayed[delay_ms] = []
            self._runtime.call_soon(self._set_timer, delay_ms)
        waiting.append(work)

    def _set_timer(self, delay_ms: int) -> None:
        self._runtime.call_later(delay_ms / 1000, self._begin, self._delayed.pop(delay_ms))

    def _begin(self, works: list[Work]) -> None:
        self._due.extend(works)
        if not self._is_removing:
            self._start()

    def _start(self) -> None:
        works = [self._due.popleft() for _ in range(min(TREES_PER_JOB, len(self._due)))]
        self._is_removing = bool(works)
        if works:
            self._runtime.in_thread(partial(_remove_all, works), self._on_removed)

    def _on_removed(self, left: list[tuple[str, OSError]] | None, error: BaseException | None) -> None:
        assert left is not None, f"removing cannot fail as a whole: {error}"
        for name, reason in left:
            log.error("%s is left behind: %s", name, reason)
        self._start()


def _remove_all(works: list[Work]) -> list[tuple[str, OSError]]:
    """In a thread: remove each; those that could not be, with the reason."""
    left = []
    for name, remove in works:
        try:
            remove()
        except OSError as error:
            left.append((name, error))
    return left


Written = Callable[[BaseException | None], object]


class SegmentRemovals:
    """Has the files renamed of segments that were cut off the front of logs: `PartitionLog.on_trimmed` is `take`."""

    def __init__(self, runtime: Runtime, disk: Disk, write_start_offsets: Callable[[Written], object]) -> None:
        self._runtime = runtime
        self._disk = disk
        self._write_start_offsets = write_start_offsets
        self._taken: dict[PartitionLog, None] = {}
        self._is_busy = False

    def take(self, partition_log: PartitionLog) -> None:
        self._taken[partition_log] = None
        if not self._is_busy:
            self._is_busy = True
            # Others of this turn are written down along with it.
            self._runtime.call_soon(self._begin)

    def _begin(self) -> None:
        taken, self._taken = list(self._taken), {}
        self._is_busy = bool(taken)
        if all(each.written_start_offset >= each.log_start_offset for each in taken):
            self._rename(deque(taken), False)
        else:
            starts = [(each, each.log_start_offset) for each in taken]
            self._write_start_offsets(partial(self._on_written, starts))

    def _on_written(self, starts: list[tuple[PartitionLog, int]], error: BaseException | None) -> None:
        if error is None:
            for each, start_offset in starts:
                each.written_start_offset = max(each.written_start_offset, start_offset)
        # Else the disk is full, perhaps, and what leaves is what will make room: it is for the directory alone to say
        # what is gone, and so that is synced before anything is unlinked.
        self._rename(deque(each for each, _ in starts), error is not None)

    def _rename(self, logs: deque[PartitionLog], must_sync: bool) -> None:
        # If a log was deleted meanwhile, its files go with it, and their names may be another log's by now.
        while logs and (logs[0].failure is not None or not logs[0].trimmed):
            logs.popleft()
        if logs:
            work = partial(_rename_some, self._disk, list(logs), must_sync)
            self._runtime.in_thread(work, partial(self._on_renamed, logs, must_sync))
        elif self._is_busy:
            self._begin()

    def _on_renamed(
        self,
        logs: deque[PartitionLog],
        must_sync: bool,
        result: tuple[list[Segment], dict[PartitionLog, OSError]] | None,
        error: BaseException | None,
    ) -> None:
        assert result is not None, f"renaming cannot fail as a whole: {error}"
        renamed, failed = result
        for segment in renamed:
            segment.release()
        for each, reason in failed.items():
            log.warning("%s: files below the log start offset stay for now: %s", each.directory, reason)
            logs.remove(each)
        self._rename(logs, must_sync)


def _rename_some(
    disk: Disk, logs: list[PartitionLog], must_sync: bool
) -> tuple[list[Segment], dict[PartitionLog, OSError]]:
    """In a thread: rename the files of some segments, the oldest of each log first; those, and what went wrong."""
    renamed: list[Segment] = []
    failed: dict[PartitionLog, OSError] = {}
    for each in logs:
        leaving = each.trimmed
        try:
            while leaving is not None and len(renamed) < SEGMENTS_PER_JOB:
                segment = leaving.rename_next()
                if segment is None:
                    break
                renamed.append(segment)
            if must_sync:
                disk.sync_directory(each.directory)
        except OSError as error:
            failed[each] = error
        if len(renamed) >= SEGMENTS_PER_JOB:
            break
    return renamed, failed
