"""What a log must know of records before it that are in an object store from the beginning: epochs and producers.

A crash may take both files before they are synced. So they are looked after each time that the log is opened.
"""

from __future__ import annotations

from strandline.codec.producer_snapshot import NOT_SAID, SnapshotEntry, encode_snapshot
from strandline.config.remote_origin import PartitionOrigin
from strandline.log.leader_epochs import LeaderEpochs
from strandline.log.partition_log import PartitionLog

NO_TIME = -1


def beginning(log_start_offset: int, origin: PartitionOrigin | None) -> tuple[int, int]:
    """Return where a log starts, and where a new one begins on this disk."""
    if origin is None:
        return log_start_offset, max(0, log_start_offset)
    log_start_offset = max(log_start_offset, origin.start_offset)
    return log_start_offset, max(log_start_offset, origin.end_offset)


def know_transactions(log: PartitionLog, origin: PartitionOrigin | None) -> None:
    """Write the snapshot of producers at the beginning of the local log, if it is missing.

    Of each producer only the open transaction is known. Its sequences begin with any number, as in a new topic.
    """
    if origin is None or not origin.transactions:
        return
    begins_there = not log.base_offsets or log.base_offsets[0] == origin.end_offset
    if begins_there and origin.end_offset not in log.snapshots.offsets():
        entries: list[SnapshotEntry] = [
            (each.producer_id, each.producer_epoch, [], NO_TIME, each.coordinator_epoch, each.first_offset, NOT_SAID)
            for each in origin.transactions
        ]
        log.snapshots.adopt(origin.end_offset, encode_snapshot(entries))


def know_epochs(log: PartitionLog, origin: PartitionOrigin | None) -> None:
    """Put the epochs of the records in the store before those of the log itself."""
    if origin is None:
        return
    own = log.leader_epochs
    if log.tier_start_offset >= origin.end_offset or (own.epochs and own.start_offsets[0] < origin.end_offset):
        return
    known = LeaderEpochs()
    for epoch, start_offset in (*origin.epochs, *zip(own.epochs, own.start_offsets, strict=True)):
        known.note(epoch, start_offset)
    known.truncate_start(max(0, log.tier_start_offset))
    if known.epochs != own.epochs:
        log.leader_epochs = known
        log.save_leader_epochs()
