"""The follower's side: one fetch at a time, of entries or of a snapshot, and what its answer does to the log.

The offset of a fetch tells the leader what we have on disk, so the next fetch leaves only when all is flushed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.errors import ErrorCode, PeerError
from strandline.quorum.raft.effects import (
    Flush,
    Inconsistent,
    InstallSnapshot,
    SnapshotChunk,
    Truncated,
    WrongCluster,
)
from strandline.quorum.raft.fetch import truncation_point
from strandline.quorum.raft.messages import (
    endpoint_of,
    fetch_request,
    fetched_partition,
    only_partition,
    snapshot_request,
)
from strandline.quorum.raft.raft_log import EpochEnd, SnapshotId
from strandline.quorum.raft.roles import Follower, SnapshotFetch, Unattached
from strandline.quorum.raft.state import RaftState
from strandline.quorum.raft.voters import UNKNOWN_ID, Peer

if TYPE_CHECKING:
    from strandline.codec.message import Message
    from strandline.codec.messages.fetch_response import FetchResponse, PartitionData
    from strandline.codec.messages.fetch_snapshot_response import FetchSnapshotResponse


def fetch_deadline(state: RaftState) -> float:
    """Return when to fetch again, or to give up a request without an answer."""
    fetching = state.fetching
    if fetching.request is not None:
        return fetching.give_up_at
    return fetching.retry_at if _may_fetch(state) else float("inf")


def _may_fetch(state: RaftState) -> bool:
    log = state.log
    return state.fetching.installing is None and log.flushed_end >= log.end_offset


def maybe_fetch(state: RaftState, now: float) -> None:
    """Send the next request if none is under way, nothing is left to flush, and the last failure is long enough ago."""
    fetching, role = state.fetching, state.role
    if not isinstance(role, Follower | Unattached):
        return
    if fetching.request is not None and now >= fetching.give_up_at:
        _failed(state, now)
    if fetching.request is not None or now < fetching.retry_at or not _may_fetch(state):
        return
    to = role.leader if isinstance(role, Follower) else _somebody(state)
    if to is None:
        fetching.retry_at = now + state.timing.election_timeout_s
        return
    wait_s = 0.0
    request: Message
    if fetching.snapshot is not None:
        wanted = fetching.snapshot
        request = snapshot_request(state.cluster_id, state.key, state.epoch, wanted.snapshot_id, wanted.position)
    else:
        wait_s = state.timing.fetch_max_wait_s
        request = fetch_request(state.cluster_id, state.key, state.epoch, state.last, state.high_watermark, wait_s)
    fetching.request = request
    fetching.give_up_at = now + wait_s + state.timing.request_timeout_s
    state.send(to, request, wait_s)


def _somebody(state: RaftState) -> Peer | None:
    """Anybody who may know the leader: another voter, or a bootstrap server."""
    own = state.voters.get(state.node_id)
    known = [voter.peer for voter in state.voters.others(state.node_id) if voter.port > 0]
    addresses = [(peer.host, peer.port) for peer in known]
    if own is not None:
        addresses.append((own.host, own.port))
    known += [Peer(UNKNOWN_ID, *address) for address in state.bootstrap_servers if address not in addresses]
    return state.random.choice(known) if known else None


def _failed(state: RaftState, now: float) -> None:
    fetching = state.fetching
    fetching.request = None
    fetching.failures += 1
    fetching.retry_at = now + state.timing.retry_delay(fetching.failures)


def _is_answered(state: RaftState, request: Message) -> bool:
    """Return whether this is the one request under way; it no longer is."""
    if request is not state.fetching.request or not isinstance(state.role, Follower | Unattached):
        return False
    state.fetching.request = None
    return True


# Entries


def on_fetch_answer(state: RaftState, to: Peer, request: Message, response: FetchResponse | None, now: float) -> None:
    if not _is_answered(state, request):
        return
    partition = fetched_partition(response) if response is not None else None
    if response is None or partition is None:
        if response is not None and response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID:
            state.effects.append(WrongCluster(to))
        _failed(state, now)
        return
    leader_id, epoch = partition.current_leader.leader_id, partition.current_leader.leader_epoch
    leader = endpoint_of(response, leader_id)
    if leader is None and partition.error_code == ErrorCode.NONE:
        leader = Peer(leader_id, to.host, to.port)  # Only a leader answers without error.
    if state.learn(epoch, leader_id, leader, now):
        maybe_fetch(state, now)
        return
    role = state.role
    if partition.error_code != ErrorCode.NONE or not isinstance(role, Follower):
        _on_fetch_error(state, partition.error_code, leader_id, epoch, now)
    elif (leader_id, epoch) != (role.leader.node_id, state.epoch):
        state.effects.append(Inconsistent(f"{to} answered as leader {leader_id} of epoch {epoch}"))
        _failed(state, now)
    else:
        _note_fetched(state, role, now)
        _take(state, partition, now)


def _on_fetch_error(state: RaftState, error: int, leader_id: int, epoch: int, now: float) -> None:
    role = state.role
    is_over = error == ErrorCode.NOT_LEADER_OR_FOLLOWER and leader_id < 0 and epoch == state.epoch
    if isinstance(role, Follower) and is_over:
        # The leader itself says that it leads no more: it resigned, or was restarted.
        state.become_unattached(state.epoch, now)
    _failed(state, now)


def _note_fetched(state: RaftState, role: Follower, now: float) -> None:
    role.has_fetched = True
    state.heard_leader = role.leader.node_id, now
    role.fetch_by = now + state.timing.fetch_timeout(state.random)
    state.fetching.failures = 0


def _take(state: RaftState, partition: PartitionData, now: float) -> None:
    log = state.log
    if partition.diverging_epoch.epoch >= 0:
        _cut(state, EpochEnd(partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset), now)
        return
    if partition.snapshot_id.epoch >= 0:
        wanted = SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
        if wanted.end_offset <= state.high_watermark:
            state.effects.append(Inconsistent(f"snapshot {wanted} for a replica that has {state.high_watermark}"))
            _failed(state, now)
            return
        state.fetching.snapshot = SnapshotFetch(wanted)
    elif partition.records:
        try:
            log.append_fetched(partition.records)
        except PeerError as error:
            state.effects.append(Inconsistent(f"entries fetched at {log.end_offset}: {error}"))
            if log.flushed_end < log.end_offset:
                state.effects.append(Flush())  # A disk that filled up half-way keeps what it took.
            _failed(state, now)
            return
        state.effects.append(Flush())
    if partition.snapshot_id.epoch < 0:
        state.raise_high_watermark(min(partition.high_watermark, log.end_offset))
    maybe_fetch(state, now)


def _cut(state: RaftState, diverging: EpochEnd, now: float) -> None:
    """Truncate our log where it diverges from the leader's."""
    end_offset = truncation_point(state.log, diverging)
    if end_offset < state.high_watermark or end_offset >= state.log.end_offset:
        state.effects.append(
            Inconsistent(
                f"{diverging} would cut {state.log.end_offset} to {end_offset}, {state.high_watermark} is sure"
            )
        )
        _failed(state, now)
        return
    state.log.truncate_to(end_offset)
    state.history.truncate_to(end_offset)
    state.effects.append(Truncated(end_offset))
    maybe_fetch(state, now)


