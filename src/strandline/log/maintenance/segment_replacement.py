"""Replacing segments of a live log by one that was cleaned or repaired: crash-safe, while readers use them.

The new segment is complete and synced, under names that count for nothing (`.cleaned`). Then, with the names that
Kafka's log loader knows:

    thread   1  <base>.index.cleaned -> .swap, and so on, the .log last; the directory is synced
    loop     2  the old segments are still what the new one was made of: it takes their place; readers of one go on
    thread   3  the old files -> .deleted, snapshots of bases that are no more likewise
             4  .swap loses its suffix, the .log last; the directory is synced
    loop     5  the old files are unlinked when the last reader releases them, after a while

Before the last rename of step 1 a crash leaves the old segments, then the new one (`replacement_recovery`). The
directory is synced in between, so no old file goes before the new one is sure to stay. From step 2 to 5 the new segment
is read by its open file, whatever that is called by then.

While a replacement is under way it is `PartitionLog.swap`. Truncating, closing or deleting the log settles it first.
A new segment may hold less than its range, so nothing of that range may be above the recovery point on disk: to a
recovery a gap there is a loss. The caller has written the recovery points down since the range was flushed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from strandline.errors import CorruptLog, DiskFailed, WorldError
from strandline.log.cleaning.job import CLEANED_SUFFIX, CleanedGroup
from strandline.log.disk import File
from strandline.log.maintenance.replacement_recovery import SWAP_SUFFIX, in_order, originals
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.file_names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_stem,
)
from strandline.log.segment.index import OffsetIndex
from strandline.log.segment.segment import Segment
from strandline.log.segment.transaction_index import TransactionIndex
from strandline.runtime.fault_points import fault_point
from strandline.runtime.runtime import Runtime

log = logging.getLogger("strandline.log")

Done = Callable[[BaseException | None], object]
Remove = Callable[[Callable[[], None]], object]


class ReplacementRefused(WorldError):
    """The replacement was not made, because its source segments are no longer those of the log. Nothing changed."""


class Prepared(NamedTuple):
    """The new segment's file, open, and what must be known of its indexes while their files have no names."""

    file: File
    offsets: OffsetIndex
    aborted: TransactionIndex


def replace_segments(
    partition_log: PartitionLog,
    cleaned: CleanedGroup,
    *,
    runtime: Runtime,
    on_done: Done,
    sources: Sequence[Segment] | None = None,
    cuts: int | None = None,
    remove: Remove | None = None,
) -> None:
    """Put `cleaned` in the place of the segments that it was made of, and call `on_done(error)` when that is safe.

    `sources` are those segments and `cuts` is `partition_log.cuts`, both as they were when the making began (default:
    now). The error is ReplacementRefused if they have changed since. It is DiskFailed if the disk fails half way: the
    log is offline then, and the next start completes the replacement. `remove` is given a function that unlinks the old
    files (default: at once).
    """
    swap = SegmentReplacement(partition_log, cleaned, runtime, on_done, remove)
    swap.sources = swap.find_sources() if sources is None else list(sources)
    swap.cuts = partition_log.cuts if cuts is None else cuts
    swap.begin()


