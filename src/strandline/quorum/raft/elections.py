"""Votes and pre-votes, given and asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.codec.messages.vote_response import VoteResponse
from strandline.errors import ErrorCode
from strandline.ids import ZERO_UUID
from strandline.quorum.raft.effects import WrongCluster
from strandline.quorum.raft.messages import endpoint_of, only_partition, vote_request, vote_response
from strandline.quorum.raft.roles import Candidate, Follower, Leader, Prospective
from strandline.quorum.raft.state import EPOCH_LAST, RaftState
from strandline.quorum.raft.voters import Peer, ReplicaKey

if TYPE_CHECKING:
    from uuid import UUID

    from strandline.codec.messages.vote_request import PartitionData as VoteAsked
    from strandline.codec.messages.vote_request import VoteRequest

# Giving votes


def on_vote(state: RaftState, request: VoteRequest, now: float) -> VoteResponse:
    if state.is_wrong_cluster(request.cluster_id):
        return VoteResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    asked = only_partition(request)
    if asked is None:
        return VoteResponse(error_code=ErrorCode.INVALID_REQUEST)
    error = why_not_the_voter(state, request.voter_id, asked.voter_directory_id) or _why_refused(state, asked)
    granted = False
    if error == ErrorCode.NONE:
        if asked.replica_epoch > state.epoch:
            state.become_unattached(asked.replica_epoch, now)
        granted = _decide(state, asked, now)
    return vote_response(error, state.leader_id, state.epoch, state.leader, granted=granted)


def why_not_the_voter(state: RaftState, voter_id: int, directory_id: UUID) -> ErrorCode:
    """Return why this replica is not the voter that a request names; its disk may have been replaced since."""
    if voter_id not in (-1, state.node_id) or directory_id not in (ZERO_UUID, state.key.directory_id):
        return ErrorCode.INVALID_VOTER_KEY
    return ErrorCode.NONE if state.is_voter else ErrorCode.INCONSISTENT_VOTER_SET


def _why_refused(state: RaftState, asked: VoteAsked) -> ErrorCode:
    if asked.replica_epoch < state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    # A candidate's log is older than the epoch it stands in; who only asks may hold entries of the epoch it knows.
    last_epoch_limit = asked.replica_epoch if asked.pre_vote else asked.replica_epoch - 1
    is_odd = asked.replica_id < 0 or asked.last_offset < 0 or not 0 <= asked.last_offset_epoch <= last_epoch_limit
    if is_odd or asked.replica_epoch > EPOCH_LAST or asked.replica_id == state.node_id:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _decide(state: RaftState, asked: VoteAsked, now: float) -> bool:
    candidate = ReplicaKey(asked.replica_id, asked.replica_directory_id)
    is_up_to_date = (asked.last_offset_epoch, asked.last_offset) >= state.last
    role = state.role
    if asked.pre_vote:
        if isinstance(role, Leader) or (isinstance(role, Follower) and role.has_fetched):
            return False
        if isinstance(role, Prospective) and not is_up_to_date:
            # It hears nothing of a leader either, so it will not refuse us now for the sake of one.
            role.ballot.reopen(candidate.node_id, now)
            ask(state, now)
        return is_up_to_date
    if state.voted is not None:
        return state.voted == candidate
    if state.epoch_leader_id >= 0 or not is_up_to_date:
        return False
    state.voted = candidate
    state.become_unattached(state.epoch, now)  # With time for the candidate to win.
    return True


# Asking for votes


def ask(state: RaftState, now: float) -> None:
    """Send what is due of the ballot; the first time that is a request to every other voter."""
    role = state.role
    assert isinstance(role, Prospective | Candidate), role
    ballot = role.ballot
    if not ballot.granted:
        ballot.granted.add(state.node_id)
        if _count(state, now):
            return
        ballot.retry_at = {voter.node_id: now for voter in state.voters.others(state.node_id)}
    for voter_id in [voter_id for voter_id, at in ballot.retry_at.items() if at <= now]:
        del ballot.retry_at[voter_id]
        voter = state.voters.get(voter_id)
        if voter is not None:
            pre_vote = isinstance(role, Prospective)
            request = vote_request(state.cluster_id, voter, state.epoch, state.key, state.last, pre_vote=pre_vote)
            ballot.waiting[voter_id] = request
            state.send(voter.peer, request)


def _count(state: RaftState, now: float) -> bool:
    """Go on if the ballot is decided. True if it was."""
    role = state.role
    assert isinstance(role, Prospective | Candidate), role
    ballot, voters = role.ballot, state.voters
    if len(ballot.granted) >= voters.majority:
        if isinstance(role, Prospective):
            state.become_candidate(now)
            ask(state, now)
        else:
            state.become_leader(sorted(ballot.granted), now)
        return True
    if len(ballot.rejected) > len(voters) - voters.majority:
        if isinstance(role, Prospective):
            give_up_prospects(state, now)
        else:
            role.has_lost = True
            role.ends_at = now + state.timing.election_backoff(role.retries + 1, state.random)
            ballot.retry_at.clear()
        return True
    return False


def give_up_prospects(state: RaftState, now: float) -> None:
    """Back to the leader we knew, if any: others hear it. Waiting less than a fetch timeout this time."""
    role = state.role
    assert isinstance(role, Prospective), role
    if role.last_leader is not None:
        wait_s = state.timing.election_timeout(state.random)
        state.become_follower(state.epoch, role.last_leader, now, fetch_in_s=wait_s)
    else:
        retries = role.retries + 1
        wait_s = state.timing.election_timeout_s / 2 + state.timing.election_backoff(retries, state.random)
        state.become_unattached(state.epoch, now, election_in_s=wait_s, retries=retries)


def on_vote_answer(state: RaftState, to: Peer, request: VoteRequest, response: VoteResponse | None, now: float) -> None:
    role = state.role
    if not isinstance(role, Prospective | Candidate) or role.ballot.waiting.get(to.node_id) is not request:
        return  # From an earlier round, or a second answer.
    ballot = role.ballot
    del ballot.waiting[to.node_id]
    answered = only_partition(response) if response is not None else None
    if response is None or answered is None or answered.error_code != ErrorCode.NONE:
        if response is not None and response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID:
            state.effects.append(WrongCluster(to))
        if answered is not None and learn_from(state, response, answered.leader_id, answered.leader_epoch, now):
            return
        ballot.failures += 1
        if not (isinstance(role, Candidate) and role.has_lost):
            ballot.retry_at[to.node_id] = now + state.timing.retry_delay(ballot.failures)
        return
    if learn_from(state, response, answered.leader_id, answered.leader_epoch, now):
        return
    if answered.vote_granted:
        ballot.granted.add(to.node_id)
    else:
        ballot.rejected.add(to.node_id)
    if not (isinstance(role, Candidate) and role.has_lost):
        _count(state, now)


def learn_from(state: RaftState, response: object, leader_id: int, epoch: int, now: float) -> bool:
    """Take from any answer who leads, if that is news."""
    return state.learn(epoch, leader_id, endpoint_of(response, leader_id), now)
