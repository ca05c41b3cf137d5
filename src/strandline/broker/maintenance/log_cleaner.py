"""Compacts the logs of this node that are to be compacted: the dirtiest first, as many at a time as there are cleaners.

Leader and followers each clean for themselves; who leads does not matter. What may be cleaned is decided by
`log.cleanable`; the work is done by a worker process, and swapped in by `cleaning_run`. Where nothing is to be done the
cleaner rests for `log.cleaner.backoff.ms`. How far each log is clean stands in `cleaner-offset-checkpoint`, as in
Kafka; what was lost of that is cleaned again.

A log that cannot be cleaned, because a batch is damaged or the disk is full, is set aside with the reason, and tried
again after a while, or when it has changed. The others go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from strandline.broker.maintenance.cleaner_task import CleanerShare, CleanerTask, GivenUp
from strandline.broker.maintenance.dirty_times import DirtyTimes
from strandline.broker.maintenance.manual_compaction import ManualCompactions
from strandline.broker.maintenance.storage_worker import JobFailed
from strandline.errors import StrandlineError
from strandline.handlers.support.services import CleaningOutlook
from strandline.ids import TopicPartition
from strandline.log.cleaning.job import CannotClean
from strandline.log.maintenance.cleanable import RECOVERY_POINT, Cleanable, Cleaned, cleanable
from strandline.observability.log_lines import fields
from strandline.partition.partition import Partition
from strandline.runtime.time_slicing import slowly

if TYPE_CHECKING:
    from strandline.broker.maintenance.storage import LogStorage
    from strandline.config.node_config import BrokerConfig
    from strandline.runtime.runtime import TimerHandle

SET_ASIDE_S: Final = 60.0
SET_ASIDE_S_MAX: Final = 3600.0
"""How long a log that could not be cleaned is left alone, at first and at most; each failure in a row doubles it."""
WATCH_S: Final = 1.0
"""How often it is looked whether what is being cleaned is still wanted."""
HELD_LOOK_S: Final = 0.02

OFF, IDLE, CLEANING, ASIDE = "off", "idle", "cleaning", "set aside"

log = logging.getLogger("strandline.cleaner")


class _State:
    """What is known of one log beyond its files."""

    __slots__ = ("failures", "last", "reason", "retry_at", "run", "seen")

    def __init__(self) -> None:
        self.run: CleanerTask | None = None
        self.reason: str | None = None
        self.retry_at = 0.0
        self.failures = 0
        self.seen: tuple[object, ...] = ()
        """What the log was when it was set aside."""
        self.last: Cleaned | None = None


class LogCleaner:
    def __init__(self, storage: LogStorage) -> None:
        self._storage = storage
        self._environment = storage.environment
        self._runtime = storage.environment.runtime
        self._states: dict[Partition, _State] = {}
        self._held: dict[Partition, int] = {}
        self._runs: dict[CleanerTask, None] = {}
        self._timer: TimerHandle | None = None
        self.backoff_ms = storage.environment.config().log_cleaner_backoff_ms
        """How long it rests, this time."""
        self._watch: TimerHandle | None = None
        self._is_looking = self._must_look = self._is_closed = self._is_saving = False
        self._times = DirtyTimes(self._runtime, self.look)
        self._compactions = ManualCompactions(self, self._runtime)
        self.compact = self._compactions.ask
        """Clean one log now, and say when it is done."""
        self.on_unreadable: Callable[[Partition], object] = lambda partition: None
        """Called with a partition that the cleaner could not read."""
        self.rounds = 0
        """Looks at everything that came to their end."""
        self.cleanings = self.bytes_read = self.bytes_written = 0
        """Since the node was started."""
        self.dirty_ratio_max = 0.0
        """Of the dirtiest log at the last look."""
        self.looked_at = self._runtime.monotonic()

    @property
    def is_enabled(self) -> bool:
        return self._environment.config().log_cleaner_enable

    @property
    def set_aside(self) -> dict[Partition, str]:
        """Logs that cannot be cleaned, and why."""
        return {partition: state.reason for partition, state in self._states.items() if state.reason is not None}

    @property
    def running(self) -> list[Partition]:
        return [run.partition for run in self._runs]

    def is_cleaning(self, partition: Partition) -> bool:
        """Return whether a task works on the files of this log, or of a deleted one of the same name."""
        return any(run.partition.log.directory == partition.log.directory for run in self._runs)

    def start(self) -> None:
        if self._timer is None:
            self._rest()

    def close(self) -> None:
        """What is being cleaned is forgotten; the next start removes what the worker left."""
        self._is_closed = True
        self._compactions.close()
        for timer in (self._timer, self._watch):
            if timer is not None:
                timer.cancel()
        for run in self._runs:
            run.stop("the node stops")

    def configure(self, config: BrokerConfig) -> None:
        """Obey settings that changed. A cleaning goes on as it was begun; a rest is begun again."""
        if self.backoff_ms != config.log_cleaner_backoff_ms:
            self.backoff_ms = config.log_cleaner_backoff_ms
            if self._timer is not None:
                self._rest()

    # Looking

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.backoff_ms = self._environment.config().log_cleaner_backoff_ms
        if self.is_enabled and not self._is_closed:
            self._timer = self._runtime.call_later(self.backoff_ms / 1000, self.look)

    def look(self) -> None:
        """Look for the dirtiest logs, and clean them; again when one is done, or after a rest."""
        self._rest()
        if self._is_looking or self._is_closed or not self.is_enabled:
            # The log that is to be looked at may be one that this look has passed already.
            self._must_look = self._is_looking
            return
        self._is_looking, self._must_look = True, False
        found: list[tuple[float, Partition]] = []
        ratios: list[float] = []
        slowly(self._runtime, self._look_at_all(found, ratios), lambda: self._end_look(found, ratios))

    def _look_at_all(self, found: list[tuple[float, Partition]], ratios: list[float]) -> Iterator[None]:
        for partition in [each for each in self._states if each.log.failure is not None]:
            self._states.pop(partition)
        for partition in list(self._storage.replicas.all()):
            if partition.config.cleans_locally and not self._is_closed:
                self._look_at(partition, found, ratios)
            yield

    def _look_at(self, partition: Partition, found: list[tuple[float, Partition]], ratios: list[float]) -> None:
        if partition.log.failure is not None or not partition.log.segments:
            return
        what = self.judge(partition)
        ratios.append(what.dirty_ratio)
        self._times.want(what.unknown)
        if what.must_roll:
            self._roll(partition)
        elif what.because == RECOVERY_POINT:
            partition.log.want_flush()
        state = self._states.get(partition)
        if state is not None and (state.run is not None or self._is_set_aside(partition, state)):
            return
        if what.is_due(partition.config.min_cleanable_dirty_ratio):
            found.append((what.dirty_ratio, partition))

    def _end_look(self, found: list[tuple[float, Partition]], ratios: list[float]) -> None:
        self._is_looking = False
        self.rounds += 1
        self.looked_at = self._runtime.monotonic()
        self.dirty_ratio_max = max(ratios, default=0.0)
        if self._is_closed:
            return
        if self._must_look:
            self._runtime.call_soon(self.look)
        self._times.read()
        # The largest first; of equals, the one that was met first, so that a seed tells what happens.
        for _, partition in sorted(found, key=lambda each: -each[0]):
            if len(self._runs) >= self._environment.config().log_cleaner_threads:
                break
            if partition.log.failure is None:
                self._begin(partition, self.judge(partition))

    def judge(self, partition: Partition) -> Cleanable:
        """What may be cleaned of a log that is open."""
        what = cleanable(
            partition.log,
            self._storage.directory.cleaner_offsets.get(_name(partition)),
            high_watermark=partition.high_watermark,
            stable_offset=partition.last_stable_offset,
            now_ms=self._runtime.now_ms(),
        )
        if what.is_reset:
            self._note(partition, what.first_dirty)
        return what

    def _roll(self, partition: Partition) -> None:
        """Roll an active segment that is to be cleaned: it may not be written to for a long time."""
        try:
            partition.log.roll(self._runtime.now_ms())
        except StrandlineError as error:
            log.warning("%r: the last segment cannot be rolled to be cleaned: %s", partition, error)

    # One log

    def begin_now(self, partition: Partition, what: Cleanable) -> bool:
        """Begin a cleaning that a client asked for, if a cleaner is free; return whether it has begun."""
        return len(self._runs) < max(1, self._environment.config().log_cleaner_threads) and self._begin(partition, what)

    def _begin(self, partition: Partition, what: Cleanable) -> bool:
        state = self._states.setdefault(partition, _State())
        if self.is_cleaning(partition) or partition.log.swap is not None or partition in self._held:
            return False
        if not what.cleanable_bytes:
            return False
        run = state.run = CleanerTask(self._storage, partition, what, self.share(), self._on_end)
        self._runs[run] = None
        if self._watch is None:
            self._watch = self._runtime.call_later(WATCH_S, self._look_after)
        run.begin()
        return True

    def share(self) -> CleanerShare:
        """What one of the cleaners may use, as it is configured now."""
        return CleanerShare.of(self._environment.config())

    def _look_after(self) -> None:
        """Stop what has become pointless: a topic that was deleted, or is not compacted any more."""
        self._watch = None
        if self._runs and not self._is_closed:
            for run in list(self._runs):
                if run.is_pointless:
                    run.stop("the log is not to be cleaned any more")
            self._watch = self._runtime.call_later(WATCH_S, self._look_after)

    def _on_end(self, run: CleanerTask, cleaned: Cleaned | None, error: StrandlineError | None) -> None:
        partition = run.partition
        del self._runs[run]
        state = self._states.get(partition)
        if state is not None and state.run is run:
            state.run = None
            if cleaned is not None and cleaned.result.clean_up_to <= run.first_dirty:
                error = StrandlineError(
                    f"the buffer of log.cleaner.dedupe.buffer.size has no room for the keys of one batch at offset "
                    f"{run.first_dirty}"
                )
                cleaned = None
            if cleaned is not None:
                self._on_cleaned(partition, state, cleaned)
            elif isinstance(error, GivenUp):
                log.info("%r was not cleaned to the end: %s", partition, error)
            elif not self._is_closed:
                self._set_aside(partition, state, run, error)
        if not self._is_closed:
            self._compactions.on_end(partition, cleaned, error)
            if not isinstance(error, GivenUp):
                # There may be more, here or elsewhere. What changed just now may go on doing so for a while.
                self._runtime.call_soon(self.look)

    def _on_cleaned(self, partition: Partition, state: _State, cleaned: Cleaned) -> None:
        result = cleaned.result
        state.last, state.reason, state.failures = cleaned, None, 0
        self.cleanings += 1
        self.bytes_read += result.bytes_read + result.map_bytes_read
        self.bytes_written += result.bytes_written
        self._note(partition, result.clean_up_to)
        log.info(
            "%s-%d is clean up to %d: %d of %d records and %d of %d bytes stay",
            partition.topic,
            partition.index,
            result.clean_up_to,
            result.records_kept,
            result.records_read,
            cleaned.size_bytes_after,
            cleaned.size_bytes_before,
            extra=fields(topic=partition.topic, partition=partition.index, clean_up_to=result.clean_up_to),
        )
        if result.records_without_key:
            log.warning(
                "%s-%d: %d records without a key were removed: a compacted topic cannot say what they replace",
                partition.topic,
                partition.index,
                result.records_without_key,
            )

    # Failures

    def _set_aside(self, partition: Partition, state: _State, run: CleanerTask, error: StrandlineError | None) -> None:
        state.reason = str(error)
        state.seen = (partition.config, partition.log.cuts, *run.sources)
        state.retry_at = self._runtime.monotonic() + min(SET_ASIDE_S * 2**state.failures, SET_ASIDE_S_MAX)
        state.failures += 1
        facts = fields(topic=partition.topic, partition=partition.index, reason=state.reason)
        log.error("%s-%d cannot be cleaned: %s", partition.topic, partition.index, error, extra=facts)
        if isinstance(error, JobFailed) and error.kind == CannotClean.__name__:
            self.on_unreadable(partition)

    def _is_set_aside(self, partition: Partition, state: _State) -> bool:
        if state.reason is None:
            return False
        partition_log = partition.log
        seen = (partition.config, partition_log.cuts, *partition_log.segments[: len(state.seen) - 2])
        return self._runtime.monotonic() < state.retry_at and seen == state.seen

    # Other tasks that change the files

    def hold(self, partition: Partition, on_held: Callable[[], object]) -> None:
        """Clean this log no more until `release`; `on_held` is called when nothing of it is under way.

        For a task that writes `.cleaned` files of its own: two must not write under one name.
        """
        self._held[partition] = self._held.get(partition, 0) + 1
        state = self._states.get(partition)
        if state is not None and state.run is not None:
            state.run.stop("another changes its files")
        self._wait_held(partition, on_held)

    def _wait_held(self, partition: Partition, on_held: Callable[[], object]) -> None:
        if partition.log.swap is None and not self.is_cleaning(partition):
            on_held()
        elif not self._is_closed:
            self._runtime.call_later(HELD_LOOK_S, self._wait_held, partition, on_held)

    def release(self, partition: Partition) -> None:
        left = self._held.pop(partition) - 1
        if left:
            self._held[partition] = left

    # How far it has come

    def _note(self, partition: Partition, offset: int) -> None:
        self._storage.directory.cleaner_offsets[_name(partition)] = offset
        self._save()

    def _save(self) -> None:
        directory = self._storage.directory
        if self._is_saving or self._is_closed:
            return
        files = directory.changed_cleaner_offsets()
        if files:
            self._is_saving = True
            self._runtime.in_thread(partial(directory.save, files), self._on_saved)

    def _on_saved(self, _: None, error: BaseException | None) -> None:
        self._is_saving = False
        if error is not None:
            log.warning("how far logs are clean could not be written down, and some may be cleaned again: %s", error)
        else:
            # There may be news.
            self._save()

    # What others ask

    def outlook(self, partition: Partition, now_ms: int) -> CleaningOutlook:
        """What is to become of a compacted log that is open."""
        what, state = self.judge(partition), self._states.get(partition) or _State()
        is_aside = self._is_set_aside(partition, state)
        ratio_min = partition.config.min_cleanable_dirty_ratio
        run = state.run
        return CleaningOutlook(
            state=CLEANING if run is not None else ASIDE if is_aside else IDLE if self.is_enabled else OFF,
            reason=state.reason if is_aside else None,
            retry_ms=now_ms + int((state.retry_at - self._runtime.monotonic()) * 1000) if is_aside else -1,
            dirty_ratio=what.dirty_ratio,
            dirty_ratio_min=ratio_min,
            clean_up_to=what.first_dirty,
            first_uncleanable=what.first_uncleanable,
            because=what.because,
            until_ms=what.until_ms,
            due_ms=what.due_ms,
            is_due=what.is_due(ratio_min),
            done_bytes=0 if run is None else run.done_bytes,
            total_bytes=0 if run is None else run.size_bytes,
            last=state.last,
        )


def _name(partition: Partition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.index)
