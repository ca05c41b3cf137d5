"""The end of transactions: the decision, the markers that make it known, and the record that all of them are written.

`decide` is the one place where transactions are decided, one or many: by EndTxn, by a timeout, or by a producer that
takes over the id. A decision is final. A coordinator that finds one in its log continues from there. Only sinks decide
for themselves (`batches`): their transactions are not committed by EndTxn.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.codec.messages.end_txn_response import EndTxnResponse
from strandline.coordinators.transactions.events import EndTransaction, MarkersWritten
from strandline.coordinators.transactions.step_context import Postponed, TransactionStepContext
from strandline.coordinators.transactions.transaction import (
    COMPLETED,
    EPOCH_LAST,
    NO_PRODUCER_ID,
    Transaction,
    TransactionStatus,
    is_exhausted,
)
from strandline.errors import ErrorCode
from strandline.ids import sink_of

VERSION_WITH_EPOCHS = 2
"""The version of transactions from which each decision raises the epoch."""


# ---- the decision


def decide(
    step: TransactionStepContext, transactions: Sequence[Transaction], *, is_commit: bool, transaction_version: int
) -> None:
    """Commit or abort all of these, by one append. The caller has seen to their producer ids (`needs_producer_ids`)."""
    decided = []
    for transaction in transactions:
        rotates = must_rotate(transaction, transaction_version)
        decided.append(
            transaction.prepared(
                is_commit=is_commit,
                transaction_version=transaction_version,
                now_ms=step.now_ms,
                next_producer_id=step.take_producer_id() if rotates else NO_PRODUCER_ID,
            )
        )
    step.put(*decided)
    for transaction in decided:
        spread(transaction, step)


def must_rotate(transaction: Transaction, transaction_version: int) -> bool:
    """Return whether the epochs of its producer id end with this transaction, so that the next one needs another id."""
    return transaction_version >= VERSION_WITH_EPOCHS and is_exhausted(transaction.producer_epoch)


def spread(transaction: Transaction, step: TransactionStepContext) -> None:
    """Have the markers of a decision written; again, if a coordinator before us may have begun."""
    if transaction.partitions:
        step.send_markers(transaction)
    else:
        complete(transaction, step)


def fence(transaction: Transaction, work: Postponed, step: TransactionStepContext, *, reason: str) -> bool:
    """Abort an open transaction with an epoch that locks its producer out.

    False if that has to wait for a producer id; `work` is begun again then.
    """
    version = step.config.transaction_version
    if version < VERSION_WITH_EPOCHS:
        decide(step, [transaction.fenced()], is_commit=False, transaction_version=0)
    elif must_rotate(transaction, version) and step.needs_producer_ids(1, work):
        return False
    else:
        decide(step, [transaction], is_commit=False, transaction_version=version)
    step.tell(
        f"transaction of {transaction.transactional_id} aborted: {reason}",
        {
            "transactional_id": transaction.transactional_id,
            "producer_id": transaction.producer_id,
            "producer_epoch": transaction.producer_epoch,
            "open_ms": step.now_ms - transaction.start_ms,
            "partitions": len(transaction.partitions),
        },
    )
    return True


# ---- EndTxn


def end(event: EndTransaction, step: TransactionStepContext) -> None:
    transaction = step.known.by_id.get(event.transactional_id)
    if not event.transactional_id:
        refuse(event, ErrorCode.INVALID_REQUEST, step)
        return
    if transaction is None:
        refuse(event, ErrorCode.INVALID_PRODUCER_ID_MAPPING, step)
        return
    # Whatever the level of the cluster is by now: after each end such a client begins with sequence 0, and in the epoch
    # that it had, partitions would take that for repetitions.
    version = event.transaction_version
    has_epochs = version >= VERSION_WITH_EPOCHS
    verdict = verdict_with_epochs(transaction, event) if has_epochs else verdict_before_epochs(transaction, event)
    if has_epochs and was_committed_by_sink(transaction, event):
        if not event.is_commit:
            refuse(event, ErrorCode.INVALID_TXN_STATE, step)
        elif not (must_rotate(transaction, version) and step.needs_producer_ids(1, event)):
            raise_epoch(transaction, event, step)
    elif verdict is ErrorCode.NONE:
        # It has happened, and the answer was lost.
        answer(event, (transaction.producer_id, transaction.producer_epoch), step)
    elif verdict is not None:
        refuse(event, verdict, step)
    elif event.is_commit and sink_of(event.transactional_id) is not None:
        # Whether it counts is for the driver of its sink to say, who knows which attempts make up a batch.
        refuse(event, ErrorCode.INVALID_TXN_STATE, step)
    elif not (must_rotate(transaction, version) and step.needs_producer_ids(1, event)):
        decide(step, [transaction], is_commit=event.is_commit, transaction_version=version if has_epochs else 0)
        answer(event, step.known.by_id[event.transactional_id].identity_after, step)


def verdict_before_epochs(transaction: Transaction, event: EndTransaction) -> ErrorCode | None:
    """Return None to decide it, NONE for a repeated decision, else what is wrong; versions 0 and 1.

    The epoch stays the same over many transactions, so nothing tells a late EndTxn from one of the next transaction.
    """
    if event.producer_id != transaction.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if event.producer_epoch != transaction.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if transaction.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if transaction.status is TransactionStatus.ONGOING:
        return None
    is_same = transaction.status in COMPLETED and transaction.is_commit == event.is_commit
    return ErrorCode.NONE if is_same else ErrorCode.INVALID_TXN_STATE


def verdict_with_epochs(transaction: Transaction, event: EndTransaction) -> ErrorCode | None:
    """Return None to decide it, NONE for a repeated decision, else what is wrong; version 2.

    With the epoch before the present one it is the EndTxn of the last transaction once more; it never touches the
    present one. With the present epoch and no open transaction, an abort only raises the epoch: its client may have
    sent records that are still on their way, and does not know whether they began a transaction.
    """
    is_retry = is_repeated(transaction, event)
    if transaction.is_prepared:
        # Before the epochs are looked at: the client goes on with the next epoch before the markers are written.
        is_known = event.producer_id in (transaction.producer_id, transaction.next_producer_id)
        return ErrorCode.CONCURRENT_TRANSACTIONS if is_known else ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if event.producer_id != transaction.producer_id and not is_retry:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    # With a decision that raised no epoch none ended: the one before was another producer's.
    is_raised = transaction.transaction_version >= VERSION_WITH_EPOCHS
    if transaction.status in COMPLETED and is_retry and is_raised:
        return ErrorCode.NONE if transaction.is_commit == event.is_commit else ErrorCode.INVALID_TXN_STATE
    if event.producer_epoch != transaction.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if transaction.status is TransactionStatus.ONGOING or not event.is_commit:
        return None
    return ErrorCode.INVALID_TXN_STATE


def is_repeated(transaction: Transaction, event: EndTransaction) -> bool:
    """Return whether it names the epoch that ended with the last decision, of this producer id or the last."""
    if event.producer_id == transaction.producer_id:
        return event.producer_epoch == transaction.producer_epoch - 1
    return (
        event.producer_id == transaction.previous_producer_id
        and event.producer_epoch == EPOCH_LAST - 1
        and transaction.producer_epoch == 0
    )


def was_committed_by_sink(transaction: Transaction, event: EndTransaction) -> bool:
    """Return whether this EndTxn of version 2 is about a transaction that was committed meanwhile.

    Its sink decided that, and raised no epoch, since there are producers that would not go on with another one. Who
    asks for a commit hears the next epoch now; so in the present one there never is another transaction.
    """
    return (
        transaction.status is TransactionStatus.COMPLETE_COMMIT
        and transaction.transaction_version < VERSION_WITH_EPOCHS
        and (event.producer_id, event.producer_epoch) == (transaction.producer_id, transaction.producer_epoch)
        and sink_of(transaction.transactional_id) is not None
    )


def raise_epoch(transaction: Transaction, event: EndTransaction, step: TransactionStepContext) -> None:
    """What the decision would have done, had it been this EndTxn: such a producer goes on with sequence 0."""
    rotates = must_rotate(transaction, event.transaction_version)
    prepared = transaction.prepared(
        is_commit=True,
        transaction_version=event.transaction_version,
        now_ms=step.now_ms,
        next_producer_id=step.take_producer_id() if rotates else NO_PRODUCER_ID,
    )
    step.put(prepared.completed(now_ms=step.now_ms))
    answer(event, prepared.identity_after, step)


def answer(event: EndTransaction, identity: tuple[int, int], step: TransactionStepContext) -> None:
    producer_id, producer_epoch = identity
    step.reply(event.token, EndTxnResponse(producer_id=producer_id, producer_epoch=producer_epoch))


def refuse(event: EndTransaction, code: ErrorCode, step: TransactionStepContext) -> None:
    step.reply(event.token, EndTxnResponse(error_code=code))


# ---- the markers


def markers_written(event: MarkersWritten, step: TransactionStepContext) -> Transaction | None:
    """Note which partitions have their marker; the transaction, if it is complete with that."""
    awaited = step.known.awaited.get(event.transactional_id)
    # Late news of an earlier decision say nothing about this one.
    if awaited is None or awaited.decision != event.decision:
        return None
    for partition in event.partitions:
        awaited.partitions.pop(partition, None)
    if awaited.partitions:
        return None
    transaction = step.known.by_id[event.transactional_id]
    complete(transaction, step)
    return transaction


def complete(transaction: Transaction, step: TransactionStepContext) -> None:
    step.known.awaited.pop(transaction.transactional_id, None)
    step.put(transaction.completed(now_ms=step.now_ms))
