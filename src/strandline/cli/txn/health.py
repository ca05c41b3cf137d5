"""What `cluster health` says of transactions: those that hold readers back for longer than they may."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from strandline.cli.common.client import Cluster
from strandline.cli.common.conversation import is_spoken
from strandline.cli.common.failures import CommandFailed
from strandline.cli.common.plain_words import count
from strandline.cli.doctor.findings import Finding, note, ok, problem
from strandline.cli.txn.holds import read_holds
from strandline.cli.txn.reading import TransactionsFound, read_transactions
from strandline.cli.txn.state import OPEN, Hold, HoldVerdict, TransactionState
from strandline.lag.verdict import span

CHECK = "transactions"
TIMEOUT_S = 3.0
"""A broker that is down or hangs does not keep the rest from being told."""
NAMED = 5


def transaction_findings(cluster: Cluster) -> Iterator[Finding]:
    """Asked of the cluster; nothing is said where it does not tell."""
    if not is_spoken(cluster):
        return
    cluster = replace(cluster, timeout_s=min(TIMEOUT_S, cluster.timeout_s))
    try:
        found = read_transactions(cluster, states=OPEN)
        holds = read_holds(cluster, lambda there: list(there.leaders), held_only=True)
    except CommandFailed as failure:
        yield note(CHECK, f"the state of transactions is unknown: {failure.message}")
        return
    yield from findings_of(found, holds)


def findings_of(found: TransactionsFound, holds: Iterable[Hold]) -> Iterator[Finding]:
    """The same of what was read (pure)."""
    overdue = [each for each in found.transactions if each.is_overdue]
    for each in overdue[:NAMED]:
        yield problem(CHECK, _overdue_words(each), _advice(each))
    if len(overdue) > NAMED:
        yield problem(CHECK, f"{len(overdue) - NAMED:,} more are open for too long", "strandline txn list --state open")
    hanging = [(hold, holder) for hold in holds for holder in hold.holders if holder.verdict is HoldVerdict.HANGING]
    for hold, holder in hanging[:NAMED]:
        producer = holder.producer
        yield problem(
            CHECK,
            f"{hold.name} holds back {count(hold.held_back, 'record')}: a transaction of producer "
            f"{producer.producer_id} hangs there from offset {producer.start_offset:,} on, and no coordinator knows it",
            f"strandline txn abort --topic-partition {hold.name} --start-offset {producer.start_offset}",
        )
    if len(hanging) > NAMED:
        yield problem(CHECK, f"{len(hanging) - NAMED:,} more hang", "strandline txn why")
    if not overdue and not hanging and not found.unasked:
        number = len(found.transactions)
        words = f"{count(number, 'transaction')} open, none for too long" if number else "no transaction is open"
        yield ok(CHECK, words)


def _overdue_words(transaction: TransactionState) -> str:
    age = span((transaction.age_ms or 0) / 1000)
    return (
        f"{transaction.transactional_id!r} has a transaction open for {age}, with a timeout of "
        f"{span(transaction.timeout_ms / 1000)} ({transaction.state}): {transaction.ends}"
    )


def _advice(transaction: TransactionState) -> str:
    if transaction.waiting:
        return "bring back the brokers that lead these partitions"
    return f"look at the log of node {transaction.coordinator}; strandline txn abort {transaction.transactional_id}"
