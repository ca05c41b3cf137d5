"""Checks of transactional batches, and of the markers that end transactions.

Every check is Kafka's, in Kafka's order; each raises before anything has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NoReturn

from strandline.codec.record_batch import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    CONTROL,
    LAST_OFFSET_DELTA,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    HeaderFields,
)
from strandline.errors import ErrorCode, InvalidBatch, InvalidProducerEpoch, OutOfOrderSequence, RequestError
from strandline.partition.verification import VerificationGuard

if TYPE_CHECKING:
    from strandline.partition.producers import Producers

EPOCH_MAX: Final = 32767
STRICT_EPOCHS_FROM: Final = 2
"""Since this transaction.version every transaction has an epoch of its own."""


def refuse_kind(header: HeaderFields, guard: VerificationGuard | None) -> NoReturn:
    """Raise the error for a batch that a client may not send. `guard` is None if its request names no transaction."""
    if header[ATTRIBUTES] & CONTROL:
        raise InvalidBatch("clients may not write control batches")
    if guard is None:
        raise RequestError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactional records outside a transaction"
        )
    raise InvalidBatch("transactional records without a producer id")


def check_outside(producers: Producers, header: HeaderFields) -> int | None:
    """Check a batch outside a transaction while others are open. Return None if it may be appended, or the base offset
    of the batch that it duplicates."""
    producer_id, base_sequence = header[PRODUCER_ID], header[BASE_SEQUENCE]
    last_sequence = (base_sequence + header[LAST_OFFSET_DELTA]) & 0x7FFFFFFF
    known = producers.check(producer_id, header[PRODUCER_EPOCH], base_sequence, last_sequence)
    if known is None and producer_id in producers.open_transactions:
        raise RequestError(
            ErrorCode.INVALID_TXN_STATE, f"producer {producer_id} has a transaction open and sent records outside it"
        )
    return known


def check_beginning(
    producers: Producers, header: HeaderFields, guard: VerificationGuard | None, *, verifies: Callable[[], bool]
) -> int | None:
    """Do the same for a batch that may begin its transaction here."""
    producer_id, epoch, base_sequence = header[PRODUCER_ID], header[PRODUCER_EPOCH], header[BASE_SEQUENCE]
    last_sequence = (base_sequence + header[LAST_OFFSET_DELTA]) & 0x7FFFFFFF
    entry = producers.entries.get(producer_id)
    if entry is not None and entry.epoch == epoch:
        known = entry.find(base_sequence, last_sequence)
        if known is not None:
            return known
    check_verified(producers, producer_id, epoch, guard, verifies=verifies)
    begun = producers.verifications.guards.get(producer_id)
    if begun is not None and (
        base_sequence > begun.lowest_sequence
        or (begun.supports_epoch_bump and base_sequence and (entry is None or not entry.recent))
    ):
        raise OutOfOrderSequence(
            f"producer {producer_id} sent sequence {base_sequence}; its transaction has to begin here with "
            f"{0 if begun.supports_epoch_bump else begun.lowest_sequence}"
        )
    return producers.check(producer_id, epoch, base_sequence, last_sequence)


def check_verified(
    producers: Producers, producer_id: int, epoch: int, guard: VerificationGuard | None, *, verifies: Callable[[], bool]
) -> None:
    """Check that a transaction may begin here: its coordinator confirmed it, and no marker came since."""
    check_epoch(producers, producer_id, epoch)
    if (guard is None or producers.verifications.guards.get(producer_id) is not guard) and verifies():
        raise RequestError(
            ErrorCode.INVALID_TXN_STATE, f"the records of producer {producer_id} are not part of an open transaction"
        )


def check_epoch(producers: Producers, producer_id: int, epoch: int) -> None:
    entry = producers.entries.get(producer_id)
    if entry is not None and epoch < entry.epoch:
        raise InvalidProducerEpoch(f"producer {producer_id} sent epoch {epoch}; {entry.epoch} is current")


def check_marker(
    producers: Producers, producer_id: int, epoch: int, *, coordinator_epoch: int, transaction_version: int
) -> None:
    """Check that a marker may be appended.

    From version 2 on a marker carries an epoch that no batch of its transaction had. A retry, because the answer was
    lost, finds its own epoch and no open transaction: it is written once more, and ends nothing (KAFKA-19999). The last
    epoch cannot be bumped.
    """
    entry = producers.entries.get(producer_id)
    if entry is None:
        return
    is_retry = epoch == entry.epoch and (producer_id not in producers.open_transactions or epoch == EPOCH_MAX)
    is_old = epoch <= entry.epoch if transaction_version >= STRICT_EPOCHS_FROM else epoch < entry.epoch
    if is_old and not is_retry:
        raise InvalidProducerEpoch(
            f"a marker for producer {producer_id} has epoch {epoch}, the producer {entry.epoch} "
            f"(transaction.version {transaction_version})"
        )
    if coordinator_epoch < entry.coordinator_epoch:
        raise RequestError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"a marker for producer {producer_id} is of coordinator epoch {coordinator_epoch}; "
            f"{entry.coordinator_epoch} is current",
        )
