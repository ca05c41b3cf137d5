"""Families about share groups: what this node delivers to them from the partitions that it leads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from strandline.broker.metrics.scrape import Scrape
from strandline.coordinators.shares.delivery.acknowledgements import ACCEPT, REJECT, RELEASE, RENEW
from strandline.coordinators.shares.delivery.share_partition import SharePartition
from strandline.observability.exposition import Metric, Sample, escaped

if TYPE_CHECKING:
    from strandline.broker.coordinating.dead_letters.dead_letter_writer import DeadLetterCounts
    from strandline.broker.coordinating.share_delivery import ShareDelivery

_TYPES: Final = {"Accept": ACCEPT, "Release": RELEASE, "Reject": REJECT, "Renew": RENEW}


def _one(read: Callable[[ShareDelivery], int]) -> Callable[[Scrape], Iterator[Sample]]:
    """One line, which is 0 on a node that has delivered nothing yet."""

    def samples(scrape: Scrape) -> Iterator[Sample]:
        delivery = scrape.node.late.share_delivery.loaded
        yield "", 0 if delivery is None else read(delivery)

    return samples


def _acknowledgements(scrape: Scrape) -> Iterator[Sample]:
    delivery = scrape.node.late.share_delivery.loaded
    for name, kind in _TYPES.items():
        yield f'acktype="{name}"', 0 if delivery is None else delivery.counts.acknowledged[kind]


def _each(read: Callable[[SharePartition], int]) -> Callable[[Scrape], Iterator[Sample]]:
    """A line for each share partition that is loaded."""

    def samples(scrape: Scrape) -> Iterator[Sample]:
        delivery = scrape.node.late.share_delivery.loaded
        # Copied: in between they change.
        for led in () if delivery is None else list(delivery.loaded()):
            if led.share is not None:
                labels = f'group="{escaped(led.group_id)}",topic="{escaped(led.partition.topic)}"'
                yield f'{labels},partition="{led.partition.index}"', read(led.share)

    return samples


def _dead_letters(read: Callable[[DeadLetterCounts], int]) -> Callable[[Scrape], Iterator[Sample]]:
    """One line, which is 0 on a node that had no dead letter yet."""

    def samples(scrape: Scrape) -> Iterator[Sample]:
        dead_letters = scrape.node.late.dead_letters.loaded
        yield "", 0 if dead_letters is None else read(dead_letters.counts)

    return samples


def _waiting(scrape: Scrape) -> Iterator[Sample]:
    delivery = scrape.node.late.share_delivery.loaded
    for led in () if delivery is None else list(delivery.loaded()):
        if led.writer is not None:
            labels = f'group="{escaped(led.group_id)}",topic="{escaped(led.partition.topic)}"'
            waiting = sum(each.size for each in led.writer.queue.waiting)
            yield f'{labels},partition="{led.partition.index}"', waiting


def _oldest(scrape: Scrape) -> Iterator[Sample]:
    delivery = scrape.node.late.share_delivery.loaded
    for led in () if delivery is None else list(delivery.loaded()):
        if led.share is not None:
            labels = f'group="{escaped(led.group_id)}",topic="{escaped(led.partition.topic)}"'
            waited_ms = led.partition.runtime.now_ms() - led.watch.history.moved_ms if led.share.in_flight else 0
            yield f'{labels},partition="{led.partition.index}"', max(0, waited_ms) / 1000


FAMILIES: Final[tuple[Metric[Scrape], ...]] = (
    Metric(
        "kafka_server_sharesessioncache_numsharesessions",
        "gauge",
        "Share sessions: members of share groups that read from this node.",
        _one(lambda delivery: len(delivery.sessions)),
        public=True,
    ),
    Metric(
        "kafka_server_sharegroupmetrics_recordacknowledgements_total",
        "counter",
        "Records that members of share groups acknowledged since the start, by what they said. An acknowledgement "
        "counts when it is stored.",
        _acknowledgements,
        ("acktype",),
        public=True,
    ),
    Metric(
        "strandline_share_lock_timeouts_total",
        "counter",
        "Records whose lock timed out since the start, because their consumer did not acknowledge them in time.",
        _one(lambda delivery: delivery.counts.lock_timeouts),
        public=True,
    ),
    Metric(
        "strandline_share_redeliveries_total",
        "counter",
        "Records that were delivered for another time since the start, because a consumer released them, lost its "
        "connection, or let their lock time out.",
        _one(lambda delivery: delivery.counts.redelivered),
        public=True,
    ),
    Metric(
        "strandline_share_exhausted_total",
        "counter",
        "Records that were archived since the start, because they were delivered as often as the group allows and "
        "never accepted.",
        _one(lambda delivery: delivery.counts.archived),
        public=True,
    ),
    Metric(
        "kafka_server_sharepartitionmetrics_inflightmessagecount",
        "gauge",
        "Records between the first that is not done and the last that was delivered. Nothing new is delivered at "
        "`group.share.partition.max.record.locks`.",
        _each(lambda share: share.in_flight),
        ("group", "topic", "partition"),
    ),
    Metric(
        "strandline_share_waiting_records",
        "gauge",
        "Records that a share group does not get yet: not due, backed off, or behind others of their keys. New "
        "ones are not looked at above `strandline.share.partition.max.waiting.records`.",
        _each(lambda share: share.held.count),
        ("group", "topic", "partition"),
    ),
    Metric(
        "kafka_server_sharegroupmetrics_deadletterqueuerecordcount_total",
        "counter",
        "Dead letters of share groups that were written since the start. Each counts when its copy is committed.",
        _dead_letters(lambda counts: counts.written),
        public=True,
    ),
    Metric(
        "strandline_share_dead_letters_given_up_total",
        "counter",
        "Records that were archived without a copy since the start, because the dead-letter topic could not be written "
        "to and nothing else could be delivered. The log names their offsets.",
        _dead_letters(lambda counts: counts.given_up),
        public=True,
    ),
    Metric(
        "strandline_share_dead_letter_failures_total",
        "counter",
        "Attempts to write dead letters that came to nothing since the start, and were tried again.",
        _dead_letters(lambda counts: counts.failures),
        public=True,
    ),
    Metric(
        "strandline_share_dead_letters_waiting",
        "gauge",
        "Dead letters that have no copy yet.",
        _waiting,
        ("group", "topic", "partition"),
    ),
    Metric(
        "strandline_share_oldest_unacknowledged_seconds",
        "gauge",
        "How long the first delivered record that is not done has been the first one; 0 when nothing is in flight. "
        "`strandline queue why` says what it waits for.",
        _oldest,
        ("group", "topic", "partition"),
    ),
)
