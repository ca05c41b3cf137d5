"""What is said of transactions, of every kind that can be met."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.cli.common.client import Cluster
from strandline.cli.doctor.findings import Level
from strandline.cli.txn import holds as txn_holds
from strandline.cli.txn.health import findings_of
from strandline.cli.txn.reading import TransactionsFound
from strandline.cli.txn.state import Hold, Holder, HoldVerdict, OpenProducer, TransactionState, WaitingMarker, judged

NOW_MS = 1_000_000
HERE = ("orders", 0)
OPEN = TransactionState(
    "payments-7",
    "Ongoing",
    4001,
    producer_epoch=3,
    coordinator=2,
    timeout_ms=60_000,
    start_ms=NOW_MS - 42_000,
    now_ms=NOW_MS,
    partitions=(HERE, ("orders", 1)),
)
PRODUCER = OpenProducer(4001, 3, -1, 96, NOW_MS - 1_000)


def after(age_ms: int, state: str = "Ongoing") -> TransactionState:
    return replace(OPEN, start_ms=NOW_MS - age_ms, state=state)


@pytest.mark.parametrize(
    ("transaction", "words"),
    [
        (OPEN, "times out in 18 s, if its producer does not end it before"),
        (after(60_000), "times out in 0 s, if its producer does not end it before"),
        (after(63_500), "its time was over 3.5 s ago: it is being aborted"),
        (after(90_000), "its time was over 30 s ago, and its coordinator, node 2, has not aborted it"),
        (after(1_000, "PrepareCommit"), "it is being committed: its markers are being written"),
        (
            replace(
                after(1_000, "PrepareAbort"),
                waiting=(
                    WaitingMarker(("orders", 3), -1, "LEADER_NOT_AVAILABLE"),
                    WaitingMarker(("orders", 4), 1, "NOT_ENOUGH_REPLICAS"),
                    WaitingMarker(("orders", 5), 1, ""),
                ),
            ),
            "it is being aborted: markers wait for orders-3 (no leader), orders-4 (node 1 says NOT_ENOUGH_REPLICAS), "
            "orders-5",
        ),
        (after(1_000, "CompleteCommit"), ""),
        (replace(OPEN, state="Empty", start_ms=-1), ""),
    ],
)
def test_what_ends_a_transaction(transaction: TransactionState, words: str) -> None:
    assert transaction.ends == words


def test_only_so_many_partitions_are_named() -> None:
    waiting = tuple(WaitingMarker(("orders", index), -1, "") for index in range(7))
    assert replace(after(0, "PrepareCommit"), waiting=waiting).ends.endswith("orders-4 (no leader) and 2 more")


def test_only_what_is_open_has_an_age() -> None:
    assert OPEN.age_ms == 42_000
    assert replace(OPEN, state="CompleteAbort").age_ms is None
    # The clock of another coordinator may have been ahead.
    assert after(-5_000).age_ms == 0


@pytest.mark.parametrize(
    ("transaction", "verdict"),
    [
        (OPEN, HoldVerdict.ONGOING),
        (after(70_000), HoldVerdict.ONGOING),
        (after(70_001), HoldVerdict.OVERDUE),
        (after(5, "PrepareCommit"), HoldVerdict.ENDING),
        (after(70_001, "PrepareAbort"), HoldVerdict.OVERDUE),
        (after(5, "CompleteCommit"), HoldVerdict.HANGING),
        (replace(OPEN, state="Empty", partitions=()), HoldVerdict.HANGING),
        (replace(OPEN, partitions=(("orders", 1),)), HoldVerdict.HANGING),
        (None, HoldVerdict.HANGING),
    ],
)
def test_what_is_to_be_thought_of_it(transaction: TransactionState | None, verdict: HoldVerdict) -> None:
    assert judged(HERE, PRODUCER, transaction).verdict is verdict


def test_nothing_hangs_while_somebody_who_may_know_it_was_not_asked() -> None:
    assert judged(HERE, PRODUCER, None, unasked=(3,)).verdict is HoldVerdict.UNKNOWN
    assert judged(HERE, PRODUCER, OPEN, unasked=(3,)).verdict is HoldVerdict.ONGOING


def found(*transactions: TransactionState, unasked: tuple[int, ...] = ()) -> TransactionsFound:
    return TransactionsFound(list(transactions), unasked)


@pytest.mark.parametrize("now", [[], [replace(PRODUCER, start_offset=140)]])
def test_one_that_ended_while_we_looked_does_not_hang(monkeypatch: pytest.MonkeyPatch, now: list[OpenProducer]) -> None:
    """Its leader had it open, its coordinator knows of none: so its marker came in between, if it is over by now."""
    looks = iter([{HERE: [PRODUCER]}, {HERE: now}])
    monkeypatch.setattr(txn_holds, "read_open_producers", lambda *asked: next(looks))
    monkeypatch.setattr(txn_holds, "read_transactions", lambda *asked, **filters: found())
    cluster, there = Cluster("nowhere", {}), object.__new__(txn_holds.PartitionsOfCluster)
    assert txn_holds.read_holders(cluster, there, [HERE]) == {HERE: []}


def test_health_is_silent_about_what_ends_by_itself() -> None:
    (finding,) = findings_of(found(OPEN, after(65_000)), [])
    assert (finding.level, finding.text) == (Level.OK, "2 transactions open, none for too long")
    assert not list(findings_of(found(unasked=(3,)), []))


def test_health_names_what_is_open_for_too_long() -> None:
    (finding,) = findings_of(found(OPEN, after(75_000)), [])
    assert finding.level is Level.PROBLEM
    assert finding.text.startswith("'payments-7' has a transaction open for 1 min 15 s, with a timeout of 1 min")
    many = [replace(after(75_000), transactional_id=f"payments-{number}") for number in range(8)]
    assert len(list(findings_of(found(*many), []))) == 6


def test_health_names_what_hangs() -> None:
    hold = Hold(
        "orders", 0, 1, 100, 96, (Holder(PRODUCER, HoldVerdict.HANGING), Holder(PRODUCER, HoldVerdict.ONGOING, OPEN))
    )
    (finding,) = findings_of(found(OPEN), [hold])
    assert finding.level is Level.PROBLEM
    assert finding.advice == "strandline txn abort --topic-partition orders-0 --start-offset 96"
