"""What a follower does to its log: append what it fetched, learn the high watermark, truncate at divergences."""

from __future__ import annotations

from strandline.codec.record_batch import check_run
from strandline.errors import DiskFailed, ErrorCode, InvalidBatch, StrandlineError
from strandline.log import run_appends, truncation
from strandline.partition.partition import Partition
from strandline.partition.tier import TierBeginning
from strandline.replication.divergence import truncation_offset
from strandline.replication.follower import Position


def make_follower(partition: Partition, leader_id: int, *, leader_epoch: int, partition_epoch: int) -> bool:
    """Make this node a follower, as the metadata log says. Return whether leader, epoch or role changed."""
    if partition_epoch < partition.partition_epoch or leader_epoch < partition.leader_epoch:
        return False
    changes = leader_epoch > partition.leader_epoch or partition.is_leader or leader_id != partition.leader_id
    partition.leader_id, partition.leader_epoch, partition.partition_epoch = leader_id, leader_epoch, partition_epoch
    if changes:
        partition.is_leader = False
        partition.in_sync = None
        partition.in_sync_count = 0
        partition.is_watched = False
        partition.configure(partition.config, is_only_copy=False)
        partition.abandon(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return changes


def append_fetched(partition: Partition, run: memoryview) -> None:
    """Store the batches that the leader sent for our log end, with one write. Raises StrandlineError, with nothing
    changed, if they cannot follow there, or the disk refuses them."""
    log = partition.log
    headers, size_bytes = check_run(run, next_offset=log.log_end_offset, leader_epoch=partition.leader_epoch)
    if not headers:
        raise InvalidBatch(f"{len(run)} bytes without a whole batch")
    end_offset = log.log_end_offset
    run_appends.append_fetched(log, run[:size_bytes], headers, now_ms=partition.runtime.now_ms())
    # What was fetched came in at the leader, and is counted there.
    partition.opened_at_offset += log.log_end_offset - end_offset
    partition.unseen_bytes += size_bytes
    if partition.flush_before_ack or log.log_end_offset - log.flushed_offset >= partition.config.flush_messages:
        partition.flusher.flush_soon(log)


def learn_high_watermark(partition: Partition, high_watermark: int) -> None:
    """Take over the leader's high watermark, as far as this log goes."""
    partition.advance(min(high_watermark, partition.log_end_offset))


def where_to_cut(partition: Partition, epoch: int, end_offset: int) -> int:
    """Return where this log diverges. The leader's last epoch up to ours is `epoch`, and ends at `end_offset`."""
    return truncation_offset(partition.log.leader_epochs, partition.log_end_offset, epoch, end_offset)


def must_restart(partition: Partition, offset: int, leader_start_offset: int) -> bool:
    """Return whether a log that diverges at `offset` must restart, empty, where the leader's log starts."""
    # Below its start the leader has forgotten which epoch wrote what: nothing there can be compared.
    is_forgotten = partition.log_start_offset < leader_start_offset >= offset
    # The local log does not reach back so far. From its start on, the leader says what is in the store alone.
    is_in_tier = 0 <= partition.log.tier_start_offset <= offset < partition.log.log_start_offset
    return is_forgotten or is_in_tier


def truncate_to(partition: Partition, offset: int) -> None:
    """Truncate what the leader does not have. The recovery point on disk is not above `offset` when this is called.

    Raises DiskFailed if the disk refuses: either nothing has changed, or the log is offline.
    """
    assert not partition.is_leader, "a leader's log is the truth"
    end_offset = partition.log_end_offset
    truncation.truncate_to(partition.log, offset)
    on_truncated(partition, end_offset)


def position_of(partition: Partition) -> Position:
    return Position(
        partition.leader_epoch,
        partition.log_end_offset,
        partition.log.leader_epochs.epoch_of(partition.log_end_offset - 1),
        partition.log_start_offset,
        partition.high_watermark,
    )


def restart_at(partition: Partition, offset: int, beginning: TierBeginning | None = None) -> None:
    """Restart where the leader's log begins: all records here lie before it. The recovery point on disk is 0.

    With `beginning` that is where the leader's local log begins, and the records before it are in the object store.
    """
    assert not partition.is_leader, "a leader's log is the truth"
    end_offset = partition.log_end_offset
    former = None
    if beginning is not None:
        former = truncation.Former(
            beginning.leader_epochs, beginning.producer_snapshot, tier_start_offset=beginning.log_start_offset
        )
    truncation.restart_at(partition.log, offset, partition.runtime.now_ms(), former)
    on_truncated(partition, end_offset)


def on_truncated(partition: Partition, old_end_offset: int) -> None:
    """Adapt the partition to its truncated log; take the log offline if it cannot be read."""
    try:
        _learn_end(partition, old_end_offset)
    except (OSError, StrandlineError) as error:
        partition.log.fail(DiskFailed(f"{partition.log.directory}: cannot be read after a truncation: {error}"))
        raise partition.log.refusal() from error


def _learn_end(partition: Partition, old_end_offset: int) -> None:
    """Adapt high watermark, counters and pending requests to a log that ends, or begins, elsewhere."""
    log = partition.log
    partition.opened_at_offset += log.log_end_offset - old_end_offset
    # The records that they waited for are gone.
    partition.delayed.refuse_flushes(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if not log.log_start_offset <= partition.high_watermark <= log.log_end_offset:
        # Only after an unclean election, or if the leader's log begins later. Readers detect it by the epoch.
        partition.high_watermark = max(log.log_start_offset, min(partition.high_watermark, log.log_end_offset))
        partition.send_away(partition.advance_listeners)
    partition.learn_undecided()
