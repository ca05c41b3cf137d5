"""The broker's settings that transactions obey, with Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    timeout_ms_max: int = 900_000
    """`transaction.max.timeout.ms`"""
    id_expiration_ms: int = 7 * 24 * 60 * 60_000
    """`transactional.id.expiration.ms`"""
    id_expiration_check_interval_ms: int = 3_600_000
    """`transaction.remove.expired.transaction.cleanup.interval.ms`"""
    transaction_version: int = 2
    """The finalised level of `transaction.version`: 0 writes records that every Kafka reads, 1 and 2 tagged fields."""
    record_bytes_max: int = 1_000_000
    """A transaction with all its partitions is one record, and Kafka's default `max.message.bytes` is a little more."""
