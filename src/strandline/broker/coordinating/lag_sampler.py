"""Looks at the positions of all groups that this broker coordinates, every few seconds, so that lag can be told.

A partition of which this node has a replica in sync is looked at here, and for the others their leaders are asked. What
a look finds goes into the window of the position (`lag.samples`); figures and verdicts are made when a client reads
the page.

What it costs: a position that did not move takes some microseconds of a look, one that moved and has records unread
some tens, for the header of one batch is read. That is spread over turns of the loop, and windows over which nothing
changed hold two samples. Nothing waits for a disk: what the page cache does not hold is read by a thread, for a few
positions in each look. Records are counted likewise: on a plain topic that is a difference of offsets, and what takes a
walk over a log is counted in the background, for a look to come; until then a sample has offsets only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID

from strandline.broker.coordinating.lag_counting import LagCounting
from strandline.broker.coordinating.lag_leaders import Asked, LagLeaders, Place, Told
from strandline.broker.environment import Environment
from strandline.errors import StrandlineError
from strandline.ids import ZERO_UUID
from strandline.lag.samples import UNKNOWN, Sample, Window
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.segment import ColdRead
from strandline.partition.counting import NOTHING, Counted
from strandline.partition.position_lookup import (
    LocatedBatch,
    bytes_behind,
    locate_batch,
    locate_batch_in,
)
from strandline.runtime.time_slicing import slowly

if TYPE_CHECKING:
    from strandline.broker.coordinating.coordinator_runtime import FindPartition
    from strandline.broker.coordinating.group_driver import GroupDriver
    from strandline.broker.lazy import Lazy
    from strandline.coordinators.groups.group_shard import GroupShard
    from strandline.partition.partition import Partition
    from strandline.quorum.image.cluster_image import Topic
    from strandline.runtime.runtime import TimerHandle

log = logging.getLogger("strandline.groups")

Waiting = dict[Place, list[tuple[str, int]]]
"""By partition, the groups that have a position in it, and where."""

POSITIONS_MAX: Final = 100_000
"""Positions that one node watches; those beyond are not judged."""
COLD_READS_MAX: Final = 16
"""Times of records that a thread reads from disk in each look."""
COUNTS_BEGUN_MAX: Final = 8
"""Positions whose records are begun to be counted, in the background, in each look."""
TIMES_ASKED_MAX: Final = 16
"""Times of records that other brokers are asked for in each look."""


class Tracked(Window):
    """A position: what was seen of it, and the time of the record there, which is read once for each offset."""

    __slots__ = ("counted", "counted_for", "round", "standing", "standing_at", "topic_id")

    def __init__(self, topic_id: UUID) -> None:
        super().__init__()
        self.topic_id = topic_id
        self.round = 0
        self.standing: LocatedBatch | None = None
        self.standing_at = UNKNOWN
        """The offset for which `standing` was found."""
        self.counted: Counted | None = None
        self.counted_for: tuple[int, int, int] | None = None
        """What was counted in the background last, and for which position, last stable offset and high watermark."""

    def is_behind(self, committed: int, end: int) -> bool:
        """Whether more was seen than this already."""
        return bool(self.samples) and (committed < self.last.committed or end < self.last.end)


class LagSampler:
    def __init__(self, environment: Environment, partition: FindPartition, groups: Lazy[GroupDriver]) -> None:
        self._environment = environment
        self._partition = partition
        self._coordinated = groups
        self._runtime = environment.runtime
        self._groups: dict[str, dict[Place, Tracked]] = {}
        self._leaders = LagLeaders(environment)
        self.counting = LagCounting(environment.runtime)
        self._timer: TimerHandle | None = None
        self._round = 0
        self.rounds = 0
        """Looks that came to their end."""
        self._positions = 0
        self._cold_reads = self._times_asked = self._counts_begun = 0
        self._is_looking = self._is_closed = False
        self._has_complained = False

    @property
    def interval_s(self) -> float:
        return self._environment.config().group_lag_interval_ms / 1000

    def start(self) -> None:
        """Look from now on; not at all if the interval is 0."""
        if self._timer is None and not self._is_closed and self.interval_s > 0:
            self._timer = self._runtime.call_later(self.interval_s, self.look)

    def close(self) -> None:
        self._is_closed = True
        self._leaders.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # What was seen

    def windows_of(self, group_id: str) -> list[tuple[Place, Tracked]]:
        """The positions of a group that were looked at; none if this node does not coordinate it."""
        return [(place, tracked) for place, tracked in self._groups.get(group_id, {}).items() if tracked.samples]

    def now(self, group_id: str, place: Place, committed: int) -> Sample | None:
        """A position as it is now, without its age: of a partition that this node leads. Of another one as of the last
        look, and None before the first. It begins no count: a look does, and until then there are offsets only."""
        tracked = self._groups.get(group_id, {}).get(place)
        partition = self._partition(*place)
        if partition is not None and (partition.is_leader or tracked is None or not tracked.samples):
            start, end = partition.log_start_offset, partition.high_watermark
            counted = self._known_count(tracked, partition, max(committed, start))
            return Sample(self.now_ms(), committed, start, end, UNKNOWN, UNKNOWN, *(counted or (UNKNOWN, 0)))
        return None if tracked is None or not tracked.samples else _moved_to(committed, tracked.last)

    def _known_count(self, tracked: Tracked | None, partition: Partition, offset: int) -> Counted | None:
        """What a reader gets from `offset` on, if it was counted or is known without waiting."""
        if offset >= partition.high_watermark:
            return NOTHING
        counted = self.counting.at_hand(partition, offset)
        if counted is None and tracked is not None and tracked.counted_for == _wanted(partition, offset):
            return tracked.counted
        return counted

    # Looking

    def look(self) -> None:
        """Look now, and again after the interval."""
        if self._is_closed:
            return
        if self.interval_s > 0:
            self._timer = self._runtime.call_later(max(0.1, self.interval_s), self.look)
        if self._is_looking:
            # One that takes longer than the interval is not overtaken by the next.
            return
        self._is_looking = True
        self._round += 1
        self._positions = self._cold_reads = self._times_asked = self._counts_begun = 0
        absent: dict[int, Waiting] = {}
        slowly(self._runtime, self._look_at_all(absent), lambda: self._end_look(absent))

    def _look_at_all(self, absent: dict[int, Waiting]) -> Iterator[None]:
        for shard in self._coordinated.get().loaded_shards():
            for group_id in list(shard.groups):
                yield from self._look_at_group(shard, group_id, absent)
        for group_id, places in list(self._groups.items()):
            for place in [place for place, tracked in places.items() if tracked.round != self._round]:
                del places[place]
            if not places:
                del self._groups[group_id]
            yield

    def _look_at_group(self, shard: GroupShard, group_id: str, absent: dict[int, Waiting]) -> Iterator[None]:
        image = self._environment.image()
        for name, partitions in list(shard.offsets.of_group(group_id)):
            topic = image.topic_by_name(name)
            if topic is None:
                continue
            for index, value in list(partitions.items()):
                if ZERO_UUID != value.topic_id != topic.id or not 0 <= index < len(topic.partitions):
                    continue
                if self._positions >= POSITIONS_MAX:
                    self._complain()
                    return
                self._positions += 1
                tracked = self._tracked(group_id, (name, index), topic.id)
                partition = self._replica(topic, index)
                if partition is not None:
                    self._note_replica(tracked, partition, value.offset)
                else:
                    leader_id = topic.partitions[index].leader
                    waiting = absent.setdefault(leader_id, {}).setdefault((name, index), [])
                    waiting.append((group_id, value.offset))
                yield

    def _tracked(self, group_id: str, place: Place, topic_id: UUID) -> Tracked:
        tracked = self._groups.setdefault(group_id, {}).get(place)
        if tracked is None or tracked.topic_id != topic_id:
            tracked = self._groups[group_id][place] = Tracked(topic_id)
        tracked.round = self._round
        return tracked

    def _replica(self, topic: Topic, index: int) -> Partition | None:
        """The partition if this node has all that is committed in it, save what its leader committed just now."""
        partition = self._partition(topic.name, index)
        if partition is None or partition.log.failure is not None or partition.topic_id != topic.id:
            return None
        return partition if partition.is_leader or self._environment.node_id in topic.partitions[index].isr else None

    def _complain(self) -> None:
        if not self._has_complained:
            self._has_complained = True
            log.warning("more than %d positions of groups: the lag of the others is not watched", POSITIONS_MAX)

    def _end_look(self, absent: dict[int, Waiting]) -> None:
        self._is_looking = False
        self.rounds += 1
        if self._is_closed:
            return
        self._leaders.keep(absent)
        for leader_id, waiting in absent.items():
            if leader_id >= 0:
                asked: Asked = {place: [committed for _, committed in each] for place, each in waiting.items()}
                self._leaders.ask(leader_id, asked, partial(self._on_told, self._round, leader_id, waiting))

    # Replicas of this node

    def _note_replica(self, tracked: Tracked, partition: Partition, committed: int) -> None:
        end = partition.high_watermark
        if not partition.is_leader and end < committed <= partition.log.log_end_offset:
            # A follower learns of the high watermark a little later than a consumer that read up to it.
            end = committed
        start = partition.log_start_offset
        age_ms, size_bytes = 0, 0
        counted: Counted | None = NOTHING
        # What was deleted unread is lost; the record that comes next is the first that is still there.
        next_offset = max(committed, start)
        if next_offset < end:
            standing = self._standing(tracked, partition.log, next_offset)
            age_ms = self._age_ms(standing.timestamp_ms) if standing is not None else UNKNOWN
            size_bytes = UNKNOWN
            if standing is not None and partition.config.retention_bytes >= 0:
                behind = bytes_behind(partition.log, standing)
                size_bytes = UNKNOWN if behind is None else behind
            counted = self._counted(tracked, partition, next_offset)
        records, undecided = (UNKNOWN, 0) if counted is None else counted
        tracked.add(Sample(self.now_ms(), committed, start, end, age_ms, size_bytes, records, undecided))

    def _counted(self, tracked: Tracked, partition: Partition, offset: int) -> Counted | None:
        counted, wanted = self._known_count(tracked, partition, offset), _wanted(partition, offset)
        if counted is not None or tracked.counted_for == wanted:
            return counted
        if self._counts_begun < COUNTS_BEGUN_MAX:

            def on_counted(counted: Counted) -> None:
                tracked.counted, tracked.counted_for = counted, wanted

            self._counts_begun += self.counting.begin(partition, offset, on_counted)
        return None

    def _standing(self, tracked: Tracked, partition_log: PartitionLog, offset: int) -> LocatedBatch | None:
        if tracked.standing_at != offset:
            tracked.standing, tracked.standing_at = None, UNKNOWN
            try:
                tracked.standing, tracked.standing_at = locate_batch(partition_log, offset), offset
            except ColdRead:
                self._stand_later(tracked, partition_log, offset)
            except (StrandlineError, OSError) as error:
                log.debug("the record at %d of %s could not be looked at: %s", offset, partition_log.directory, error)
        return tracked.standing

    def _stand_later(self, tracked: Tracked, partition_log: PartitionLog, offset: int) -> None:
        """Have a thread read what only the disk knows; the next look finds it."""
        segment = partition_log.segment_of(offset)
        if segment is None or self._cold_reads >= COLD_READS_MAX:
            return
        self._cold_reads += 1
        segment.retain()

        def done(standing: LocatedBatch | None, error: BaseException | None) -> None:
            segment.release()
            if standing is not None:
                tracked.standing, tracked.standing_at = standing, offset

        self._runtime.in_thread(partial(locate_batch_in, segment, offset, may_block=True), done)

    # Partitions of other nodes

    def _on_told(self, asked_in: int, leader_id: int, waiting: Waiting, told: Told) -> None:
        if not self._is_closed:
            slowly(self._runtime, self._note_told(asked_in, leader_id, waiting, told), lambda: None)

    def _note_told(self, asked_in: int, leader_id: int, waiting: Waiting, told: Told) -> Iterator[None]:
        for place, ((start, end), counts) in told.items():
            for group_id, committed in waiting[place]:
                tracked = self._groups.get(group_id, {}).get(place)
                # An answer that comes late, after the next look, must not seem to take the group back.
                is_late = asked_in != self._round and tracked is not None and tracked.is_behind(committed, end)
                if tracked is not None and not is_late:
                    next_offset = max(committed, start)
                    age_ms = self._age_elsewhere_ms(leader_id, place, tracked, next_offset) if next_offset < end else 0
                    unread = NOTHING if next_offset >= end else counts.get(committed, Counted(UNKNOWN, 0))
                    tracked.add(Sample(self.now_ms(), committed, start, end, age_ms, UNKNOWN, *unread))
                yield

    def _age_elsewhere_ms(self, leader_id: int, place: Place, tracked: Tracked, offset: int) -> int:
        """By the record if its leader was asked for it, else by when the end of the log was seen to pass it."""
        if tracked.standing_at == offset and tracked.standing is not None:
            return self._age_ms(tracked.standing.timestamp_ms)
        passed_at_ms = tracked.passed_at_ms(offset)
        if passed_at_ms is not None:
            return max(0, self.now_ms() - passed_at_ms)
        if self._times_asked < TIMES_ASKED_MAX:
            self._times_asked += 1
            self._leaders.ask_time(leader_id, place, offset, partial(_on_time, tracked, offset))
        return UNKNOWN

    def _age_ms(self, timestamp_ms: int) -> int:
        return UNKNOWN if timestamp_ms < 0 else max(0, self._runtime.now_ms() - timestamp_ms)

    def now_ms(self) -> int:
        """For rates; it never goes back."""
        return int(self._runtime.monotonic() * 1000)


def _wanted(partition: Partition, offset: int) -> tuple[int, int, int]:
    """What the count of a position depends on."""
    return offset, partition.last_stable_offset, partition.high_watermark


def _moved_to(committed: int, last: Sample) -> Sample:
    """The last look at a position that may have moved since: a reader has then less to read, by all that is known."""
    if committed == last.committed:
        return last
    offsets = max(0, last.end - max(committed, last.log_start))
    is_counted = committed > last.committed and last.records != UNKNOWN
    return last._replace(committed=committed, records=min(last.records, offsets) if is_counted else UNKNOWN)


def _on_time(tracked: Tracked, offset: int, timestamp_ms: int | None) -> None:
    if timestamp_ms is not None:
        tracked.standing, tracked.standing_at = LocatedBatch(UNKNOWN, UNKNOWN, timestamp_ms), offset
