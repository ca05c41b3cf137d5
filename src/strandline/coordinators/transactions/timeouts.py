"""Timeouts: a transaction that is open for too long is aborted, an unused transactional id is removed.

Each open transaction has a timer of its own, so it is aborted when its time is over and not up to
`transaction.abort.timed.out.transaction.cleanup.interval.ms` later. A clock that is set changes nothing: the timer
counts, not the time of day. A coordinator that takes over goes by the time in the log, but never longer than the
timeout.

An id goes, with a tombstone, when nothing has happened to it for `transactional.id.expiration.ms`; never one with a
transaction that is not complete. A round looks at every id of the shard, a part in each step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from strandline.coordinators.transactions.ending import fence, spread
from strandline.coordinators.transactions.events import TransactionTimer, TransactionTimerKind
from strandline.coordinators.transactions.step_context import OverdueTransaction, TransactionStepContext
from strandline.coordinators.transactions.transaction import UNFINISHED, Transaction, TransactionStatus
from strandline.coordinators.transactions.transaction_records import tombstone

IDS_PER_STEP_MAX: Final = 2_000
"""Transactional ids that are looked at in one step of a round."""
RESUMED_PER_STEP_MAX: Final = 200
"""Unfinished transactions that a new coordinator goes on with in one step."""
NO_ID_RETRY_MS: Final = 1_000
"""How soon an abort that found no producer id to be had is tried again."""

EXPIRY_KEY: Final = TransactionTimer(TransactionTimerKind.EXPIRY, "")
RESUME_KEY: Final = TransactionTimer(TransactionTimerKind.RESUME, "")


# ---- transactions


def on_timeout(transactional_id: str, step: TransactionStepContext) -> None:
    transaction = step.known.by_id.get(transactional_id)
    if transaction is not None and transaction.status is TransactionStatus.ONGOING:
        work = OverdueTransaction(transactional_id, transaction.producer_id, transaction.producer_epoch)
        reason = f"it was open for longer than its timeout of {transaction.timeout_ms} ms"
        fence(transaction, work, step, reason=reason)


def on_producer_id(work: OverdueTransaction, step: TransactionStepContext) -> None:
    if is_open(work, step):
        on_timeout(work.transactional_id, step)


def on_no_producer_id(work: OverdueTransaction, step: TransactionStepContext) -> None:
    if is_open(work, step):
        step.start_timer(TransactionTimer(TransactionTimerKind.TIMEOUT, work.transactional_id), NO_ID_RETRY_MS)


def is_open(work: OverdueTransaction, step: TransactionStepContext) -> bool:
    """Return whether this transaction is still open. The next one of its producer has another epoch."""
    transaction = step.known.by_id.get(work.transactional_id)
    return (
        transaction is not None
        and transaction.status is TransactionStatus.ONGOING
        and (transaction.producer_id, transaction.producer_epoch) == (work.producer_id, work.producer_epoch)
    )


class Resuming:
    """The transactions that were incomplete when this coordinator took over, even if no producer asks for them."""

    def __init__(self) -> None:
        self._left: deque[str] = deque()

    def start(self, transactions: Iterable[Transaction], step: TransactionStepContext) -> None:
        self._left.extend(each.transactional_id for each in transactions if each.status in UNFINISHED)
        self.resume_some(step)

    def resume_some(self, step: TransactionStepContext) -> None:
        for _ in range(min(len(self._left), RESUMED_PER_STEP_MAX)):
            transaction = step.known.by_id.get(self._left.popleft())
            if transaction is None:
                # Complete by now, and gone with its sink.
                continue
            if transaction.status is TransactionStatus.ONGOING:
                remaining_ms = transaction.start_ms + transaction.timeout_ms - step.now_ms
                step.start_timer(
                    TransactionTimer(TransactionTimerKind.TIMEOUT, transaction.transactional_id),
                    min(max(remaining_ms, 0), transaction.timeout_ms),
                )
            elif is_stuck(transaction, step):
                spread(transaction, step)
        if self._left:
            step.start_timer(RESUME_KEY, 0)


def is_stuck(transaction: Transaction, step: TransactionStepContext) -> bool:
    """Return whether the transaction is decided in the log and its markers are not being written."""
    known = step.known
    return (
        transaction.is_prepared
        and transaction.transactional_id not in known.awaited
        and transaction.transactional_id not in known.unrolled
    )


# ---- transactional ids


class TransactionalIdExpiry:
    """How far the present round has got."""

    def __init__(self) -> None:
        self._left: deque[str] = deque()

    def start(self, step: TransactionStepContext) -> None:
        step.start_timer(EXPIRY_KEY, step.config.id_expiration_check_interval_ms)

    def on_timer(self, step: TransactionStepContext) -> None:
        known = step.known
        if not self._left:
            self._left.extend(known.by_id)
        for _ in range(min(len(self._left), IDS_PER_STEP_MAX)):
            transaction = known.by_id.get(self._left.popleft())
            if transaction is not None and is_expired(transaction, step):
                # One by one: together they may be more than a batch holds, and nothing says that all must go at once.
                step.append(tombstone(transaction.transactional_id))
                known.forget(transaction.transactional_id)
        if self._left:
            step.start_timer(EXPIRY_KEY, 0)
        else:
            self.start(step)


def is_expired(transaction: Transaction, step: TransactionStepContext) -> bool:
    return (
        transaction.status not in UNFINISHED
        and step.now_ms - transaction.last_update_ms >= step.config.id_expiration_ms
    )
