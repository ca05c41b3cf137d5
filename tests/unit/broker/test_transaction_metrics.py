"""Transactions are counted a part at a time, and what is open for too long is counted as that."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from strandline.broker.lazy import Lazy
from strandline.broker.metrics import transactions as metrics_transactions
from strandline.broker.metrics.transactions import GRACE_MS, TransactionFigures, counted, is_late
from strandline.coordinators.transactions.transaction import Transaction, TransactionStatus
from strandline.observability.exposition import Metric, Sample, render
from strandline.partition.producers import ProducerEntry, Producers

NOW_MS = 10_000_000
TIMEOUT_MS = 60_000


def transaction(status: TransactionStatus, age_ms: int = 0) -> Transaction:
    return Transaction("worker", 1, 0, TIMEOUT_MS, NOW_MS, status=status, start_ms=NOW_MS - age_ms)


def figures_of(*transactions: Transaction) -> TransactionFigures:
    figures = TransactionFigures()
    for each in transactions:
        figures.note(each, NOW_MS)
    return figures


def test_what_is_open_is_what_has_no_end_yet() -> None:
    figures = figures_of(*(transaction(status, 5_000) for status in TransactionStatus))
    assert figures.open == 3
    assert figures.oldest_ms == 5_000
    assert figures_of(transaction(TransactionStatus.COMPLETE_COMMIT, 5_000)).oldest_ms == 0


@pytest.mark.parametrize("status", [TransactionStatus.ONGOING, TransactionStatus.PREPARE_COMMIT])
def test_too_long_is_longer_than_the_timeout_and_some_more(status: TransactionStatus) -> None:
    assert figures_of(transaction(status, TIMEOUT_MS + GRACE_MS)).overdue == 0
    assert figures_of(transaction(status, TIMEOUT_MS + GRACE_MS + 1)).overdue == 1
    assert figures_of(transaction(TransactionStatus.EMPTY, TIMEOUT_MS + GRACE_MS + 1)).overdue == 0


def test_many_ids_are_counted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_transactions, "IDS_PER_PIECE_MAX", 10)
    shards = [
        SimpleNamespace(transactions={str(number): transaction(TransactionStatus.ONGOING) for number in range(25)})
        for _ in range(2)
    ]
    node: Any = SimpleNamespace(
        late=SimpleNamespace(transactions=Lazy(lambda: None)), runtime=SimpleNamespace(now_ms=lambda: NOW_MS)
    )
    node.late.transactions.loaded = SimpleNamespace(loaded_shards=lambda: shards)
    *pauses, figures = counted(node)
    assert pauses == [None] * 4
    assert figures is not None
    assert figures.open == 50


def test_a_pause_is_no_line() -> None:
    def read(_: object) -> Iterator[Sample | None]:
        yield None
        yield "", 1
        yield None

    pieces = list(render([Metric("figure", "gauge", "A figure.", read)], None))
    assert pieces[0] == ""
    assert "".join(pieces) == "# HELP figure A figure.\n# TYPE figure gauge\nfigure 1\n"
    assert "".join(render([Metric("none", "gauge", "None.", lambda _: [None])], None)) == ""


def test_a_partition_is_late_by_the_last_word_of_its_earliest_transaction() -> None:
    producers = Producers()
    partition: Any = SimpleNamespace(producers=producers)
    assert not is_late(partition, before_ms=NOW_MS)
    for producer_id, wrote_ms in ((7, 500), (8, 100)):
        producers.entries[producer_id] = ProducerEntry(0)
        producers.entries[producer_id].appended_ms = wrote_ms
        producers.note_transactional(producer_id, producer_id)
    assert not is_late(partition, before_ms=500)
    assert is_late(partition, before_ms=501)
