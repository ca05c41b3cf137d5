"""What is damaged on this node, segment by segment, and what is done about each.

A segment is one thing to mend, however many of its batches are bad. Its damage is known until it was mended, or
deleted, or found sound after all. One is mended at a time; what fails is tried again after a time that grows.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from strandline.broker.maintenance.repairs import OnEnded, SegmentRepair, retained
from strandline.errors import StrandlineError
from strandline.log.maintenance.scrubbing import ScrubbedSegment, ScrubFinding, job_params
from strandline.log.maintenance.segment_rebuild import rebuild_indexes
from strandline.log.maintenance.worker_jobs import SCRUB
from strandline.log.segment.read_verification import check_at, damage_of, distrust
from strandline.log.segment.segment import Segment
from strandline.observability.log_lines import fields
from strandline.partition.partition import Partition

if TYPE_CHECKING:
    from strandline.broker.lazy import Lazy
    from strandline.broker.maintenance.log_cleaner import LogCleaner
    from strandline.broker.maintenance.storage import LogStorage
    from strandline.runtime.runtime import TimerHandle

RETRY_S: Final = 0.2
RETRY_S_MAX: Final = 30.0
RESIGN_S_MAX: Final = 600.0
RESIGNED_OFTEN: Final = 3
"""After so many resignations because of one segment, the next ones wait longer and longer."""
LED_LOOK_S: Final = 5.0
"""How often the leader looks whether another broker leads by then, or could."""
ALONE_LOOK_S: Final = 60.0
"""How often the only copy is read again, to see whether a person has mended it."""

log = logging.getLogger("strandline.storage")


Resign = Callable[[Partition, OnEnded], object]
"""Asks the controller to have another in-sync replica lead a partition."""


class Damage:
    """The damage of one segment of one partition."""

    def __init__(self, partition: Partition, segment: Segment, found_ms: int) -> None:
        self.partition = partition
        self.segment = segment
        self.base_offset = segment.base_offset
        self.end_offset = partition.log.end_of(segment.base_offset)
        self.position = -1
        self.what = ""
        self.state = "it is not served"
        self.found_ms = found_ms
        self.failures = 0
        self.resignations = 0
        self.resign_at = 0.0
        self.look_at = 0.0
        self.retry_at = 0.0
        self.is_busy = False
        self._learn()

    def _learn(self) -> None:
        stretches = damage_of(self.segment)
        if stretches:
            self.position, self.what = stretches[0].start, stretches[0].fault or ""
            if len(stretches) > 1:
                self.what += f", and {len(stretches) - 1} more"

    @property
    def is_over(self) -> bool:
        """Whether the segment is none of the log's any more, or all of it was found sound."""
        partition_log = self.partition.log
        return (
            partition_log.failure is not None
            or self.segment not in partition_log.segments
            or self.segment.unverified is None
        )

    def __repr__(self) -> str:
        where = f"{self.partition.topic}-{self.partition.index}"
        return f"{where} offsets {self.base_offset} to {self.end_offset - 1}"


