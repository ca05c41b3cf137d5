"""How many records are unread, counted by the nodes of a Strandline cluster: no markers, nothing aborted or compacted.

Other clusters know offsets only; there a lag on a compacted or transactional topic is marked ~.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from strandline.cli.common.client import Cluster
from strandline.cli.common.conversation import Conversation, is_spoken
from strandline.cli.common.failures import CommandFailed
from strandline.cli.common.record_times import Spot
from strandline.cli.group.lag_topics import TopicFactsReader
from strandline.cli.group.state import Place
from strandline.codec.messages.record_counts_request import PartitionPositions, RecordCountsRequest, TopicPositions
from strandline.codec.messages.record_counts_response import RecordCountsResponse

_COUNTING_S_MAX = 3.0
"""How long a node may count that has not counted before; then the lag is in offsets for now."""


class Unread(NamedTuple):
    records: int
    undecided: int


class Lag(NamedTuple):
    """How far one position is behind."""

    records: int
    undecided: int
    is_exact: bool
    """Whether `records` counts records, and not merely offsets."""

    def __str__(self) -> str:
        more = f" (+{self.undecided:,} undecided)" if self.undecided else ""
        return f"{'' if self.is_exact or not self.records else '~'}{self.records:,}{more}"


def next_offset(committed: int, log_range: tuple[int, int]) -> int:
    """What the group reads next: what was deleted unread it cannot read any more."""
    return max(committed, log_range[0])


def unread_spots(committed: Mapping[Place, int], ranges: Mapping[Place, tuple[int, int]]) -> dict[Spot, None]:
    """Where a group goes on reading, of the partitions that have something for it; a dict, to keep their order."""
    return {
        (place, next_offset(offset, ranges[place])): None
        for place, offset in committed.items()
        if place in ranges and next_offset(offset, ranges[place]) < ranges[place][1]
    }


def read_lags(
    cluster: Cluster,
    admin: Any,
    leaders: Mapping[Place, Any],
    committed: Mapping[Place, int],
    ranges: Mapping[Place, tuple[int, int]],
) -> dict[Place, Lag]:
    """How far a group is behind in each partition whose range is known: by what the leaders count, else by offsets."""
    counted = count_unread(cluster, leaders, unread_spots(committed, ranges))
    facts = TopicFactsReader(cluster, admin)
    lags = {}
    for place, offset in committed.items():
        if place not in ranges:
            continue
        at, end = next_offset(offset, ranges[place]), ranges[place][1]
        unread = Unread(0, 0) if at >= end else counted.get((place, at))
        # Whether offsets count records matters only where something is unread and no broker counted it.
        lags[place] = Lag(end - at, 0, facts.counts_records(place[0])) if unread is None else Lag(*unread, True)
    return lags


def count_unread(cluster: Cluster, leaders: Mapping[Place, Any], spots: Iterable[Spot]) -> dict[Spot, Unread]:
    """What a reader of committed records gets from each offset on, as far as the leaders know."""
    led_by: dict[int, tuple[Any, dict[Place, dict[int, None]]]] = {}
    for place, offset in spots:
        leader = leaders.get(place)
        if leader is not None:
            _, places = led_by.setdefault(leader.id, (leader, {}))
            places.setdefault(place, {})[offset] = None
    if not led_by or not is_spoken(cluster):
        return {}
    found: dict[Spot, Unread] = {}
    for _, (leader, places) in sorted(led_by.items()):
        try:
            with Conversation(leader.host, leader.port, cluster.timeout_s, cluster.security) as conversation:
                answer = conversation.ask(_request(cluster, places), RecordCountsResponse)
        except CommandFailed:
            # It went away just now: offsets are known, and are what is told of its partitions.
            continue
        if answer is None:
            # Not one of ours: none of them is.
            return {}
        for topic in answer.topics:
            for partition in topic.partitions:
                for each in partition.counts:
                    if each.records >= 0:
                        spot = (topic.name, partition.partition), each.offset
                        found[spot] = Unread(each.records, each.undecided)
    return found


def _request(cluster: Cluster, places: dict[Place, dict[int, None]]) -> RecordCountsRequest:
    topics: dict[str, TopicPositions] = {}
    for (name, index), offsets in places.items():
        topic = topics.setdefault(name, TopicPositions(name=name))
        topic.partitions.append(PartitionPositions(partition=index, offsets=list(offsets)))
    timeout_ms = int(min(_COUNTING_S_MAX, cluster.timeout_s / 2) * 1000)
    return RecordCountsRequest(timeout_ms=timeout_ms, topics=list(topics.values()))
