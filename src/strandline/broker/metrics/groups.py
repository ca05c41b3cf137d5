"""Families about consumer groups. A group is known here once its part of `__consumer_offsets` was loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from strandline.broker.metrics.scrape import Scrape
from strandline.coordinators.offsets.offsets import CommittedOffsets
from strandline.lag.figures import NEVER, Figures, unread
from strandline.observability.exposition import Metric, Sample, escaped

if TYPE_CHECKING:
    from strandline.broker.coordinating.lag_judging import Judged


def _positions(scrape: Scrape) -> Iterator[tuple[str, str, int, int, int]]:
    """(group, topic, partition, committed offset, lag); a group's lists are copied, the next turn may change them."""
    for shard in scrape.shards:
        for group_id in list(shard.groups):
            yield from _positions_of(scrape, shard.offsets, group_id)


def _positions_of(scrape: Scrape, offsets: CommittedOffsets, group_id: str) -> Iterator[tuple[str, str, int, int, int]]:
    for topic, partitions in list(offsets.of_group(group_id)):
        for index, value in list(partitions.items()):
            now = scrape.node.late.lag.get().now(group_id, (topic, index), value.offset)
            if now is not None:
                yield group_id, topic, index, value.offset, unread(now)


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


def _judged(read: Callable[[Figures], float | None]) -> Callable[[Scrape], Iterator[Sample]]:
    """A line for each position of which the figure is known."""

    def samples(scrape: Scrape) -> Iterator[Sample]:
        for each in scrape.judged():
            value = read(each.figures)
            if value is not None:
                yield _labels_of(each), value

    return samples


def _verdicts(scrape: Scrape) -> Iterator[Sample]:
    for each in scrape.judged():
        yield f'{_labels_of(each)},verdict="{each.judgement.verdict}"', 1


def _time_to_loss(figures: Figures) -> float | None:
    return None if figures.time_to_loss_s == NEVER else figures.time_to_loss_s


def _labels_of(each: Judged) -> str:
    return f'consumergroup="{escaped(each.group_id)}",topic="{escaped(each.topic)}",partition="{each.partition}"'


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
        "Records that readers of committed ones get from the committed offset on; offsets up to the high watermark "
        "while they are not counted yet. As it is now; as of the last look where the partition is led elsewhere.",
        _each(lambda offset, lag: lag),
        _POSITION,
    ),
    Metric(
        "kafka_consumergroup_group_sum_lag", "gauge", "Lag of a group over all its partitions.", _sum_lag, ("group",)
    ),
    Metric(
        "strandline_group_lag_records",
        "gauge",
        "Records between the committed offset, or the log start if that is later, and the last stable offset, that "
        "readers of committed ones get, wherever the partition is led; offsets up to the high watermark while they are "
        "not counted yet. As of the last look (`group.lag.interval.ms`), like the others below.",
        _judged(lambda figures: figures.lag),
        _POSITION,
    ),
    Metric(
        "strandline_group_undecided_records",
        "gauge",
        "Records behind those whose transactions are open, or that wait for such; not there where none do.",
        _judged(lambda figures: figures.undecided or None),
        _POSITION,
    ),
    Metric(
        "strandline_group_lag_seconds",
        "gauge",
        "Age of the record at the committed offset; 0 when nothing is unread.",
        _judged(lambda figures: figures.lag_s),
        _POSITION,
    ),
    Metric(
        "strandline_group_time_to_loss_seconds",
        "gauge",
        "Until retention deletes unread records at the present rates; not there where that is never.",
        _judged(_time_to_loss),
        _POSITION,
    ),
    Metric(
        "strandline_group_lost_records",
        "gauge",
        "Offsets that were deleted before the group read them; not there where none were.",
        _judged(lambda figures: figures.lost or None),
        _POSITION,
    ),
    Metric(
        "strandline_group_lag_verdict",
        "gauge",
        "Always 1; the label `verdict` says how the position is.",
        _verdicts,
        (*_POSITION, "verdict"),
    ),
)
