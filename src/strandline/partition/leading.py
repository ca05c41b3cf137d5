"""What a leader does with its replicas: it becomes leader, counts what they hold, and proposes which are in sync.

A leader epoch never goes back. Metadata of an older one changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from strandline.errors import ErrorCode
from strandline.partition.partition import NO_LEADER, Partition
from strandline.partition.trimming import serve_trims
from strandline.replication.in_sync import UNKNOWN_OFFSET, InSyncReplicas, IsEligible, Proposal


def make_leader(
    partition: Partition,
    node_id: int,
    *,
    leader_epoch: int,
    partition_epoch: int,
    replicas: Iterable[int],
    isr: Iterable[int],
    lag_max_s: float,
    is_eligible: IsEligible,
    eligible: Iterable[int] = (),
) -> bool:
    """Make this node the leader, as the metadata log says. Return whether an epoch begins."""
    if partition_epoch < partition.partition_epoch or leader_epoch < partition.leader_epoch:
        return False
    replicas, isr, eligible, now = tuple(replicas), tuple(isr), tuple(eligible), partition.runtime.monotonic()
    begins = leader_epoch > partition.leader_epoch or not partition.is_leader or partition.leader_id == NO_LEADER
    in_sync = None if begins else partition.in_sync
    partition.leader_id, partition.leader_epoch, partition.partition_epoch = node_id, leader_epoch, partition_epoch
    partition.is_leader = True
    if begins:
        # Other leaders wrote these records. They count when every replica that may be elected has them.
        partition.epoch_start_offset = partition.log.log_end_offset
        # Followers fetch again in the new epoch: what they acknowledged in the old one was another log.
        partition.send_away(partition.append_listeners)
        partition.send_away(partition.advance_listeners)
    if len(replicas) <= 1:
        in_sync = None
    elif in_sync is None:
        in_sync = InSyncReplicas(
            node_id,
            replicas=replicas,
            isr=isr,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            epoch_start_offset=partition.epoch_start_offset,
            lag_max_s=lag_max_s,
            is_eligible=is_eligible,
            now=now,
            eligible=eligible,
        )
    else:
        in_sync.on_metadata(replicas=replicas, isr=isr, partition_epoch=partition_epoch, now=now, eligible=eligible)
    partition.in_sync = in_sync
    partition.on_flushed = maybe_confirm
    _on_in_sync_changed(partition)
    maybe_confirm(partition)
    return begins


def on_follower_fetch(
    partition: Partition, follower_id: int, offset: int, *, log_start_offset: int, broker_epoch: int
) -> None:
    """Count that a follower holds everything below `offset`. Its log was compared with ours, by epochs, up to there."""
    in_sync = partition.in_sync
    assert in_sync is not None
    in_sync.now = partition.runtime.monotonic()
    in_sync.on_fetch(
        in_sync.followers[follower_id],
        offset,
        log_start_offset=log_start_offset,
        broker_epoch=broker_epoch,
        end_offset=partition.log.log_end_offset,
    )
    if offset > partition.high_watermark:
        partition.recount()
    if partition.delayed.trims:
        serve_trims(partition)
    if in_sync.is_short and in_sync.proposed is None:
        _maybe_propose(partition, in_sync.maybe_expand(partition.high_watermark))


def on_follower_lost(partition: Partition, follower_id: int) -> None:
    """Stop counting a follower that has lost records. It leaves the in-sync replicas when it has lagged too long."""
    in_sync = partition.in_sync
    assert in_sync is not None
    in_sync.followers[follower_id].end_offset = UNKNOWN_OFFSET
    if not partition.is_watched:
        partition.watch()


def look_after(partition: Partition, now: float) -> bool:
    """Propose to remove a replica that has fallen behind, or to add one. Return whether to look again later."""
    in_sync = partition.in_sync
    if in_sync is None or partition.log.failure is not None:
        partition.is_watched = False
        return False
    end_offset = partition.log.log_end_offset
    shrunk = in_sync.maybe_shrink(end_offset, now, may_be_alone=lambda: _may_be_alone(partition))
    _maybe_propose(partition, shrunk)
    _maybe_propose(partition, in_sync.maybe_expand(partition.high_watermark))
    maybe_confirm(partition)
    # Time alone may move the high watermark, when a follower that did not fetch no longer counts.
    partition.recount()
    serve_trims(partition)
    partition.is_watched = in_sync.is_short or in_sync.proposed is not None or in_sync.is_behind(end_offset)
    return partition.is_watched


def on_proposal_answered(
    partition: Partition,
    proposal: Proposal,
    error_code: int,
    *,
    leader_epoch: int = -1,
    partition_epoch: int = -1,
    isr: Iterable[int] = (),
) -> bool:
    """Take over what the controller decided on a proposal. Return whether to propose again."""
    in_sync = partition.in_sync
    if in_sync is None or proposal is not in_sync.proposed:
        return False
    again = in_sync.on_proposal_answered(
        proposal, error_code, leader_epoch=leader_epoch, partition_epoch=partition_epoch, isr=isr
    )
    partition.partition_epoch = max(partition.partition_epoch, in_sync.partition_epoch)
    _on_in_sync_changed(partition)
    return again


def maybe_confirm(partition: Partition) -> None:
    """Confirm the in-sync replicas where the controller waits for that, so that the high watermark may move."""
    in_sync = partition.in_sync
    if in_sync is not None and in_sync.eligible and not partition.is_under_min_in_sync and _may_be_alone(partition):
        _maybe_propose(partition, in_sync.maybe_confirm())


def _may_be_alone(partition: Partition) -> bool:
    """Return whether this replica may be the only one in sync.

    With `flush.mode=auto` it did not flush while there were others. So it flushes first: a power cut would take
    committed records from the only copy.
    """
    if partition.config.flush_mode != "auto" or partition.log.flushed_offset >= partition.high_watermark:
        return True
    partition.flusher.flush_soon(partition.log)
    return False


def _maybe_propose(partition: Partition, proposal: Proposal | None) -> None:
    if proposal is not None:
        _on_in_sync_changed(partition)
        partition.on_proposal(partition, proposal)


def _on_in_sync_changed(partition: Partition) -> None:
    """Apply a change of the replicas that are, or may be, in sync: it decides which records count as committed."""
    in_sync = partition.in_sync
    partition.in_sync_count = 1 if in_sync is None else len(in_sync.isr)
    partition.reconfigure(partition.config)
    if in_sync is not None:
        if partition.is_under_min_in_sync:
            partition.delayed.refuse_produces(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        if not partition.is_watched and (in_sync.is_short or in_sync.is_behind(partition.log.log_end_offset)):
            partition.watch()