# Snapshots


def on_snapshot_answer(
    state: RaftState, to: Peer, request: Message, response: FetchSnapshotResponse | None, now: float
) -> None:
    fetching = state.fetching
    if not _is_answered(state, request):
        return
    wanted = fetching.snapshot
    piece = only_partition(response) if response is not None else None
    if wanted is None or response is None or piece is None:
        _failed(state, now)
        return
    leader_id, epoch = piece.current_leader.leader_id, piece.current_leader.leader_epoch
    if state.learn(epoch, leader_id, endpoint_of(response, leader_id), now):
        maybe_fetch(state, now)
        return
    role = state.role
    if piece.error_code != ErrorCode.NONE or not isinstance(role, Follower):
        # Whatever it is, the response to the next Fetch names the snapshot again.
        fetching.snapshot = None
        _on_fetch_error(state, piece.error_code, leader_id, epoch, now)
        return
    end = piece.position + len(piece.unaligned_records)
    is_it = (piece.snapshot_id.end_offset, piece.snapshot_id.epoch) == wanted.snapshot_id
    if (
        not is_it
        or piece.position != wanted.position
        or end > piece.size
        or (end < piece.size and end == piece.position)
    ):
        fetching.snapshot = None
        _failed(state, now)
        return
    _note_fetched(state, role, now)
    state.effects.append(SnapshotChunk(wanted.snapshot_id, wanted.position, piece.unaligned_records))
    wanted.position = end
    if end == piece.size:
        fetching.snapshot = None
        fetching.installing = wanted.snapshot_id
        state.effects.append(InstallSnapshot(wanted.snapshot_id))
    else:
        maybe_fetch(state, now)


def on_snapshot_installed(state: RaftState, snapshot_id: SnapshotId, now: float) -> None:
    assert state.fetching.installing == snapshot_id, (state.fetching.installing, snapshot_id)
    state.fetching.installing = None
    role = state.role
    if isinstance(role, Follower):
        role.fetch_by = now + state.timing.fetch_timeout(state.random)
    state.raise_high_watermark(snapshot_id.end_offset)
    if isinstance(role, Follower | Unattached):
        maybe_fetch(state, now)


def on_snapshot_failed(state: RaftState, snapshot_id: SnapshotId, now: float) -> None:
    """Take it from its beginning, or another one by then; after a while, for the disk may have no room now."""
    fetching = state.fetching
    if fetching.installing == snapshot_id:
        fetching.installing = None
    if fetching.snapshot is not None and fetching.snapshot.snapshot_id == snapshot_id:
        fetching.snapshot = None
    _failed(state, now)