class Corruption:
    """The damaged segments of a broker that are known and not repaired."""

    def __init__(self, storage: LogStorage, cleaner: Lazy[LogCleaner], resign: Resign) -> None:
        self._storage = storage
        self._cleaner = cleaner
        self._resign = resign
        self._environment = storage.environment
        self._runtime = storage.environment.runtime
        self._known: dict[Segment, Damage] = {}
        self._suspected: deque[tuple[Partition, ScrubFinding]] = deque()
        self._is_looking = False
        self._waiting: list[tuple[Partition, Callable[[], object]]] = []
        self._repair: SegmentRepair | None = None
        self._timer: TimerHandle | None = None
        self._is_closed = False
        self.found = 0
        self.repaired = 0
        self.resigned = 0

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._repair is not None:
            self._repair.close()

    def __len__(self) -> int:
        return sum(not damage.is_over for damage in self._known.values())

    def of(self, partition: Partition) -> list[Damage]:
        found = [damage for damage in self._known.values() if damage.partition is partition and not damage.is_over]
        return sorted(found, key=lambda damage: damage.base_offset)

    # Finding

    def look_at(self, partition: Partition) -> None:
        """Take note of what readers, or the opening, found in the segments of a log."""
        if self._is_closed or partition.log.failure is not None:
            return
        for segment in list(partition.log.segments):
            if segment.unverified is not None and damage_of(segment) and segment not in self._known:
                self._note(partition, segment)

    def _note(self, partition: Partition, segment: Segment) -> None:
        partition_log = partition.log
        if segment is partition_log.active:
            # What grows cannot be replaced.
            try:
                partition_log.roll(self._runtime.now_ms())
            except StrandlineError as error:
                log.error("a damaged segment could not be rolled: %s", error, extra=fields(segment=str(segment.path)))
        damage = self._known[segment] = Damage(partition, segment, self._runtime.now_ms())
        self.found += 1
        log.error(
            "%s: damaged on disk, and not served: at position %d: %s",
            damage,
            damage.position,
            damage.what,
            extra=fields(topic=partition.topic, partition=partition.index, segment=damage.base_offset),
        )
        self._work_soon(0.0)

    def suspect(self, partition: Partition, finding: ScrubFinding) -> None:
        """A scrub found something: it is read again by a thread before it counts."""
        self._suspected.append((partition, finding))
        self._maybe_look()

    def when_settled(self, partition: Partition, then: Callable[[], object]) -> None:
        """Call `then` when everything that was suspected of a partition by now was looked at."""
        self._waiting.append((partition, then))
        self._maybe_look()
        if not self._is_looking:
            self._tell()

    def _maybe_look(self) -> None:
        while self._suspected and not self._is_looking and not self._is_closed:
            partition, finding = self._suspected.popleft()
            segment = next((each for each in partition.log.segments if each.base_offset == finding.base_offset), None)
            if segment is None or partition.log.failure is not None or finding.position >= segment.size_bytes:
                continue
            self._is_looking = True
            if segment.unverified is None or not damage_of(segment):
                distrust(segment, partition.log)
            held = retained(segment)
            if not held:
                self._is_looking = False
                continue
            self._runtime.in_thread(
                partial(_look_again, segment, finding), partial(self._on_looked, partition, segment, finding)
            )

    def _on_looked(
        self, partition: Partition, segment: Segment, finding: ScrubFinding, _: None, error: BaseException | None
    ) -> None:
        self._is_looking = False
        segment.release()
        if self._is_closed:
            return
        if finding.is_index and error is None and not segment.references:
            # The new files are opened by the next reader.
            segment.open_files.forget(segment)
            distrust(segment, partition.log)
            log.warning("%s: its index was damaged, and is built again", segment.path)
        if error is not None:
            log.warning("a suspicious segment could not be read: %s", error)
        self.look_at(partition)
        self._maybe_look()
        if not self._is_looking:
            self._tell()

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for _, then in waiting:
            self._runtime.call_soon(then)

    # Mending

    def _work_soon(self, wait_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if self._is_closed else self._runtime.call_later(wait_s, self._work)

    def _work(self) -> None:
        self._timer = None
        now = self._runtime.monotonic()
        for segment, damage in list(self._known.items()):
            if damage.is_over and not damage.is_busy:
                del self._known[segment]
            elif not damage.is_busy and damage.retry_at <= now:
                self._attempt(damage)
        if self._known:
            due = min((each.retry_at for each in self._known.values() if not each.is_busy), default=now + RETRY_S)
            self._work_soon(max(RETRY_S, due - now))

    def _attempt(self, damage: Damage) -> None:
        partition = damage.partition
        if not partition.is_leader:
            self._mend(damage)
        elif self._others_in_sync(partition):
            now = self._runtime.monotonic()
            if now < damage.resign_at:
                damage.retry_at = min(damage.resign_at, now + LED_LOOK_S)
                return
            damage.is_busy = True
            damage.state = "another replica is asked to lead"
            self._resign(partition, partial(self._on_resigned, damage))
        else:
            damage.state = "no other copy is in sync; these records are not served"
            now = self._runtime.monotonic()
            # Soon there may be another; the file itself seldom changes.
            damage.retry_at = now + LED_LOOK_S
            if damage.look_at <= now:
                damage.look_at = now + ALONE_LOOK_S
                damage.is_busy = True
                self._read_again(damage)

    def _others_in_sync(self, partition: Partition) -> bool:
        topic = self._environment.image().topic_by_id(partition.topic_id)
        if topic is None or partition.index >= len(topic.partitions):
            return False
        return any(each != self._environment.node_id for each in topic.partitions[partition.index].isr)

    def _mend(self, damage: Damage) -> None:
        if self._repair is not None:
            damage.retry_at = self._runtime.monotonic() + RETRY_S
            return
        if damage.partition.leader_id < 0:
            self._later(damage, "the partition has no leader")
            return
        damage.is_busy = True
        damage.state = "it is fetched again from the leader"
        self._repair = SegmentRepair(
            self._storage, self._cleaner, damage.partition, damage.segment, partial(self._on_mended, damage)
        )
        self._repair.begin()

    def _on_mended(self, damage: Damage, reason: str | None) -> None:
        self._repair = None
        damage.is_busy = False
        if self._is_closed:
            return
        if reason is None:
            self.repaired += 1
            self._known.pop(damage.segment, None)
            partition = damage.partition
            log.warning(
                "%s: mended from the leader",
                damage,
                extra=fields(topic=partition.topic, partition=partition.index, segment=damage.base_offset),
            )
        else:
            self._later(damage, f"it is fetched again when it can be: {reason}")
        self._work_soon(0.0)

    def _on_resigned(self, damage: Damage, reason: str | None) -> None:
        damage.is_busy = False
        if reason is None:
            self.resigned += 1
            damage.state = "another replica leads; it is fetched from there"
            # Where every copy is damaged, leaders would go round and round.
            damage.resignations += 1
            wait_s = min(RESIGN_S_MAX, RETRY_S * 2 ** max(0, min(damage.resignations - RESIGNED_OFTEN, 20)))
            damage.resign_at = self._runtime.monotonic() + wait_s
            damage.retry_at = self._runtime.monotonic() + RETRY_S
        else:
            self._later(damage, f"another replica is asked to lead when it can: {reason}")
        self._work_soon(RETRY_S)

    def _later(self, damage: Damage, state: str) -> None:
        damage.state = state
        damage.failures += 1
        damage.retry_at = self._runtime.monotonic() + min(RETRY_S_MAX, RETRY_S * 2 ** min(damage.failures, 10))

    def _read_again(self, damage: Damage) -> None:
        """The only copy: perhaps a person has put another file in its place."""
        segment, partition_log = damage.segment, damage.partition.log
        scrubbed = ScrubbedSegment(segment.base_offset, segment.size_bytes, damage.end_offset)
        pace = self._environment.config().log_scrub_max_bytes_per_second
        params = job_params(partition_log.directory, [scrubbed], partition_log.leader_epochs, bytes_per_s=pace)

        def on_done(result: dict[str, Any] | None, _: object) -> None:
            damage.is_busy = False
            if result is not None and not result["findings"] and not damage.is_over and not segment.references:
                # By the name, not by the file that is open: that may be the old one.
                segment.open_files.forget(segment)
                distrust(segment, partition_log)
                self._known.pop(segment, None)
                log.warning("%s: sound again", damage)

        self._storage.workers.get().run(SCRUB, params, lambda _: None, on_done)


def _look_again(segment: Segment, finding: ScrubFinding) -> None:
    """Check the place once more; what comes of it stands in the segment. In a thread."""
    if finding.is_index:
        rebuild_indexes(segment)
        return
    position = segment.index.boundary_before(finding.position)
    while position <= finding.position and position < segment.verified_from:
        stretch = None if segment.unverified is None else segment.unverified.at(position)
        if stretch is None:
            check_at(segment, position)
        elif stretch.fault is not None:
            return
        else:
            position = stretch.end
