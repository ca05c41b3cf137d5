"""How a leader begins and ends its epoch: BeginQuorumEpoch and EndQuorumEpoch, both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strandline.codec.messages.begin_quorum_epoch_response import BeginQuorumEpochResponse
from strandline.codec.messages.end_quorum_epoch_response import EndQuorumEpochResponse
from strandline.errors import ErrorCode
from strandline.ids import ZERO_UUID
from strandline.quorum.raft.effects import WrongCluster
from strandline.quorum.raft.elections import learn_from, why_not_the_voter
from strandline.quorum.raft.messages import begin_request, begin_response, end_request, end_response, only_partition
from strandline.quorum.raft.roles import Follower, Leader, Resigned, Unattached
from strandline.quorum.raft.state import EPOCH_LAST, RaftState
from strandline.quorum.raft.voters import Peer

if TYPE_CHECKING:
    from strandline.codec.message import Message
    from strandline.codec.messages.begin_quorum_epoch_request import BeginQuorumEpochRequest
    from strandline.codec.messages.end_quorum_epoch_request import EndQuorumEpochRequest

# Requests of the leader


def on_begin(state: RaftState, request: BeginQuorumEpochRequest, now: float) -> BeginQuorumEpochResponse:
    if state.is_wrong_cluster(request.cluster_id):
        return BeginQuorumEpochResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    partition = only_partition(request)
    if partition is None:
        return BeginQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST)
    error = why_not_the_voter(state, request.voter_id, partition.voter_directory_id)
    error = error or _why_not_its_leader(state, partition.leader_id, partition.leader_epoch)
    if error == ErrorCode.NONE:
        leader = _endpoint(request, partition.leader_id) or state.peer_of(partition.leader_id)
        if leader is None:
            error = ErrorCode.INVALID_REQUEST
        elif not isinstance(state.role, Follower) or partition.leader_epoch > state.epoch:
            state.become_follower(partition.leader_epoch, leader, now)
    return begin_response(error, state.leader_id, state.epoch, state.leader)


def on_end(state: RaftState, request: EndQuorumEpochRequest, now: float) -> EndQuorumEpochResponse:
    if state.is_wrong_cluster(request.cluster_id):
        return EndQuorumEpochResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    partition = only_partition(request)
    if partition is None:
        return EndQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST)
    error = _why_not_its_leader(state, partition.leader_id, partition.leader_epoch)
    if error == ErrorCode.NONE and (
        partition.leader_epoch > state.epoch or isinstance(state.role, Follower | Unattached)
    ):
        # Where only the configuration names the voters, the leader knows no directories.
        directories = (ZERO_UUID, state.key.directory_id)
        successors = [
            entry.candidate_id == state.node_id and entry.candidate_directory_id in directories
            for entry in partition.preferred_candidates
        ]
        wait_s = None
        if True in successors:
            wait_s = state.timing.succession_delay(successors.index(True), len(successors))
        state.become_unattached(partition.leader_epoch, now, election_in_s=wait_s)
    return end_response(error, state.leader_id, state.epoch, state.leader)


def _why_not_its_leader(state: RaftState, leader_id: int, epoch: int) -> ErrorCode:
    if epoch < state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if leader_id < 0 or leader_id == state.node_id or epoch > EPOCH_LAST:
        return ErrorCode.INVALID_REQUEST
    # An epoch has one leader; who claims one that we know another of is not believed.
    if epoch == state.epoch and state.epoch_leader_id not in (-1, leader_id):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _endpoint(request: Any, leader_id: int) -> Peer | None:
    for endpoint in request.leader_endpoints:
        if endpoint.host and endpoint.port > 0:
            return Peer(leader_id, endpoint.host, endpoint.port)
    return None


# Telling


def begin_epoch(state: RaftState, role: Leader, now: float) -> None:
    """Tell every voter that has not fetched lately who leads: it may know of no leader, or of an old one."""
    interval_s = state.timing.begin_epoch_s
    own = state.voters.get(state.node_id)
    next_at = now + interval_s
    for progress in role.voters.values():
        is_silent = progress.last_fetch_at is None or progress.last_fetch_at + interval_s <= now
        if is_silent and progress.begin_at <= now:
            voter = state.voters.get(progress.key.node_id)
            if voter is not None:
                progress.begin = begin_request(state.cluster_id, voter, state.epoch, state.node_id, own)
                progress.begin_at = now + interval_s
                state.send(voter.peer, progress.begin)
        elif is_silent:
            next_at = min(next_at, progress.begin_at)
    role.begin_at = next_at


def on_begin_answer(state: RaftState, to: Peer, request: Message, response: Any | None, now: float) -> None:
    role = state.role
    progress = role.voters.get(to.node_id) if isinstance(role, Leader) else None
    if not isinstance(role, Leader) or progress is None or progress.begin is not request:
        return
    progress.begin = None
    if response is None:
        progress.begin_at = now + state.timing.begin_epoch_s / 4
        role.begin_at = min(role.begin_at, progress.begin_at)
    else:
        _learn(state, to, response, now)


def end_epoch(state: RaftState, role: Resigned, now: float) -> None:
    """Tell every voter that has not confirmed it yet that this node no longer leads."""
    own = state.voters.get(state.node_id)
    for voter_id in [voter_id for voter_id, at in role.untold.items() if at <= now]:
        voter = state.voters.get(voter_id)
        role.untold[voter_id] = now + state.timing.request_timeout_s
        if voter is not None:
            request = end_request(state.cluster_id, state.epoch, state.node_id, own, role.successors)
            role.waiting[voter_id] = request
            state.send(voter.peer, request)


def on_end_answer(state: RaftState, to: Peer, request: Message, response: Any | None, now: float) -> None:
    role = state.role
    if not isinstance(role, Resigned) or role.waiting.get(to.node_id) is not request:
        return
    del role.waiting[to.node_id]
    if response is None:
        role.untold[to.node_id] = now + state.timing.election_timeout_s / 4
    else:
        role.untold.pop(to.node_id, None)
        _learn(state, to, response, now)


def _learn(state: RaftState, to: Peer, response: Any, now: float) -> None:
    if response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID:
        state.effects.append(WrongCluster(to))
    answered = only_partition(response)
    if answered is not None:
        learn_from(state, response, answered.leader_id, answered.leader_epoch, now)
