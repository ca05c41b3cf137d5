"""Reads every log again from time to time, knows what is damaged, and sees to it that it is mended.

Once in `log.scrub.interval.ms` a worker process reads the files of each log, one log after the other, no faster than
`log.scrub.max.bytes.per.second`. When that was last done is kept in a file of the data directory, so that restarts do
not put it off for ever. A reader who meets a damaged batch tells of it at once.

Damage is checked once more here before it counts, whichever part found it: the log may have been cut or cleaned
meanwhile. Then, as the partition is:

    followed             the segment is fetched again from the leader (`repairs`), after a roll if it is the active one
    led, others in sync  the controller is asked to have another lead; then as above
    led, the only copy   it is told of, and never served; looked at again now and then, for a person may have mended it

What is damaged is not served meanwhile (`log/segment/read_verification`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from strandline.broker.maintenance.corruption import Corruption, Damage, Resign
from strandline.broker.maintenance.storage_worker import Job, JobFailed
from strandline.errors import CorruptLog, DamagedRecords
from strandline.ids import TopicPartition
from strandline.log import checkpoints
from strandline.log.maintenance.scrubbing import ScrubbedSegment, ScrubFinding, job_params
from strandline.log.maintenance.worker_jobs import SCRUB
from strandline.observability.log_lines import fields
from strandline.partition.partition import Partition

if TYPE_CHECKING:
    from strandline.broker.lazy import Lazy
    from strandline.broker.maintenance.log_cleaner import LogCleaner
    from strandline.broker.maintenance.storage import LogStorage
    from strandline.runtime.runtime import TimerHandle

FILE_NAME: Final = "scrub-checkpoint"
"""When each log was last read through, in milliseconds; in the form of Kafka's checkpoints."""
LOOK_S_MAX: Final = 60.0
LOOK_S_MIN: Final = 0.1
"""How often it is looked whether a log is due."""
AS_FAST_AS_IT_GOES: Final = 0.0

log = logging.getLogger("strandline.storage")

OnScrubbed = Callable[["Scrub"], object]


class Scrub:
    """One log that is to be read through."""

    def __init__(self, partition: Partition, on_done: OnScrubbed | None) -> None:
        self.partition = partition
        self.on_done = on_done
        self.bytes_read = 0
        self.error: str | None = None


