"""Transactions as others see them: DescribeTransactions and ListTransactions."""

from __future__ import annotations

from strandline.codec.messages.describe_transactions_response import TopicData
from strandline.codec.messages.describe_transactions_response import TransactionState as DescribedTransaction
from strandline.codec.messages.list_transactions_response import ListTransactionsResponse
from strandline.codec.messages.list_transactions_response import TransactionState as ListedTransaction
from strandline.coordinators.transactions.events import DescribeTransaction, ListTransactions
from strandline.coordinators.transactions.step_context import TransactionStepContext
from strandline.coordinators.transactions.transaction import STATUS_OF_TITLE, Transaction
from strandline.coordinators.transactions.transaction_records import by_topic
from strandline.errors import ErrorCode


def describe(event: DescribeTransaction, step: TransactionStepContext) -> None:
    transaction = step.known.by_id.get(event.transactional_id)
    if transaction is None:
        is_named = bool(event.transactional_id)
        code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if is_named else ErrorCode.INVALID_REQUEST
        step.reply(event.token, DescribedTransaction(error_code=code, transactional_id=event.transactional_id))
        return
    # Tools that look for hanging transactions expect that a partition with its marker is not listed any more.
    awaited = step.known.awaited.get(event.transactional_id)
    partitions = transaction.partitions if awaited is None else awaited.partitions
    step.reply(
        event.token,
        DescribedTransaction(
            transactional_id=transaction.transactional_id,
            transaction_state=transaction.status.title,
            transaction_timeout_ms=transaction.timeout_ms,
            transaction_start_time_ms=transaction.start_ms,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            topics=[TopicData(topic=topic.topic, partitions=topic.partition_ids) for topic in by_topic(partitions)],
        ),
    )


def list_transactions(event: ListTransactions, step: TransactionStepContext) -> None:
    known = step.known.by_id
    asked = [known[transactional_id] for transactional_id in event.transactional_ids if transactional_id in known]
    response = ListTransactionsResponse(
        unknown_state_filters=[title for title in event.states if title not in STATUS_OF_TITLE],
        transaction_states=[
            ListedTransaction(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.status.title,
            )
            for transaction in asked
            if passes(transaction, event, step.now_ms)
        ],
    )
    step.reply(event.token, response)


def passes(transaction: Transaction, event: ListTransactions, now_ms: int) -> bool:
    if event.producer_ids and transaction.producer_id not in event.producer_ids:
        return False
    if event.states and transaction.status.title not in event.states:
        return False
    if event.duration_ms >= 0 and now_ms - transaction.start_ms <= event.duration_ms:
        return False
    return event.pattern is None or event.pattern(transaction.transactional_id)
