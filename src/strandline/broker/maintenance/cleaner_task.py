"""One log is cleaned, once: what the worker is asked, what it makes is swapped in group by group, and how it ended.

    recovery points on disk ──▶ leftovers removed, aborted transactions read (thread) ──▶ the worker cleans
    each group that it reports ──▶ swapped in, one after the other, in their order

Before the first swap the recovery points are written down, after the range was flushed: see `log.swapping`. The log
lives on meanwhile. If it is cut, trimmed, deleted or fails, the swap of what is concerned refuses, and the rest of the
cleaning is given up: what was swapped in before is good.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from strandline.broker.maintenance.storage_worker import Job, JobFailed
from strandline.config.settings import LONG_MAX
from strandline.errors import StrandlineError
from strandline.ids import TopicPartition
from strandline.log.cleaning.job import CLEANED_SUFFIX, CleanedGroup, CleaningJob, CleaningResult, SourceSegment
from strandline.log.maintenance.cleanable import Cleanable, Cleaned
from strandline.log.maintenance.segment_replacement import ReplacementRefused, replace_segments
from strandline.log.maintenance.worker_jobs import CLEAN
from strandline.log.segment.segment import Segment
from strandline.log.segment.transaction_index import AbortedTransaction
from strandline.partition.partition import Partition

if TYPE_CHECKING:
    from strandline.broker.maintenance.storage import LogStorage
    from strandline.config.node_config import BrokerConfig

log = logging.getLogger("strandline.cleaner")


class CleanerShare(NamedTuple):
    """What one of several cleaners may use."""

    dedupe_buffer_bytes: int
    io_buffer_bytes: int
    io_bytes_per_s: float
    load_factor: float

    @classmethod
    def of(cls, config: BrokerConfig) -> CleanerShare:
        """Return the share of each cleaner, as it is configured now."""
        cleaners = max(1, config.log_cleaner_threads)
        return cls(
            config.log_cleaner_dedupe_buffer_size // cleaners,
            max(1, config.log_cleaner_io_buffer_size // cleaners),
            config.log_cleaner_io_max_bytes_per_second / cleaners,
            config.log_cleaner_io_buffer_load_factor,
        )


class GivenUp(StrandlineError):
    """The cleaning was stopped, or the log changed under it. Nothing is wrong with the log; it may be tried again."""


OnEnd = Callable[["CleanerTask", Cleaned | None, StrandlineError | None], object]


class CleanerTask:
    """The cleaning of one log, once."""

    def __init__(
        self, storage: LogStorage, partition: Partition, what: Cleanable, share: CleanerShare, on_end: OnEnd
    ) -> None:
        self._storage = storage
        self._runtime = storage.environment.runtime
        self._log = partition.log
        self.partition = partition
        self._share = share
        self._on_end = on_end
        self._what = what
        self.first_dirty = what.first_dirty
        self._first = self._first_source()
        self.sources: list[Segment] = self._log.segments[self._first : what.segments]
        self._cuts = self._log.cuts
        self._config = partition.config
        self._began_at = self._runtime.monotonic()
        self._groups: deque[CleanedGroup] = deque()
        self._is_swapping = False
        self._job: Job | None = None
        self._result: CleaningResult | None = None
        self._refusal: StrandlineError | None = None
        self._has_ended = self._is_worker_done = False
        self.size_bytes = sum(segment.size_bytes for segment in self.sources)
        self.done_bytes = 0
        """Of the sources: what was swapped in stands for so many of them."""
        self._new_bytes = 0

    def _first_source(self) -> int:
        """Return the number of the first segment that is cleaned.

        What the store has is cleaned there. Together with it other segments would be copied to the store once more.
        """
        tier, sealed = self.partition.tier, self._log.base_offsets[: self._what.segments + 1]
        if tier is None:
            return 0
        copied = bisect_right(sealed, tier.copied_up_to()) - 1
        # Nothing else is dirty on a replica whose leader has copied all: it is cleaned once, as if it were local.
        return copied if 0 < copied < self._what.segments else 0

    @property
    def is_pointless(self) -> bool:
        """Whether the log is no longer what was to be cleaned."""
        return self._log.failure is not None or self._cuts != self._log.cuts or not self.partition.config.compact

    def begin(self) -> None:
        self._storage.checkpoints.write_recovery_points(self._on_recovery_points)

    def stop(self, reason: str) -> None:
        """End soon, and tell `on_end`."""
        if self._refusal is None:
            self._refusal = GivenUp(reason)
        if self._job is not None:
            self._job.stop()

    def _on_recovery_points(self, error: BaseException | None) -> None:
        if error is not None:
            self._refusal = self._refusal or StrandlineError(f"no recovery point can be written: {error}")
        if self._refusal is not None:
            self._end()
            return
        end_offset = self._what.first_uncleanable
        later = [each for each in self._log.segments if each.base_offset >= end_offset and each.has_transaction_index]
        for segment in later:
            segment.retain()
        self._runtime.in_thread(partial(self._prepare, later), partial(self._on_prepared, later))

    def _prepare(self, later: list[Segment]) -> list[AbortedTransaction]:
        """In a thread: remove what a worker left that was killed; find who was aborted behind what is cleaned."""
        self._remove_left()
        found: list[AbortedTransaction] = []
        for segment in later:
            index = segment.transaction_index
            found += [each for each in index.entries() if each.first_offset < self._what.first_uncleanable]
        return found

    def _remove_left(self) -> None:
        disk, directory = self._log.disk, self._log.directory
        for name in disk.names(directory):
            if name.endswith(CLEANED_SUFFIX):
                disk.remove(directory / name)

    def _on_prepared(
        self, later: list[Segment], aborted: list[AbortedTransaction] | None, error: BaseException | None
    ) -> None:
        for segment in later:
            segment.release()
        if aborted is None:
            self._refusal = self._refusal or StrandlineError(str(error))
        if self.is_pointless or not self._has_sources():
            self._refusal = self._refusal or GivenUp("the log changed")
        if self._refusal is not None or aborted is None:
            self._end()
            return
        params = self._params(aborted).to_dict()
        self._job = self._storage.workers.get().run(CLEAN, params, self._on_group, self._on_done)

    def _has_sources(self) -> bool:
        """Return whether the log still has the segments to clean, next to each other."""
        segments = self._log.segments
        at = segments.index(self.sources[0]) if self.sources[0] in segments else len(segments)
        return segments[at : at + len(self.sources)] == self.sources

    def _params(self, aborted: list[AbortedTransaction]) -> CleaningJob:
        config, end_offset = self._config, self._what.first_uncleanable
        ends = [*(segment.base_offset for segment in self.sources[1:]), end_offset]
        is_tiered = self.partition.tier is not None
        return CleaningJob(
            directory=self._log.directory,
            segments=tuple(
                SourceSegment(segment.base_offset, segment.size_bytes, end, segment.has_transaction_index)
                for segment, end in zip(self.sources, ends, strict=True)
            ),
            log_start_offset=self._log.log_start_offset,
            first_dirty_offset=max(self._what.first_dirty, self.sources[0].base_offset),
            end_offset=end_offset,
            now_ms=self._runtime.now_ms(),
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            dedupe_buffer_bytes=self._share.dedupe_buffer_bytes,
            load_factor=self._share.load_factor,
            io_buffer_bytes=self._share.io_buffer_bytes,
            io_bytes_per_s=self._share.io_bytes_per_s,
            aborted_later=tuple(aborted),
            active_producers=tuple(self.partition.producers.batches_to_keep(below=end_offset)),
            # What a tombstone deletes may be in the store alone.
            sets_horizons=not is_tiered,
            horizons_below=0 if is_tiered else LONG_MAX,
        )

    # What the worker makes

    def _on_group(self, facts: dict[str, Any]) -> None:
        if self._refusal is None:
            self._groups.append(CleanedGroup.from_dict(facts))
            self._swap_next()

    def _swap_next(self) -> None:
        if self._is_swapping or not self._groups:
            return
        group = self._groups.popleft()
        self._is_swapping = True
        if group.removed_below > self._log.tombstone_horizon:
            # On disk before they are gone: a replica that has not fetched them must be told, whatever happens here.
            self._log.tombstone_horizon = group.removed_below
            name = TopicPartition(self.partition.topic, self.partition.index)
            files = self._storage.directory.raised_tombstone_horizon(name, group.removed_below)
            save = partial(self._storage.directory.save, files)
            self._runtime.in_thread(save, lambda _, error: self._on_horizon(group, error))
        else:
            self._swap(group)

    def _on_horizon(self, group: CleanedGroup, error: BaseException | None) -> None:
        if error is None:
            self._swap(group)
        else:
            self._storage.directory.forget_checkpoints()
            self._on_swapped(group, error)

    def _swap(self, group: CleanedGroup) -> None:
        replaced = set(group.replaced)
        replace_segments(
            self._log,
            group,
            runtime=self._runtime,
            on_done=partial(self._on_swapped, group),
            sources=[segment for segment in self.sources if segment.base_offset in replaced],
            cuts=self._cuts,
            remove=self._log.remove_files,
        )

    def _on_swapped(self, group: CleanedGroup, error: BaseException | None) -> None:
        self._is_swapping = False
        if error is None:
            self.done_bytes += group.size_bytes_before
            self._new_bytes += group.size_bytes
        elif isinstance(error, ReplacementRefused):
            self.stop(str(error))
        else:
            self.stop(str(error))
            self._refusal = error if isinstance(error, StrandlineError) else StrandlineError(str(error))
        if self._refusal is not None:
            self._groups.clear()
        self._swap_next()
        self._maybe_end()

    def _on_done(self, result: dict[str, Any] | None, error: JobFailed | None) -> None:
        self._is_worker_done = True
        if result is not None:
            self._result = CleaningResult.from_dict(result)
        elif self._refusal is None:
            assert error is not None
            is_gone = error.kind == "FileNotFoundError" or self.is_pointless
            self._refusal = GivenUp(error.reason) if is_gone or error.kind == "CleaningStopped" else error
        self._maybe_end()

    def _maybe_end(self) -> None:
        if self._is_worker_done and not self._is_swapping and not self._groups:
            self._end()

    def _end(self) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        if self._refusal is None and self._result is not None:
            # What the map had no room for was not copied, and is as large as before.
            after = self.size_bytes - self.done_bytes + self._new_bytes
            took_s = self._runtime.monotonic() - self._began_at
            self._on_end(self, Cleaned(self._result, self.size_bytes, after, self._runtime.now_ms(), took_s), None)
        elif self._log.failure is None:
            self._runtime.in_thread(self._remove_left, lambda *_: self._on_end(self, None, self._refusal))
        else:
            # The directory may be another log's by now.
            self._on_end(self, None, self._refusal)
