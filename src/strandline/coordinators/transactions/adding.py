"""Partitions become part of a transaction before anything is written to them; with the first one it begins.

While the markers of the last transaction are under way, the next one cannot begin. Kafka says CONCURRENT_TRANSACTIONS,
and the client backs off and asks again. Markers take milliseconds, a back-off takes twenty and more. So here such a
request is parked until the last marker is written, for `PARKED_MS_MAX` at the most, and not at all if they have taken
that long already, because then a partition has no leader.
"""

from __future__ import annotations

from typing import Final

from strandline.coordinators.transactions.events import (
    AddPartitions,
    PartitionCodes,
    TransactionTimer,
    TransactionTimerKind,
)
from strandline.coordinators.transactions.step_context import TransactionStepContext
from strandline.coordinators.transactions.transaction import Transaction, TransactionStatus
from strandline.errors import ErrorCode

PARKED_MS_MAX: Final = 1_000
"""How long a request waits for the markers of the transaction before. Well below any client's request timeout."""
PARKED_REQUESTS_MAX: Final = 10_000
"""Parked requests of one shard; more are rejected and retried."""


def add_partitions(event: AddPartitions, step: TransactionStepContext) -> None:
    if not event.transactional_id:
        answer(event, ErrorCode.INVALID_REQUEST, step)
        return
    transaction = step.known.by_id.get(event.transactional_id)
    if transaction is None:
        answer(event, ErrorCode.INVALID_PRODUCER_ID_MAPPING, step)
    elif event.verify_only:
        verify(transaction, event, step)
    elif transaction.is_prepared and transaction.identity_after == (event.producer_id, event.producer_epoch):
        park(transaction, event, step)
    elif (code := refusal(transaction, event)) is not ErrorCode.NONE:
        answer(event, code, step)
    elif is_part(transaction, event):
        answer(event, ErrorCode.NONE, step)
    else:
        add(transaction, event, step)


def refusal(transaction: Transaction, event: AddPartitions) -> ErrorCode:
    if event.producer_id != transaction.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if event.producer_epoch != transaction.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.CONCURRENT_TRANSACTIONS if transaction.is_prepared else ErrorCode.NONE


def is_part(transaction: Transaction, event: AddPartitions) -> bool:
    return transaction.status is TransactionStatus.ONGOING and all(
        partition in transaction.partitions for partition in event.partitions
    )


def add(transaction: Transaction, event: AddPartitions, step: TransactionStepContext) -> None:
    added = transaction.with_partitions(event.partitions, now_ms=step.now_ms)
    if not step.maybe_put(added):
        # What Kafka says of a record beyond the limit of its topic.
        answer(event, ErrorCode.UNKNOWN_SERVER_ERROR, step)
        return
    if transaction.status is not TransactionStatus.ONGOING:
        # Restarted with every transaction and never cancelled, because that costs the driver next to nothing.
        key = TransactionTimer(TransactionTimerKind.TIMEOUT, added.transactional_id)
        step.start_timer(key, added.timeout_ms)
    answer(event, ErrorCode.NONE, step)


def verify(transaction: Transaction, event: AddPartitions, step: TransactionStepContext) -> None:
    """Answer the leader of a partition, which asks before it appends the first records of a transaction (KIP-890)."""
    code = refusal(transaction, event)
    if code is not ErrorCode.NONE:
        answer(event, code, step)
        return
    codes: PartitionCodes = {
        partition: ErrorCode.NONE if partition in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for partition in event.partitions
    }
    step.reply(event.token, codes)


def answer(event: AddPartitions, code: ErrorCode, step: TransactionStepContext) -> None:
    codes: PartitionCodes = dict.fromkeys(event.partitions, code)
    step.reply(event.token, codes)


# ---- those who wait for the markers of the transaction before


def park(transaction: Transaction, event: AddPartitions, step: TransactionStepContext) -> None:
    known = step.known
    # Markers that are this late may take much longer. A request that waits for them delays all other partitions that
    # a broker asked for with it.
    is_late = step.now_ms - transaction.last_update_ms >= PARKED_MS_MAX
    if is_late or known.parked_count >= PARKED_REQUESTS_MAX:
        answer(event, ErrorCode.CONCURRENT_TRANSACTIONS, step)
        return
    known.parked_count += 1
    waiting = known.parked.setdefault(event.transactional_id, [])
    waiting.append(event)
    if len(waiting) == 1:
        step.start_timer(TransactionTimer(TransactionTimerKind.PARKED, event.transactional_id), PARKED_MS_MAX)


def unpark(transactional_id: str, step: TransactionStepContext) -> list[AddPartitions]:
    waiting = step.known.parked.pop(transactional_id, [])
    step.known.parked_count -= len(waiting)
    return waiting


def on_completed(transactional_id: str, step: TransactionStepContext) -> None:
    """Start the next transaction with the parked requests, because the markers are written."""
    for event in unpark(transactional_id, step):
        add_partitions(event, step)


def on_parked_too_long(transactional_id: str, step: TransactionStepContext) -> None:
    for event in unpark(transactional_id, step):
        answer(event, ErrorCode.CONCURRENT_TRANSACTIONS, step)
