"""The broker's settings as transactions use them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from strandline.config.transaction_settings import TransactionSettings

_DEFAULTS: Final = TransactionSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """The settings of all transactions that a broker coordinates. Defaults are those of the table of settings."""

    timeout_ms_max: int = _DEFAULTS.transaction_max_timeout_ms
    id_expiration_ms: int = _DEFAULTS.transactional_id_expiration_ms
    id_expiration_check_interval_ms: int = _DEFAULTS.transaction_remove_expired_transaction_cleanup_interval_ms
    transaction_version: int = 2
    """The finalised level of `transaction.version`: 0 writes records that every Kafka reads, 1 and 2 tagged fields."""
    record_bytes_max: int = 1_000_000
    """The size of the one record with all partitions of a transaction, a little below Kafka's `max.message.bytes`."""
