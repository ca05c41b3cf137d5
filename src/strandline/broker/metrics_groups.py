"""Families about consumer groups. A group is known here once its part of `__consumer_offsets` was loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from strandline.broker.metrics_scrape import Scrape
from strandline.coordinators.offsets import CommittedOffsets
from strandline.observability.exposition import Metric, Sample, escaped


def _positions(scrape: Scrape) -> Iterator[tuple[str, str, int, int, int]]:
    """(group, topic, partition, committed offset, lag); a group's lists are copied, the next turn may change them."""
    for shard in scrape.shards:
        for group_id in list(shard.groups):
            yield from _positions_of(scrape, shard.offsets, group_id)


def _positions_of(scrape: Scrape, offsets: CommittedOffsets, group_id: str) -> Iterator[tuple[str, str, int, int, int]]:
    for topic, partitions in list(offsets.of_group(group_id)):
        for index, value in list(partitions.items()):
            partition = scrape.node.partition(topic, index)
            if partition is not None:
                yield group_id, topic, index, value.offset, max(0, partition.high_watermark - value.offset)


def _each(read: Callable[[int, int], int]) -> Callable[[Scrape], Iterator[Sample]]:
    def samples(scrape: Scrape) -> Iterator[Sample]:
        for group_id, topic, index, offset, lag in _positions(scrape):
            labels = f'consumergroup="{escaped(group_id)}",topic="{escaped(topic)}",partition="{index}"'
            yield labels, read(offset, lag)

    return samples


def _sum_lag(scrape: Scrape) -> Iterator[Sample]:
    for shard in scrape.shards:
        for group_id in list(shard.groups):
            if shard.offsets.has_any(group_id):
                total = sum(lag for *_, lag in _positions_of(scrape, shard.offsets, group_id))
                yield f'group="{escaped(group_id)}"', total


def _members(scrape: Scrape) -> Iterator[Sample]:
    for shard in scrape.shards:
        for group_id, group in list(shard.groups.items()):
            yield f'consumergroup="{escaped(group_id)}"', len(group.members)


def _states(scrape: Scrape) -> Iterator[Sample]:
    states = Counter(str(group.state.value) for shard in scrape.shards for group in shard.groups.values())
    for state, count in sorted(states.items()):
        yield f'state="{escaped(state)}"', count


_POSITION: Final = ("consumergroup", "topic", "partition")

FAMILIES: Final[tuple[Metric[Scrape], ...]] = (
    Metric(
        "kafka_coordinator_group_groupmetadatamanager_numgroups",
        "gauge",
        "Groups that are loaded, by state.",
        _states,
        ("state",),
        public=True,
    ),
    Metric("kafka_consumergroup_members", "gauge", "Members of a group.", _members, ("consumergroup",)),
    Metric(
        "kafka_consumergroup_current_offset",
        "gauge",
        "The offset that a group has committed.",
        _each(lambda offset, lag: offset),
        _POSITION,
    ),
    Metric(
        "kafka_consumergroup_lag",
        "gauge",
        "Records between the committed offset and the high watermark.",
        _each(lambda offset, lag: lag),
        _POSITION,
    ),
    Metric(
        "kafka_consumergroup_group_sum_lag", "gauge", "Lag of a group over all its partitions.", _sum_lag, ("group",)
    ),
)
