"""Transactions as records of `__transaction_state`, in Kafka's format: the whole of a transaction in one record.

Version 0 of the value, written while `transaction.version` is 0, has no room for the previous and the next producer id,
nor for the epoch before; they are lost when another coordinator takes over. So it is in Kafka.
"""

from __future__ import annotations

from strandline.codec.internal_records import (
    TRANSACTION_STATE,
    decode_coordinator_record,
    encode_coordinator_key,
    encode_coordinator_value,
)
from strandline.codec.messages.transaction_log_key import TransactionLogKey
from strandline.codec.messages.transaction_log_value import PartitionsSchema, TransactionLogValue
from strandline.coordinators.groups.shard_terms import CoordinatorRecord
from strandline.coordinators.transactions.transaction import Transaction, TransactionStatus
from strandline.errors import MalformedMessage
from strandline.ids import TopicPartition


def transaction_record(transaction: Transaction, *, transaction_version: int) -> CoordinatorRecord:
    """Return the record, with the tagged fields that the level of `transaction.version` allows."""
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.status,
        transaction_partitions=(
            None if transaction.status is TransactionStatus.EMPTY else by_topic(transaction.partitions)
        ),
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )
    if transaction_version > 0:
        value.previous_producer_id = transaction.previous_producer_id
        value.next_producer_id = transaction.next_producer_id
        value.last_producer_epoch = transaction.last_producer_epoch
        value.client_transaction_version = transaction.transaction_version
    version = 1 if transaction_version > 0 else 0
    return CoordinatorRecord(key_of(transaction.transactional_id), encode_coordinator_value(value, version))


def tombstone(transactional_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(key_of(transactional_id), None)


def key_of(transactional_id: str) -> bytes:
    return encode_coordinator_key(TransactionLogKey(transactional_id=transactional_id))


def by_topic(partitions: dict[TopicPartition, None]) -> list[PartitionsSchema]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return [PartitionsSchema(topic=topic, partition_ids=indexes) for topic, indexes in topics.items()]


def decode_transaction(key: bytes, value: bytes | None) -> tuple[str, Transaction | None]:
    """Return the transactional id and its state; None deletes the id.

    Raises UnknownRecord for one of a newer broker, MalformedMessage for a malformed one.
    """
    key_message, value_message = decode_coordinator_record(key, value, topic=TRANSACTION_STATE)
    assert isinstance(key_message, TransactionLogKey)
    transactional_id = key_message.transactional_id
    if value_message is None:
        return transactional_id, None
    assert isinstance(value_message, TransactionLogValue)
    return transactional_id, _transaction(transactional_id, value_message)


def _transaction(transactional_id: str, value: TransactionLogValue) -> Transaction | None:
    try:
        status = TransactionStatus(value.transaction_status)
    except ValueError:
        raise MalformedMessage(f"a transaction in the unknown state {value.transaction_status}") from None
    if status is TransactionStatus.DEAD:
        return None
    if status is TransactionStatus.PREPARE_EPOCH_FENCE:
        raise MalformedMessage("a transaction in a state that is never written")
    return Transaction(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        status=status,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        last_producer_epoch=value.last_producer_epoch,
        partitions={
            TopicPartition(topic.topic, partition): None
            for topic in value.transaction_partitions or ()
            for partition in topic.partition_ids
        },
        start_ms=value.transaction_start_timestamp_ms,
        transaction_version=value.client_transaction_version,
    )
