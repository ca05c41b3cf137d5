"""Families about transactions: those that this node coordinates, and what they hold back on the partitions it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from strandline.broker.metrics.scrape import ObservedBroker, Scrape
from strandline.broker.metrics.topics import each_partition
from strandline.coordinators.transactions.transaction import UNFINISHED, Transaction, TransactionStatus
from strandline.observability.exposition import Metric, Sample
from strandline.partition.partition import Partition

GRACE_MS: Final = 10_000
"""How long after its timeout a transaction may take to be aborted before something is wrong."""
LATE_MS: Final = 300_000
"""Kafka's: how long after the longest timeout a partition counts as one with a late transaction."""
IDS_PER_PIECE_MAX: Final = 2_000
"""Transactional ids that are looked at in one piece of the page."""

_SHOWN: Final = tuple(status for status in TransactionStatus if status < TransactionStatus.DEAD)


@dataclass
class TransactionFigures:
    by_status: Counter[TransactionStatus] = field(default_factory=Counter)
    oldest_ms: int = 0
    """How long the oldest open one has been open."""
    overdue: int = 0

    @property
    def open(self) -> int:
        return sum(self.by_status[status] for status in UNFINISHED)

    def note(self, transaction: Transaction, now_ms: int) -> None:
        self.by_status[transaction.status] += 1
        if transaction.status in UNFINISHED:
            age_ms = now_ms - transaction.start_ms
            self.oldest_ms = max(self.oldest_ms, age_ms)
            self.overdue += age_ms > transaction.timeout_ms + GRACE_MS


def counted(node: ObservedBroker) -> Iterator[TransactionFigures | None]:
    """None again and again, so that others are served in between, and then the figures."""
    figures = TransactionFigures()
    transactions = node.late.transactions.loaded
    for shard in () if transactions is None else transactions.loaded_shards():
        # Copied: in between they change.
        for number, transaction in enumerate(list(shard.transactions.values()), 1):
            figures.note(transaction, node.runtime.now_ms())
            if number % IDS_PER_PIECE_MAX == 0:
                yield None
    yield figures


def _figures(read: Callable[[TransactionFigures], Iterator[Sample]]) -> Callable[[Scrape], Iterator[Sample | None]]:
    """Samples of what the first family that asks has counted."""

    def samples(scrape: Scrape) -> Iterator[Sample | None]:
        for figures in scrape.once(counted):
            if figures is None:
                yield None
            else:
                yield from read(figures)

    return samples


def _one(read: Callable[[TransactionFigures], float]) -> Callable[[Scrape], Iterator[Sample | None]]:
    return _figures(lambda figures: iter([("", read(figures))]))


def _states(figures: TransactionFigures) -> Iterator[Sample]:
    for status in _SHOWN:
        yield f'state="{status.title}"', figures.by_status[status]


def _waiting_markers(scrape: Scrape) -> Iterator[Sample]:
    transactions = scrape.node.late.transactions.loaded
    yield "", 0 if transactions is None else transactions.waiting_markers_count


def _late(scrape: Scrape) -> Iterator[Sample]:
    node = scrape.node
    before_ms = node.runtime.now_ms() - node.config.transaction_max_timeout_ms - LATE_MS
    yield "", sum(is_late(each, before_ms=before_ms) for each in scrape.partitions if each.is_leader)


def is_late(partition: Partition, *, before_ms: int) -> bool:
    """Whether the producer of the earliest open transaction has written nothing since then."""
    producers = partition.producers
    producer_id = next(iter(producers.open_transactions), None)
    return producer_id is not None and producers.entries[producer_id].appended_ms < before_ms


_PARTITION: Final = ("topic", "partition")

FAMILIES: Final[tuple[Metric[Scrape], ...]] = (
    Metric(
        "strandline_transactional_ids",
        "gauge",
        "Transactional ids that this node coordinates, by state.",
        _figures(_states),
        ("state",),
        public=True,
    ),
    Metric(
        "strandline_transactions_open",
        "gauge",
        "Transactions that this node coordinates and that are not over.",
        _one(lambda figures: figures.open),
        public=True,
    ),
    Metric(
        "strandline_transactions_oldest_seconds",
        "gauge",
        "How long the oldest of these has been open; 0 if none is.",
        _one(lambda figures: figures.oldest_ms / 1000),
        public=True,
    ),
    Metric(
        "strandline_transactions_overdue",
        "gauge",
        "Those of them that are open for ten seconds longer than their timeout: readers of committed records wait, and "
        "`strandline txn why` says for what.",
        _one(lambda figures: figures.overdue),
        public=True,
    ),
    Metric(
        "strandline_transaction_markers_waiting",
        "gauge",
        "Markers of decided transactions that are still to be written.",
        _waiting_markers,
        public=True,
    ),
    Metric(
        "kafka_server_replicamanager_partitionswithlatetransactionscount",
        "gauge",
        "Partitions led here with a transaction whose producer wrote nothing for five minutes longer than "
        "`transaction.max.timeout.ms`: it hangs, probably.",
        _late,
        public=True,
    ),
    Metric(
        "kafka_cluster_partition_laststableoffsetlag",
        "gauge",
        "Records between the last stable offset and the high watermark: readers of committed ones do not see them yet.",
        each_partition(lambda each: each.high_watermark - each.last_stable_offset),
        _PARTITION,
    ),
    Metric(
        "strandline_partition_open_transactions",
        "gauge",
        "Transactions that are open on the partition.",
        each_partition(lambda each: len(each.producers.open_transactions)),
        _PARTITION,
    ),
)
