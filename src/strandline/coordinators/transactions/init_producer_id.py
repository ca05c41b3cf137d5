"""InitProducerId with a transactional id: the producer gets the id for itself, and its previous owner is fenced.

A request that names a producer id and an epoch (KIP-360) comes from a producer that wants to go on after an error: it
gets the next epoch if it still is the owner, and the same answer again if it lost the first one.

Narrower than Kafka: one that names an epoch of the past does not abort an open transaction. It is fenced, or it is a
late copy of a request whose answer has long arrived.
"""

from __future__ import annotations

from strandline.codec.messages.init_producer_id_request import InitProducerIdRequest
from strandline.codec.messages.init_producer_id_response import InitProducerIdResponse
from strandline.coordinators.transactions.ending import fence
from strandline.coordinators.transactions.events import InitProducerId
from strandline.coordinators.transactions.step_context import TransactionStepContext
from strandline.coordinators.transactions.transaction import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Transaction,
    TransactionStatus,
    is_exhausted,
)
from strandline.errors import ErrorCode


def init_producer_id(event: InitProducerId, step: TransactionStepContext) -> None:
    request = event.request
    transactional_id = request.transactional_id
    if not transactional_id or (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        refuse(event, ErrorCode.INVALID_REQUEST, step)
        return
    if not 0 < request.transaction_timeout_ms <= step.config.timeout_ms_max:
        refuse(event, ErrorCode.INVALID_TRANSACTION_TIMEOUT, step)
        return
    transaction = step.known.by_id.get(transactional_id)
    if transaction is None:
        if not step.needs_producer_ids(1, event):
            begin(first(transactional_id, request, step), event, step)
        return
    code = refusal(transaction, request)
    if code is not ErrorCode.NONE:
        refuse(event, code, step)
    elif transaction.status is TransactionStatus.ONGOING:
        if fence(transaction, event, step, reason="a producer restarted with its transactional id"):
            refuse(event, ErrorCode.CONCURRENT_TRANSACTIONS, step)
    elif is_repeated(transaction, request):
        # No other producer has started since, or the last epoch would not be known any more.
        begin(with_epoch_as_it_is(transaction, request, step), event, step)
    elif not is_exhausted(transaction.producer_epoch):
        begin(with_next_epoch(transaction, request, step), event, step)
    elif not step.needs_producer_ids(1, event):
        begin(rotated(transaction, request, step), event, step)


def refusal(transaction: Transaction, request: InitProducerIdRequest) -> ErrorCode:
    """Return why the producer may not have the id; NONE if it may."""
    if transaction.is_prepared:
        # The markers of its last transaction are under way. The client comes again.
        return ErrorCode.CONCURRENT_TRANSACTIONS
    asked = (request.producer_id, request.producer_epoch)
    if request.producer_id == NO_PRODUCER_ID or asked == (transaction.producer_id, transaction.producer_epoch):
        return ErrorCode.NONE
    # It may have missed the response with its present id and epoch. If a transaction is open with them, it has not.
    may_have_missed = (
        transaction.status is not TransactionStatus.ONGOING
        and request.producer_epoch == transaction.last_producer_epoch
        and (request.producer_id == transaction.producer_id or is_last_of_previous_id(transaction, request))
    )
    return ErrorCode.NONE if may_have_missed else ErrorCode.PRODUCER_FENCED


def is_last_of_previous_id(transaction: Transaction, request: InitProducerIdRequest) -> bool:
    """The id was changed when its epochs were used up, not before."""
    return request.producer_id == transaction.previous_producer_id and is_exhausted(request.producer_epoch)


def is_repeated(transaction: Transaction, request: InitProducerIdRequest) -> bool:
    """Whether what is asked for has happened: this was answered before, or the end of a transaction raised the epoch,
    and the answer got lost."""
    asked = (request.producer_id, request.producer_epoch)
    return request.producer_id != NO_PRODUCER_ID and asked != (transaction.producer_id, transaction.producer_epoch)


def first(transactional_id: str, request: InitProducerIdRequest, step: TransactionStepContext) -> Transaction:
    return Transaction(
        transactional_id=transactional_id,
        producer_id=step.take_producer_id(),
        producer_epoch=0,
        timeout_ms=request.transaction_timeout_ms,
        last_update_ms=step.now_ms,
    )


def with_next_epoch(
    transaction: Transaction, request: InitProducerIdRequest, step: TransactionStepContext
) -> Transaction:
    return transaction.with_epoch(
        transaction.producer_epoch + 1,
        last_epoch=NO_PRODUCER_EPOCH if request.producer_id == NO_PRODUCER_ID else transaction.producer_epoch,
        timeout_ms=request.transaction_timeout_ms,
        now_ms=step.now_ms,
    )


def with_epoch_as_it_is(
    transaction: Transaction, request: InitProducerIdRequest, step: TransactionStepContext
) -> Transaction:
    return transaction.with_epoch(
        transaction.producer_epoch,
        last_epoch=transaction.last_producer_epoch,
        timeout_ms=request.transaction_timeout_ms,
        now_ms=step.now_ms,
    )


def rotated(transaction: Transaction, request: InitProducerIdRequest, step: TransactionStepContext) -> Transaction:
    return transaction.with_epoch(
        0,
        producer_id=step.take_producer_id(),
        last_epoch=NO_PRODUCER_EPOCH if request.producer_id == NO_PRODUCER_ID else transaction.producer_epoch,
        timeout_ms=request.transaction_timeout_ms,
        now_ms=step.now_ms,
    )


def begin(transaction: Transaction, event: InitProducerId, step: TransactionStepContext) -> None:
    step.put(transaction)
    step.known.clients[transaction.transactional_id] = (event.client_id, event.client_host)
    step.reply(
        event.token,
        InitProducerIdResponse(producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch),
    )


def refuse(event: InitProducerId, code: ErrorCode, step: TransactionStepContext) -> None:
    step.reply(
        event.token,
        InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH),
    )