class SegmentReplacement:
    """A replacement under way. A lock is held while files are renamed: the loop may have to finish or stop it."""

    def __init__(
        self, partition_log: PartitionLog, cleaned: CleanedGroup, runtime: Runtime, on_done: Done, remove: Remove | None
    ) -> None:
        self._log = partition_log
        self._cleaned = cleaned
        self.end_offset = cleaned.end_offset
        self._runtime = runtime
        self._on_done = on_done
        self._remove = remove
        self.sources: list[Segment] = []
        self.cuts = 0
        self._disk = partition_log.disk
        self._directory = partition_log.directory
        self._lock = threading.Lock()
        self._is_void = False
        self._is_renamed = False
        self._new: Segment | None = None
        self._let_go: list[Callable[[], None]] = []

    def find_sources(self) -> list[Segment]:
        wanted = set(self._cleaned.replaced)
        return [segment for segment in self._log.segments if segment.base_offset in wanted]

    def begin(self) -> None:
        if self._log.swap is not None:
            # Nothing is removed: the other's files may have the same names, and old segments give way to them just now.
            refused = ReplacementRefused(f"{self._directory.name}: another swap is under way")
            self._runtime.call_soon(self._on_done, refused)
            return
        refusal = self._why_not()
        if refusal is not None:
            self._refuse(refusal)
            return
        self._log.swap = self
        self._runtime.in_thread(self._prepare, self._on_prepared)

    def _why_not(self) -> str | None:
        """Return why the new segment cannot take its place; None if it can."""
        partition_log, cleaned = self._log, self._cleaned
        if partition_log.failure is not None:
            return str(partition_log.failure)
        found = self.find_sources()
        if len(found) != len(cleaned.replaced) or len(found) != len(self.sources):
            return "segments that it was made of are gone"
        at = partition_log.base_offsets.index(found[0].base_offset)
        if found != partition_log.segments[at : at + len(found)] or any(
            each is not source or each.is_active for each, source in zip(found, self.sources, strict=True)
        ):
            return "segments that it was made of are not those of the log"
        if self.cuts != partition_log.cuts:
            return "the log was cut"
        behind = at + len(found)
        if behind >= len(partition_log.segments) or partition_log.base_offsets[behind] != cleaned.end_offset:
            return "what follows is not what followed when it was made"
        if partition_log.flushed_offset < cleaned.end_offset:
            return f"offset {cleaned.end_offset} is above the recovery point {partition_log.flushed_offset}"
        return None

    def _refuse(self, reason: str) -> None:
        """Remove the new files: nothing was renamed, or all of it was undone."""

        def done(_: None, error: BaseException | None) -> None:
            if error is not None:
                log.warning("%s: what was not swapped in stays until the next start: %s", self._directory, error)
            self._on_done(ReplacementRefused(f"{self._directory.name}: {reason}"))

        if self._log.failure is not None:
            # The directory may be another log's by now; what this one leaves, the next start removes.
            self._runtime.call_soon(done, None, None)
        else:
            self._runtime.in_thread(self._discard, done)

    # Step 1, in a thread

    def _path(self, suffix: str, behind: str = "") -> Path:
        return self._directory / (file_stem(self._cleaned.base_offset) + suffix + behind)

    def _prepare(self) -> Prepared | None:
        with self._lock:
            if self._is_void:
                return None
            fault_point("swap-begun")
            for suffix in in_order(self._cleaned.suffixes):
                if suffix == LOG_SUFFIX:
                    fault_point("swap-half-named")
                self._disk.rename(self._path(suffix, CLEANED_SUFFIX), self._path(suffix, SWAP_SUFFIX))
            # Opened while no one can take the name away.
            file = self._disk.open(self._path(LOG_SUFFIX, SWAP_SUFFIX))
        try:
            fault_point("swap-named")
            self._disk.sync_directory(self._directory)
            fault_point("swap-synced")
            if file.size() != self._cleaned.size_bytes:
                raise CorruptLog(f"{self._directory.name}: {file.size()} bytes, not {self._cleaned.size_bytes}")
            index = OffsetIndex.parse(self._disk.read_whole(self._path(INDEX_SUFFIX, SWAP_SUFFIX)))
            aborted = b""
            if self._cleaned.has_transaction_index:
                aborted = self._disk.read_whole(self._path(TRANSACTION_INDEX_SUFFIX, SWAP_SUFFIX))
            return Prepared(file, index, TransactionIndex.parse(aborted, base_offset=self._cleaned.base_offset))
        except BaseException:
            file.close()
            raise

    def _discard(self) -> None:
        """Undo step 1, the log first: recovery does not complete an index alone."""
        with self._lock:
            had_swap = self._disk.exists(self._path(LOG_SUFFIX, SWAP_SUFFIX))
            for suffix in self._cleaned.suffixes:
                for behind in (SWAP_SUFFIX, CLEANED_SUFFIX):
                    self._disk.remove(self._path(suffix, behind))
        if had_swap:
            # It would come back with the power, and take the place of segments that may be others by then.
            self._disk.sync_directory(self._directory)

    # Step 2, on the loop

    def _on_prepared(self, prepared: Prepared | None, error: BaseException | None) -> None:
        partition_log = self._log
        if self._is_void or partition_log.failure is not None:
            self._clear(prepared)
            self._on_done(ReplacementRefused(f"{self._directory.name}: {partition_log.failure or 'the log was cut'}"))
            return
        refusal = str(error) if prepared is None else self._why_not()
        if refusal is not None or prepared is None:
            self._clear(prepared)
            if error is not None:
                self._give_up(error)
            else:
                self._refuse(str(refusal))
            return
        self._take_place(prepared)
        self._runtime.in_thread(self._complete, self._on_completed)

    def _clear(self, prepared: Prepared | None) -> None:
        if self._log.swap is self:
            self._log.swap = None
        if prepared is not None:
            prepared.file.close()

    def _give_up(self, reason: BaseException) -> None:
        """Undo step 1, which the disk refused, and go on with the old segments."""

        def done(_: None, error: BaseException | None) -> None:
            if error is not None:
                # With a complete `.swap` the next start would bring it in, whatever has become of the log by then.
                self._log.fail(DiskFailed(f"{self._directory}: cannot take a swap back: {error}"))
            self._on_done(reason)

        self._runtime.in_thread(self._discard, done)

    def _take_place(self, prepared: Prepared) -> None:
        partition_log, cleaned = self._log, self._cleaned
        at = partition_log.base_offsets.index(cleaned.base_offset)
        count = len(self.sources)
        # As Kafka does it: a segment without times in it is as old as the newest it was made of.
        created_ms = max(segment.created_ms for segment in self.sources)
        new = partition_log.new_segment(cleaned.base_offset, created_ms)
        new.size_bytes = cleaned.size_bytes
        new.has_transaction_index = cleaned.has_transaction_index
        new.max_timestamp_ms = cleaned.max_timestamp_ms
        new.offset_of_max_timestamp = cleaned.offset_of_max_timestamp
        new.stand_in(prepared.file, prepared.offsets, prepared.aborted)
        for segment in self.sources:
            partition_log.unsynced.discard(segment)
            self._let_go.append(segment.yield_to(new, self._remove))
        partition_log.segments[at : at + count] = [new]
        partition_log.base_offsets[at : at + count] = [new.base_offset]
        partition_log.swaps += 1
        self._new = new

    # Steps 3 and 4, in a thread

    def _complete(self) -> None:
        with self._lock:
            self._rename()
        self._disk.sync_directory(self._directory)
        fault_point("swap-safe")

    def _rename(self) -> None:
        if self._is_renamed or self._is_void:
            return
        fault_point("swap-replacing")
        for name in originals(self._disk.names(self._directory), self._cleaned.base_offset, self._cleaned.replaced):
            self._disk.rename(self._directory / name, self._directory / (name + DELETED_SUFFIX))
            fault_point("swap-half-gone")
        fault_point("swap-gone")
        for suffix in in_order(self._cleaned.suffixes):
            if suffix == LOG_SUFFIX:
                fault_point("swap-half-done")
            self._disk.rename(self._path(suffix, SWAP_SUFFIX), self._path(suffix))
        self._is_renamed = True
        fault_point("swap-done")

    # Step 5, on the loop

    def _on_completed(self, _: None, error: BaseException | None) -> None:
        if error is not None and self._log.failure is None:
            # Half of the names are old and half are new. A start makes that whole again, and nothing else does.
            self._log.fail(DiskFailed(f"{self._directory}: cannot complete a swap: {error}"))
        self._end()
        self._on_done(self._log.failure if error is not None else None)

    def _end(self) -> None:
        if self._log.swap is self:
            self._log.swap = None
        new, self._new = self._new, None
        if new is not None:
            new.end_standing_in()
        let_go, self._let_go = self._let_go, []
        for each in let_go:
            each()

    # Other changes of the log meanwhile, on the loop

    def settle(self) -> None:
        """Finish, or undo everything, before the log is truncated or closed. Blocks for some renames."""
        if self._new is None:
            self._is_void = True
            self._discard()
            self._log.swap = None
        else:
            with self._lock:
                self._rename()
            self._end()

    def abandon(self) -> None:
        """Stop without touching a file: the directory belongs to another log now."""
        with self._lock:
            self._is_void = True
        self._end()
