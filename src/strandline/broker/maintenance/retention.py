"""Deletes what `cleanup.policy=delete` lets go: looks at every log on this node each `log.retention.check.interval.ms`.

A look takes a share of a turn of the loop after the other. What goes is decided by `log.retention`; leaders and
followers decide each for themselves, as in Kafka, and a follower also learns its leader's start offset. Where logs are
to start is written down first, in one file for all of them; then they do, and their files are renamed and removed by
threads. A disk that is too full even for that file gets its room back all the same.

Partitions whose settings changed are looked at soon, and so are those of which something has to be found out first:
the newest time of a segment that an earlier process wrote, which a thread reads, or that a segment has been flushed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from strandline.errors import StrandlineError
from strandline.log.maintenance import retention
from strandline.log.segment.segment import Segment
from strandline.log.segment.segment_times import read_newest_ms
from strandline.observability.log_lines import fields
from strandline.partition.partition import Partition
from strandline.partition.trimming import trim, trim_local
from strandline.runtime.time_slicing import slowly

if TYPE_CHECKING:
    from strandline.broker.maintenance.storage import LogStorage
    from strandline.runtime.runtime import TimerHandle

FIRST_LOOK_S: Final = 30.0
"""After the start, unless the interval is shorter: a node that begins has other things to do."""
SOON_S: Final = 0.1
"""After a change of settings, or when something is known that was not."""
TIMES_AHEAD_MAX: Final = 8
"""Segments of one log whose newest times are read at a time: if the first has to go, others may."""
TIMES_PER_JOB: Final = 64
"""Segments whose newest time a thread reads in one trip."""

log = logging.getLogger("strandline.retention")

Times = list[tuple[Segment, int, int | None]]
"""Segments, their size when they were read, and their newest time; None if they are gone or cannot be read."""


class LogRetention:
    """The deletion of segments that are past their time, or beyond their size."""

    def __init__(self, storage: LogStorage) -> None:
        self._storage = storage
        self._environment = storage.environment
        self._runtime = storage.environment.runtime
        self._timer: TimerHandle | None = None
        self._soon_timer: TimerHandle | None = None
        self._soon: dict[Partition, None] = {}
        self._unread: dict[Segment, Partition] = {}
        self._is_reading = False
        self._planned: dict[Partition, int] = {}
        self._is_looking = self._is_closed = False
        self.looks = 0
        """Looks at everything that came to their end."""
        self.deleted_segments = self.deleted_bytes = 0
        """Since the node was started."""

    @property
    def interval_s(self) -> float:
        return self._environment.config().log_retention_check_interval_ms / 1000

    def start(self) -> None:
        if self._timer is None and not self._is_closed:
            self._timer = self._runtime.call_later(min(FIRST_LOOK_S, self.interval_s), self.look)

    def close(self) -> None:
        self._is_closed = True
        for timer in (self._timer, self._soon_timer):
            if timer is not None:
                timer.cancel()
        for partition in self._planned:
            # The log never started there: what was not cut must not be gone at the next start either.
            partition.log.planned_start_offset = 0

    # Looking

    def look(self) -> None:
        """Look at everything now, and again after the interval."""
        if self._is_closed:
            return
        self._timer = self._runtime.call_later(self.interval_s, self.look)
        if self._is_looking:
            # One that takes longer than the interval is not overtaken by the next.
            return
        self._begin_look(list(self._storage.replicas.all()), is_whole=True)

    def look_soon(self, partition: Partition) -> None:
        """Look at one partition: its settings changed, or something is known that was not."""
        self._soon[partition] = None
        if self._soon_timer is None and not self._is_closed:
            self._soon_timer = self._runtime.call_later(SOON_S, self._look_at_some)

    def _look_at_some(self) -> None:
        self._soon_timer = None
        if self._is_closed:
            return
        if self._is_looking:
            self._soon_timer = self._runtime.call_later(SOON_S, self._look_at_some)
            return
        some, self._soon = self._soon, {}
        self._begin_look(some, is_whole=False)

    def _begin_look(self, partitions: Iterable[Partition], *, is_whole: bool) -> None:
        self._is_looking = True
        slowly(self._runtime, self._look_at_all(partitions), partial(self._write_down, is_whole))

    def _look_at_all(self, partitions: Iterable[Partition]) -> Iterator[None]:
        for partition in partitions:
            if not self._is_closed:
                self._look_at(partition)
            yield

    def _look_at(self, partition: Partition) -> None:
        partition_log = partition.log
        if partition_log.failure is not None or not partition_log.segments:
            return
        if partition_log.swap is not None:
            # Cleaned segments are taking their place: what they are is decided in some milliseconds.
            self.look_soon(partition)
            return
        now_ms = self._runtime.now_ms()
        found = self._judge(partition, now_ms)
        if found.unknown is not None:
            first = partition_log.segments.index(found.unknown)
            for segment in partition_log.segments[first : first + TIMES_AHEAD_MAX]:
                if retention.newest_ms(segment) is None:
                    self._unread[segment] = partition
        if found.rolls:
            self._roll(partition, now_ms)
        if found.waits_for_flush:
            partition_log.want_flush()
            self.look_soon(partition)
        if found.leaves and partition.tier is not None and not partition.config.remote_log_copy_disable:
            # The store has them. The log start does not move, so nothing is to be written down.
            gone = trim_local(partition, found.start_offset)
            self.deleted_segments += len(gone)
            self.deleted_bytes += sum(segment.size_bytes for segment in gone)
        elif found.leaves:
            self._planned[partition] = partition_log.planned_start_offset = found.start_offset

    def _roll(self, partition: Partition, now_ms: int) -> None:
        """A silent partition whose last records are too old, too: they are in a segment of their own from now on."""
        try:
            partition.log.roll(now_ms)
        except StrandlineError as error:
            # A full disk has no room for a new segment; the old ones of other partitions make some.
            log.warning("%r: the last segment cannot be deleted yet: %s", partition, error)
        else:
            self.look_soon(partition)

    # Deleting

    def _write_down(self, is_whole: bool) -> None:
        """Where logs are to start goes to the disk, in one file, before any of them does."""
        self._read_times()
        planned, self._planned = self._planned, {}
        if planned and not self._is_closed:
            # Kept where `close` finds it until they are cut.
            self._planned = planned
            self._storage.checkpoints.write_start_offsets(partial(self._on_written, is_whole))
        else:
            self._end_look(is_whole)

    def _on_written(self, is_whole: bool, error: BaseException | None) -> None:
        if self._is_closed:
            return
        slowly(self._runtime, self._cut_all(is_written=error is None), partial(self._end_look, is_whole))

    def _cut_all(self, *, is_written: bool) -> Iterator[None]:
        segments = size_bytes = partitions = 0
        is_any_kept = False
        while self._planned and not self._is_closed:
            partition, start_offset = self._planned.popitem()
            partition_log = partition.log
            # Not if it was cut at its end meanwhile, or begins again.
            is_planned = partition_log.failure is None and partition_log.planned_start_offset == start_offset
            partition_log.planned_start_offset = 0
            if partition_log.swap is not None:
                self.look_soon(partition)
            elif is_planned and partition_log.log_start_offset <= start_offset <= partition.high_watermark:
                if not self._still_go(partition, start_offset):
                    is_any_kept = True
                    continue
                if is_written:
                    partition_log.written_start_offset = start_offset
                gone = trim(partition, start_offset)
                partitions += bool(gone)
                segments += len(gone)
                size_bytes += sum(segment.size_bytes for segment in gone)
            yield
        if is_any_kept and not self._is_closed:
            # They are not to be gone after a crash either.
            self._storage.checkpoints.write_start_offsets(lambda _: None)
        self.deleted_segments += segments
        self.deleted_bytes += size_bytes
        if segments:
            log.info(
                "%d segments (%d bytes) of %d partitions were past retention",
                segments,
                size_bytes,
                partitions,
                extra=fields(segments=segments, size_bytes=size_bytes, partitions=partitions),
            )

    def _still_go(self, partition: Partition, start_offset: int) -> bool:
        """Whether all below `start_offset` is past retention: a slow disk takes its time to write that down, and who
        changes the settings meanwhile may do so to save it."""
        return self._judge(partition, self._runtime.now_ms()).start_offset >= start_offset

    def _judge(self, partition: Partition, now_ms: int) -> retention.RetentionDecision:
        policy = None if partition.tier is None else partition.tier.local_policy()
        return retention.judge(partition.log, high_watermark=partition.high_watermark, now_ms=now_ms, policy=policy)

    def _end_look(self, is_whole: bool) -> None:
        self._is_looking = False
        self.looks += is_whole

    # What only the disk knows

    def _read_times(self) -> None:
        if self._is_reading or self._is_closed or not self._unread:
            return
        some = [segment for segment, _ in zip(self._unread, range(TIMES_PER_JOB), strict=False)]
        self._is_reading = True
        work = partial(_read_all, [(segment, segment.size_bytes) for segment in some])
        self._runtime.in_thread(work, self._on_times)

    def _on_times(self, times: Times | None, error: BaseException | None) -> None:
        assert times is not None, f"reading times cannot fail as a whole: {error}"
        self._is_reading = False
        for segment, size_bytes, newest_ms in times:
            partition = self._unread.pop(segment, None)
            if newest_ms is not None:
                segment.newest_read = size_bytes, newest_ms
                if partition is not None:
                    self.look_soon(partition)
        self._read_times()


def _read_all(segments: list[tuple[Segment, int]]) -> Times:
    """In a thread."""
    times: Times = []
    for segment, size_bytes in segments:
        try:
            times.append((segment, size_bytes, read_newest_ms(segment)))
        except (OSError, StrandlineError):
            # Deleted meanwhile, or damaged: it stays until the scrubber has found out what is wrong with it.
            times.append((segment, size_bytes, None))
    return times
