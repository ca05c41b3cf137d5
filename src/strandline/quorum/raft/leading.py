"""The leader's side: what it answers to fetches, what counts as committed, and when it must stop."""

from __future__ import annotations

from typing import Final

from strandline.errors import ErrorCode
from strandline.quorum.raft.epochs import begin_epoch, end_epoch
from strandline.quorum.raft.fetch import ReplicaFetch, ReplicaFetchAnswer, check_position
from strandline.quorum.raft.raft_log import EpochEnd, SnapshotId
from strandline.quorum.raft.roles import Leader, ReplicaProgress, Resigned
from strandline.quorum.raft.state import RaftState
from strandline.quorum.raft.voters import ReplicaKey

OBSERVERS_MAX: Final = 2_000
"""How many observers a leader remembers; beyond that it forgets who fetched longest ago."""


def on_fetch(state: RaftState, fetch: ReplicaFetch, now: float) -> ReplicaFetchAnswer:
    answer = answer_fetch(state, fetch)
    role = state.role
    if isinstance(role, Leader) and fetch.replica_id >= 0 and answer.error == ErrorCode.NONE:
        # A replica whose log differs from ours is alive; what it holds counts only from where both agree.
        end_offset = fetch.fetch_offset if answer.diverging is None and answer.snapshot is None else None
        _note(state, role, fetch.key, end_offset, now)
    return answer


def answer_fetch(state: RaftState, fetch: ReplicaFetch) -> ReplicaFetchAnswer:
    log, high_watermark = state.log, state.high_watermark
    error = _why_not_served(state, fetch.cluster_id, fetch.current_leader_epoch, fetch.replica_id)
    offset = fetch.fetch_offset
    position: EpochEnd | SnapshotId | None = None
    may_wait = False
    if error == ErrorCode.NONE:
        if fetch.last_fetched_epoch >= 0 and offset >= 0:
            position = check_position(log, offset, fetch.last_fetched_epoch)
        elif fetch.replica_id >= 0 or not log.start_offset <= offset <= high_watermark:
            error = ErrorCode.INVALID_REQUEST if fetch.replica_id >= 0 else ErrorCode.OFFSET_OUT_OF_RANGE
        if error == ErrorCode.NONE and position is None:
            end = log.end_offset if fetch.replica_id >= 0 else high_watermark
            may_wait = offset >= end and fetch.high_watermark >= high_watermark
    return ReplicaFetchAnswer(
        error,
        state.leader_id,
        state.epoch,
        high_watermark,
        log.start_offset,
        position if isinstance(position, EpochEnd) else None,
        position if isinstance(position, SnapshotId) else None,
        may_wait,
    )


def on_fetch_snapshot(state: RaftState, key: ReplicaKey, epoch: int, cluster_id: str | None, now: float) -> ErrorCode:
    error = _why_not_served(state, cluster_id, epoch, key.node_id)
    if error == ErrorCode.NONE and key.node_id >= 0:
        assert isinstance(state.role, Leader)
        _note(state, state.role, key, None, now)
    return error


def _why_not_served(state: RaftState, cluster_id: str | None, epoch: int, replica_id: int) -> ErrorCode:
    if state.is_wrong_cluster(cluster_id):
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    if epoch >= 0 or replica_id >= 0:
        if epoch < state.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > state.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if isinstance(state.role, Leader) else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _note(state: RaftState, role: Leader, key: ReplicaKey, end_offset: int | None, now: float) -> None:
    """Note the fetch of a replica; with `end_offset`, everything before that is on its disk."""
    if key.node_id == state.node_id:
        return
    if state.voters.holds(key):
        progress = role.voters[key.node_id]
    else:
        progress = role.observers.pop(key, ReplicaProgress(key))
        role.observers[key] = progress  # The last to have fetched stands last.
        if len(role.observers) > OBSERVERS_MAX:
            del role.observers[next(iter(role.observers))]
    if end_offset is None:
        progress.last_fetch_at = now
        return
    progress.note(end_offset, state.log.end_offset, now)
    if end_offset > state.high_watermark:
        advance(state, role)


def advance(state: RaftState, role: Leader) -> None:
    """Advance the high watermark to what a majority has on disk; this node counts with what it has flushed.

    Entries of earlier epochs are never committed by counting: another leader could still take them back (the Raft
    paper's figure 8). They are once an entry of this epoch is, and the first of those is the leader change record.
    """
    voters = state.voters
    ends = [progress.end_offset for progress in role.voters.values()]
    if state.is_voter:
        ends.append(state.log.flushed_end)
    ends.sort(reverse=True)
    offset = ends[voters.majority - 1]
    if offset > role.start_offset:
        state.raise_high_watermark(offset)


def confirmed_at(state: RaftState, role: Leader) -> float:
    """When a majority last showed that it takes us for the leader. We are one of it ourselves, and not alone."""
    heard_at = sorted((progress.last_fetch_at or role.since for progress in role.voters.values()), reverse=True)
    return heard_at[state.voters.majority - 2]


def on_leader_time(state: RaftState, role: Leader, now: float) -> None:
    if now >= role.check_at:
        role.check_at = confirmed_at(state, role) + state.timing.check_quorum_s
        if now >= role.check_at:
            resign(state, now)
            return
    if now >= role.begin_at:
        begin_epoch(state, role, now)


def resign(state: RaftState, now: float) -> None:
    state.become_resigned(now)
    role = state.role
    assert isinstance(role, Resigned)
    end_epoch(state, role, now)