class Scrubber:
    def __init__(self, storage: LogStorage, cleaner: Lazy[LogCleaner], resign: Resign) -> None:
        self._storage = storage
        self._environment = storage.environment
        self._runtime = storage.environment.runtime
        self.corruption = Corruption(storage, cleaner, resign)
        self.bytes_read = 0
        self.scrubs = 0
        self._scrubbed_ms: dict[TopicPartition, int] = self._read_times()
        self._waiting: deque[Scrub] = deque()
        self._current: Scrub | None = None
        self._job: Job | None = None
        self._looking: TimerHandle | None = None
        self._is_saving = False
        self._is_closed = False

    def start(self) -> None:
        for partition in self._storage.replicas.all():
            # Damage that was found when the log was opened, before the scrubber was loaded.
            self.corruption.look_at(partition)
        self._look()

    def close(self) -> None:
        self._is_closed = True
        if self._looking is not None:
            self._looking.cancel()
        if self._job is not None:
            self._job.stop()
        self.corruption.close()

    # When

    def scrubbed_ms(self, partition: Partition) -> int:
        """When the log was last read through; -1 if it never was."""
        name = TopicPartition(partition.topic, partition.index)
        seen_ms = self._scrubbed_ms.get(name, -1)
        return seen_ms if seen_ms > 0 else -1

    def _read_times(self) -> dict[TopicPartition, int]:
        directory = self._storage.directory
        path = directory.path / FILE_NAME
        try:
            return checkpoints.parse_offsets(directory.disk.read_whole(path)) if directory.disk.exists(path) else {}
        except CorruptLog as error:
            log.warning("%s: %s; every log counts as new", path, error)
            return {}

    def _look(self) -> None:
        if self._is_closed:
            return
        interval_ms = self._environment.config().log_scrub_interval_ms
        wait_s = min(LOOK_S_MAX, max(LOOK_S_MIN, interval_ms / 4000))
        self._looking = self._runtime.call_later(wait_s, self._look)
        if self._waiting or self._current is not None:
            return
        now_ms = self._runtime.now_ms()
        due: list[tuple[int, Partition]] = []
        is_new = False
        for partition in self._storage.replicas.all():
            name = TopicPartition(partition.topic, partition.index)
            noted_ms = abs(self._scrubbed_ms.get(name, 0))
            if noted_ms == 0 or noted_ms > now_ms:
                # It was not here before, or the clock went back. A negative time says when it was first seen.
                self._scrubbed_ms[name] = -now_ms
                is_new = True
            elif now_ms - noted_ms >= interval_ms:
                due.append((noted_ms, partition))
        due.sort(key=lambda each: each[0])
        self._waiting.extend(Scrub(partition, None) for _, partition in due)
        if is_new:
            self._save()
        self._maybe_begin()

    def _save(self) -> None:
        """Write the times down, in a thread; one that is lost costs a scrub that was not needed."""
        if self._is_saving or self._is_closed:
            return
        directory = self._storage.directory
        here = {TopicPartition(each.topic, each.index) for each in self._storage.replicas.all()}
        self._scrubbed_ms = {name: noted for name, noted in self._scrubbed_ms.items() if name in here}
        content = checkpoints.format_offsets(self._scrubbed_ms)
        self._is_saving = True
        write = partial(directory.disk.write_whole, directory.path / FILE_NAME, content)
        self._runtime.in_thread(write, self._on_saved)

    def _on_saved(self, _: None, error: BaseException | None) -> None:
        self._is_saving = False
        if error is not None:
            log.warning("%s could not be written: %s", FILE_NAME, error)

    # Reading

    def scrub_now(self, partitions: Iterable[Partition], on_done: OnScrubbed) -> None:
        """Read these logs before all others, as fast as it goes; `on_done` for each of them when that is done."""
        self._waiting.extendleft(reversed([Scrub(partition, on_done) for partition in partitions]))
        if self._current is not None and self._current.on_done is None and self._job is not None:
            # A scrub that no client waits for makes room, and is done again later.
            self._job.stop()
        self._maybe_begin()

    def _maybe_begin(self) -> None:
        if self._current is not None or not self._waiting or self._is_closed:
            return
        scrub = self._current = self._waiting.popleft()
        partition_log = scrub.partition.log
        if partition_log.failure is not None:
            scrub.error = str(partition_log.failure)
            self._runtime.call_soon(self._end)
            return
        ends = [*partition_log.base_offsets[1:], partition_log.log_end_offset]
        segments = [
            ScrubbedSegment(segment.base_offset, segment.size_bytes, end, not segment.is_active)
            for segment, end in zip(partition_log.segments, ends, strict=True)
            if segment.size_bytes
        ]
        pace = (
            AS_FAST_AS_IT_GOES
            if scrub.on_done is not None
            else self._environment.config().log_scrub_max_bytes_per_second
        )
        params = job_params(partition_log.directory, segments, partition_log.leader_epochs, bytes_per_s=pace)
        self._job = self._storage.workers.get().run(SCRUB, params, self._on_report, self._on_done)

    def _on_report(self, report: dict[str, Any]) -> None:
        scrub = self._current
        if scrub is None or self._is_closed:
            return
        scrub.bytes_read += report["bytes_read"]
        self.bytes_read += report["bytes_read"]
        for found in report["findings"]:
            self.corruption.suspect(scrub.partition, ScrubFinding(*found))

    def _on_done(self, result: dict[str, Any] | None, error: JobFailed | None) -> None:
        scrub = self._current
        if scrub is None or self._is_closed:
            return
        if result is None:
            scrub.error = str(error)
            log.warning("a log could not be read through: %s", error, extra=fields(partition=str(scrub.partition)))
        elif result["is_stopped"]:
            scrub.error = "it was stopped"
        else:
            self.scrubs += 1
            name = TopicPartition(scrub.partition.topic, scrub.partition.index)
            self._scrubbed_ms[name] = self._runtime.now_ms()
            self._save()
        # Not before what was found has been looked at once more.
        self.corruption.when_settled(scrub.partition, self._end)

    def _end(self) -> None:
        scrub, self._current, self._job = self._current, None, None
        if scrub is not None and scrub.on_done is not None:
            scrub.on_done(scrub)
        self._maybe_begin()

    # Readers

    def on_damaged(self, partition: Partition, error: DamagedRecords) -> None:
        """A reader met damage; it is in the middle of something."""
        self._runtime.call_soon(self.corruption.look_at, partition)

    def damages_of(self, partition: Partition) -> list[Damage]:
        return self.corruption.of(partition)
