"""Beginning a transaction at a partition, with a guard, and ending it, with a marker."""

from __future__ import annotations

from strandline.codec.record_batch import (
    HEADER,
    HeaderFields,
    stamp_append_time,
)
from strandline.codec.transaction_marker import encode_marker
from strandline.log.log_replay import learn_marker
from strandline.log.segment.segment_counts import count_marker
from strandline.partition.delayed_operations import OnCommitted
from strandline.partition.partition import Partition
from strandline.partition.transactions import check_epoch, check_marker
from strandline.partition.verification import ONGOING, VerificationGuard


def append_marker(
    partition: Partition,
    producer_id: int,
    producer_epoch: int,
    *,
    is_commit: bool,
    coordinator_epoch: int,
    transaction_version: int,
    now_ms: int,
    on_committed: OnCommitted,
) -> None:
    """End the producer's transaction here, as its coordinator decided, and call back when that is committed.

    Raises StrandlineError with nothing changed: InvalidProducerEpoch, or the code TRANSACTION_COORDINATOR_FENCED or
    NOT_ENOUGH_REPLICAS, among others.
    """
    partition.check_internal()
    if partition.log.failure is not None:
        raise partition.log.refusal()
    check_marker(
        partition.producers,
        producer_id,
        producer_epoch,
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
    )
    batch = encode_marker(
        producer_id,
        producer_epoch,
        is_commit=is_commit,
        coordinator_epoch=coordinator_epoch,
        timestamp_ms=now_ms,
    )
    header: HeaderFields = HEADER.unpack_from(batch)
    if partition.config.log_append_time:
        header = stamp_append_time(batch, header, now_ms)
    base_offset = partition.log.append(batch, header, leader_epoch=partition.leader_epoch, now_ms=now_ms)
    learn_marker(partition.log, HEADER.unpack_from(batch), batch, partition.log.active)
    count_marker(partition.log.active, base_offset, len(batch))
    partition.on_appended_internal(batch, base_offset + 1, on_committed)


def begin_verification(
    partition: Partition, producer_id: int, epoch: int, sequence: int, *, supports_epoch_bump: bool = False
) -> VerificationGuard:
    """Return the guard to append a transactional batch with: `ONGOING` if the transaction is open here. Else the guard
    counts once the coordinator has confirmed the transaction, unless a marker came in between.

    `supports_epoch_bump` says that the client has an epoch for each transaction (Produce 12+, TxnOffsetCommit 5+).
    """
    check_epoch(partition.producers, producer_id, epoch)
    if partition.producers.has_open_transaction(producer_id, epoch):
        return ONGOING
    return partition.producers.verifications.begin(
        producer_id, epoch, sequence, supports_epoch_bump=supports_epoch_bump, now_ms=partition.runtime.now_ms()
    )
