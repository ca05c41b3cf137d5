"""Looks at the positions of groups over the Kafka protocol, again and again, and makes figures of what it saw."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from strandline.cli.common.client import Cluster, admin_api
from strandline.cli.common.failures import topic_not_found
from strandline.cli.common.partition_places import leaders_of
from strandline.cli.common.record_times import RecordTimes, Spot
from strandline.cli.group.lag_counts import Unread, count_unread, next_offset, unread_spots
from strandline.cli.group.lag_memory import remembered
from strandline.cli.group.lag_topics import TopicFactsReader
from strandline.cli.group.offsets import committed_by_group
from strandline.cli.group.reading import read_group, read_groups
from strandline.cli.group.state import GroupDescription, GroupMember, Place
from strandline.cli.topic.topics import look_up_offsets
from strandline.client.group_positions import CommittedPosition
from strandline.lag.figures import Figures, TopicRetention, figures
from strandline.lag.objectives import LagObjective
from strandline.lag.samples import NO_POSITION, UNKNOWN, Sample, Window
from strandline.lag.verdict import LagJudgement, LagVerdict, judge, worst

T = TypeVar("T")

_FACTS_S = 60.0
"""Settings of topics are read again after so long, by those who look again and again."""
# Groups of other kinds keep no offsets of their own in partitions.
_WITH_POSITIONS = ("classic", "consumer")


@dataclass(frozen=True)
class PositionLag:
    """One group in one partition."""

    topic: str
    partition: int
    figures: Figures | None
    """None if the partition has no leader, so that its end is unknown."""
    judgement: LagJudgement | None
    is_exact: bool
    """Whether the lag counts records, and not merely offsets."""
    reader: GroupMember | None
    """The member that holds the partition."""
    objective: LagObjective | None = None
    """How far the group may be behind, where the topic says so and was looked at."""

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True)
class GroupLag:
    group: GroupDescription
    positions: list[PositionLag]

    @property
    def group_id(self) -> str:
        return self.group.group_id

    @property
    def lag(self) -> int:
        return sum(each.figures.lag or 0 for each in self.positions if each.figures is not None)

    @property
    def undecided(self) -> int:
        return sum(each.figures.undecided for each in self.positions if each.figures is not None)

    @property
    def is_exact(self) -> bool:
        return all(each.is_exact for each in self.positions if each.figures is not None and each.figures.lag)

    @property
    def verdict(self) -> LagVerdict:
        return worst(each.judgement.verdict for each in self.positions if each.judgement is not None)

    @property
    def worst_position(self) -> PositionLag | None:
        """The one that gives the group its verdict; of several the one that is furthest behind."""
        wanted = self.verdict
        candidates = [each for each in self.positions if each.judgement and each.judgement.verdict is wanted]
        return max(candidates, key=_badness, default=None)


def _badness(position: PositionLag) -> tuple[float, int]:
    seen = position.figures
    return (0.0, 0) if seen is None else (seen.lag_s or 0.0, seen.lag or 0)


@dataclass(frozen=True)
class _Seen:
    """What one look found of a group before its partitions were looked at."""

    group: GroupDescription
    committed: dict[Place, int]
    readers: dict[Place, GroupMember]

    @property
    def group_id(self) -> str:
        return self.group.group_id

    @property
    def places(self) -> list[Place]:
        return sorted(self.committed.keys() | self.readers.keys())

    def is_read(self, place: Place) -> bool | None:
        if place in self.readers:
            return True
        # Unknown while a group rebalances, or if its members do not say what they hold.
        members = self.group.members
        if members is None or any(member.owned is None for member in members):
            return None
        return False if self.group.state in ("Stable", "Empty") else None


@dataclass(frozen=True)
class LagWindows:
    """What earlier looks saw, for readings that follow one another. One reading uses it at a time."""

    windows: dict[tuple[str, Place], Window] = field(default_factory=dict)
    known_groups: set[str] = field(default_factory=set)
    parts: dict[str, tuple[Any, float]] = field(default_factory=dict)
    """Readers that remember what they have read, by their names, with the times when they were made."""

    def part(self, name: str, make: Callable[[], T], lasts_s: float) -> T:
        """Return the reader of the look before, unless it is too old."""
        found = self.parts.get(name)
        now_s = time.monotonic()
        if found is None or now_s - found[1] > lasts_s:
            found = self.parts[name] = make(), now_s
        kept: T = found[0]
        return kept

    def keep(self, group_ids: Collection[str]) -> None:
        """Drop what belongs to groups that are gone."""
        for key in [key for key in self.windows if key[0] not in group_ids]:
            del self.windows[key]
        self.known_groups.intersection_update(group_ids)


class LagReading:
    """Keeps the windows, so that each look knows more than the one before."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        group_id: str | None = None,
        topics: Iterable[str] = (),
        windows: LagWindows | None = None,
        times_max: int | None = None,
    ) -> None:
        """`times_max` bounds how many records one look reads for their times; those furthest behind come first."""
        self._cluster = cluster
        self._admin = cluster.admin()
        self._group_id = group_id
        self._topics = frozenset(topics)
        self._memory = LagWindows() if windows is None else windows
        self._facts = self._memory.part("facts", lambda: TopicFactsReader(cluster, self._admin), _FACTS_S)
        self._times = self._memory.part("times", lambda: RecordTimes(cluster), math.inf)
        self._times_max = times_max
        self._windows = self._memory.windows
        self._leaders: dict[Place, Any] = {}

    def close(self) -> None:
        self._times.close()

    def look(self) -> list[GroupLag]:
        """All groups, or the one that was asked for, as they are now."""
        seen = self._read_groups()
        existing = self._existing_topics({place[0] for each in seen for place in each.places})
        places = sorted({place for each in seen for place in each.places if place[0] in existing})
        spec_of = admin_api().OffsetSpec
        # Starts first: a log that is trimmed in between must not seem to begin behind its end.
        look_up = partial(look_up_offsets, self._cluster, self._admin, places, leaders=self._leaders)
        starts, ends = look_up(spec_of.earliest()), look_up(spec_of.latest())
        ranges: dict[Place, tuple[int, int]] = {}
        for place in places:
            start, end = starts[place], ends[place]
            if start is not None and end is not None:
                ranges[place] = start, end
        spots = {spot: None for each in seen for spot in unread_spots(each.committed, ranges)}
        unread = count_unread(self._cluster, self._leaders, spots)
        wanted = [spot for spot in spots if spot not in unread or unread[spot].records]
        if self._times_max is not None and len(wanted) > self._times_max:
            wanted.sort(key=lambda spot: spot[1] - ranges[spot[0]][1])
            del wanted[self._times_max :]
        times = self._times.read(wanted)
        self._remember(seen)
        at_ms, now_ms = int(time.monotonic() * 1000), int(time.time() * 1000)
        for each in seen:
            for place in each.places:
                if place in ranges:
                    committed = each.committed.get(place)
                    sample = self._sample(place, committed, ranges[place], times, unread, at_ms, now_ms)
                    self._windows.setdefault((each.group_id, place), Window()).add(sample)
        return [self._judged(each, ranges, existing) for each in seen]

    def _remember(self, seen: list[_Seen]) -> None:
        """Begin with what the cluster saw before us, of groups that we see for the first time."""
        self._memory.keep({each.group_id for each in seen})
        new = [each.group for each in seen if each.group_id not in self._memory.known_groups]
        self._memory.known_groups.update(group.group_id for group in new)
        for each in remembered(self._cluster, new, at_ms=int(time.monotonic() * 1000)):
            self._windows[each.group_id, each.place] = each.window

    @property
    def span_s(self) -> float:
        """How far back goes what is known of each position that has something unread."""
        spans = [window.span_ms for window in self._windows.values() if window.samples and window.last.lag]
        return min(spans, default=0) / 1000

    def _sample(
        self,
        place: Place,
        committed: int | None,
        log_range: tuple[int, int],
        times: dict[Spot, int | None],
        unread: dict[Spot, Unread],
        at_ms: int,
        now_ms: int,
    ) -> Sample:
        start, end = log_range
        if committed is None:
            return Sample(at_ms, NO_POSITION, start, end)
        age_ms = size_bytes = 0
        offset = next_offset(committed, log_range)
        counted = Unread(0, 0)
        if offset < end:
            spot = place, offset
            time_ms = times.get(spot)
            # A reader that came to the end without a record has shown that there is none.
            nothing_read = Unread(0, 0) if spot in times and time_ms is None else Unread(UNKNOWN, 0)
            counted = unread.get(spot, nothing_read)
            if counted.records == 0:
                return Sample(at_ms, committed, start, end, 0, 0, *counted)
            age_ms = UNKNOWN if time_ms is None else max(0, now_ms - time_ms)
            log_bytes = self._facts.of(place[0]).sizes.get(place[1])
            # The sizes of single records are unknown, so all of the partition count as equal.
            size_bytes = UNKNOWN if log_bytes is None else log_bytes * (end - offset) // (end - start)
        return Sample(at_ms, committed, start, end, age_ms, size_bytes, *counted)

    def _judged(self, seen: _Seen, ranges: dict[Place, tuple[int, int]], existing: frozenset[str]) -> GroupLag:
        positions = []
        for place in seen.places:
            if place[0] not in existing:
                continue
            found = judgement = None
            is_exact = True
            if place in ranges:
                window = self._windows[seen.group_id, place]
                retention = TopicRetention()
                if window.last.committed != NO_POSITION and window.last.lag:
                    # What a topic keeps, and what its offsets count, matters only to who has something to read.
                    retention = self._facts.of(place[0]).retention
                    is_exact = window.last.records != UNKNOWN or self._facts.counts_records(place[0])
                found = figures(window, retention)
                judgement = judge(found, is_read=seen.is_read(place))
            objective = None
            # Of all groups together only topics with something unread are looked at: the others meet any objective.
            if self._group_id is not None or (found is not None and found.lag):
                objective = self._facts.objective(place[0], seen.group_id)
            positions.append(PositionLag(*place, found, judgement, is_exact, seen.readers.get(place), objective))
        return GroupLag(seen.group, positions)

    # Groups

    def _read_groups(self) -> list[_Seen]:
        if self._group_id is not None:
            groups = [read_group(self._cluster, self._group_id)]
        else:
            groups = [each for each in read_groups(self._cluster) if each.group_type in _WITH_POSITIONS]
        committed = committed_by_group(self._cluster, [group.group_id for group in groups])
        return [self._seen(group, committed[group.group_id]) for group in groups]

    def _seen(self, group: GroupDescription, positions: dict[Place, CommittedPosition]) -> _Seen:
        committed = {place: each.offset for place, each in positions.items() if self._is_wanted(place[0])}
        readers = {
            place: member for member in group.members or () for place in member.owned or () if self._is_wanted(place[0])
        }
        return _Seen(group, committed, readers)

    # Topics

    def _is_wanted(self, topic: str) -> bool:
        return not self._topics or topic in self._topics

    def _existing_topics(self, named: set[str]) -> frozenset[str]:
        self._leaders = leaders_of(self._cluster, named | self._topics)
        existing = frozenset(name for name, _ in self._leaders)
        for topic in sorted(self._topics - existing):
            raise topic_not_found(topic, frozenset(name for name, _ in leaders_of(self._cluster)))
        return existing
