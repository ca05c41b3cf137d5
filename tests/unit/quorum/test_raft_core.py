"""The Raft core by hand: one replica, requests and answers put together here, effects looked at."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest
from tests.simulator.raft.log import Entry, Kept, SimulatedLog

from strandline.codec.messages import begin_quorum_epoch_request as begin
from strandline.codec.messages import begin_quorum_epoch_response as begun
from strandline.codec.messages import end_quorum_epoch_request as end
from strandline.codec.messages import fetch_response as fetched
from strandline.codec.messages import fetch_snapshot_response as pieces
from strandline.codec.messages import vote_request as vote
from strandline.codec.messages import vote_response as voted
from strandline.codec.messages.fetch_request import FetchRequest
from strandline.codec.messages.fetch_snapshot_request import FetchSnapshotRequest
from strandline.errors import ErrorCode, NotLeader
from strandline.quorum.controller.topic_names import CLUSTER_METADATA
from strandline.quorum.raft.effects import (
    Flush,
    HighWatermark,
    InstallSnapshot,
    Leading,
    NoLongerLeading,
    Save,
    SendRequest,
)
from strandline.quorum.raft.fetch import ReplicaFetch, check_position, truncation_point
from strandline.quorum.raft.messages import fetch_response, replica_fetch
from strandline.quorum.raft.raft import Raft, RaftTiming
from strandline.quorum.raft.raft_log import EpochEnd, SnapshotId
from strandline.quorum.raft.state_files import QuorumState
from strandline.quorum.raft.voters import Peer, ReplicaKey, Voter, VoterHistory, VoterSet

DISK = UUID(int=1000)
VOTERS = VoterSet([Voter(0, "n0", 9093, DISK), Voter(1, "n1", 9093), Voter(2, "n2", 9093)])


def log_of(*epochs: int, start: int = 0, snapshot: SnapshotId | None = None) -> SimulatedLog:
    """A log whose entries have these epochs."""
    kept = Kept()
    kept.start_offset = start
    kept.entries = [Entry(epoch, at) for at, epoch in enumerate(epochs, start)]
    if snapshot is not None:
        kept.snapshots[snapshot] = b"state"
    return SimulatedLog(kept)


def core(
    log: SimulatedLog | None = None, voters: VoterSet = VOTERS, state: QuorumState | None = None, **options: Any
) -> Raft:
    return Raft(
        node_id=0,
        directory_id=DISK,
        cluster_id="ours",
        voters=voters,
        state=state or QuorumState(),
        log=log or log_of(),
        timing=RaftTiming(),
        random=random.Random(1),
        **options,
    )


def vote_by(replica_id: int, epoch: int, last: tuple[int, int] = (0, 0), **fields: Any) -> vote.VoteRequest:
    request = {"cluster_id": "ours", "voter_id": 0, "pre_vote": False, **fields}
    partition = vote.PartitionData(
        replica_epoch=epoch,
        replica_id=replica_id,
        last_offset_epoch=last[0],
        last_offset=last[1],
        pre_vote=request["pre_vote"],
    )
    topics = [vote.TopicData(topic_name=CLUSTER_METADATA, partitions=[partition])]
    return vote.VoteRequest(cluster_id=request["cluster_id"], voter_id=request["voter_id"], topics=topics)


def begin_by(leader_id: int, epoch: int) -> begin.BeginQuorumEpochRequest:
    partition = begin.PartitionData(leader_id=leader_id, leader_epoch=epoch)
    topics = [begin.TopicData(topic_name=CLUSTER_METADATA, partitions=[partition])]
    return begin.BeginQuorumEpochRequest(cluster_id="ours", voter_id=0, topics=topics)


def end_by(leader_id: int, epoch: int, *successors: ReplicaKey) -> end.EndQuorumEpochRequest:
    partition = end.PartitionData(
        leader_id=leader_id,
        leader_epoch=epoch,
        preferred_candidates=[end.ReplicaInfo(key.node_id, key.directory_id) for key in successors],
    )
    topics = [end.TopicData(topic_name=CLUSTER_METADATA, partitions=[partition])]
    return end.EndQuorumEpochRequest(cluster_id="ours", topics=topics)


def sent(raft: Raft) -> list[SendRequest]:
    return [effect for effect in raft.take_effects() if isinstance(effect, SendRequest)]


# Alone


def test_a_quorum_of_one_leads_at_once() -> None:
    log = log_of(1, 1)
    raft = core(log, VoterSet([Voter(0, "n0", 9093, DISK)]), QuorumState(leader_epoch=4, voted_id=0))
    raft.start(100.0)
    assert raft.is_leader
    assert raft.epoch == 5
    effects = raft.take_effects()
    assert isinstance(effects[0], Save)
    assert effects[0].state.leader_epoch == 5
    assert Flush() in effects
    assert Leading(5) not in effects, "nothing is committed before it is on disk"
    log.end_flush(*log.begin_flush())
    raft.on_flushed(100.0)
    assert raft.take_effects() == [HighWatermark(3), Leading(5)]
    assert raft.deadline == float("inf")
    assert raft.append([7, 8], 101.0) == 3
    assert raft.high_watermark == 3
    log.end_flush(*log.begin_flush())
    raft.on_flushed(101.0)
    assert raft.take_effects() == [Flush(), HighWatermark(5)]


def test_who_does_not_lead_appends_nothing() -> None:
    raft = core()
    raft.start(0.0)
    with pytest.raises(NotLeader):
        raft.append([1], 0.0)
    raft.resign(0.0)
    assert raft.role == "unattached"


# Votes


def test_a_vote_is_saved_before_its_answer() -> None:
    raft = core()
    raft.start(0.0)
    raft.take_effects()
    answer = raft.on_vote(vote_by(1, 3), 0.1).topics[0].partitions[0]
    assert answer.vote_granted
    saves = [effect.state for effect in raft.take_effects() if isinstance(effect, Save)]
    assert saves[-1] == QuorumState(leader_epoch=3, voted_id=1)


def test_one_vote_for_each_epoch() -> None:
    raft = core()
    raft.start(0.0)
    granted = [
        raft.on_vote(vote_by(replica_id, epoch), 0.1).topics[0].partitions[0].vote_granted
        for replica_id, epoch in [(1, 3), (2, 3), (1, 3), (2, 4), (1, 3)]
    ]
    assert granted == [True, False, True, True, False]


@pytest.mark.parametrize(
    ("last", "expected"),
    [((2, 3), True), ((2, 4), True), ((3, 1), True), ((2, 2), False), ((1, 9), False), ((0, 0), False)],
)
def test_a_candidate_must_have_as_much(last: tuple[int, int], expected: bool) -> None:
    raft = core(log_of(1, 2, 2))
    raft.start(0.0)
    for pre_vote in (True, False):
        answer = raft.on_vote(vote_by(1, 9, last, pre_vote=pre_vote), 0.1)
        assert answer.topics[0].partitions[0].vote_granted is expected


def test_pre_votes_are_refused_while_a_leader_is_heard() -> None:
    raft = core()
    raft.start(0.0)
    raft.take_effects()
    raft.on_begin_quorum_epoch(begin_by(1, 3), 0.1)
    (fetch,) = sent(raft)
    assert fetch.to == Peer(1, "n1", 9093)
    asked = vote_by(2, 3, pre_vote=True)
    assert raft.on_vote(asked, 0.2).topics[0].partitions[0].vote_granted, "it has not said anything yet"
    leader = Raft(
        node_id=1,
        directory_id=UUID(int=1),
        cluster_id="ours",
        voters=VoterSet([Voter(1, "n1", 9093)]),
        state=QuorumState(leader_epoch=2),
        log=log_of(),
        timing=RaftTiming(),
        random=random.Random(1),
    )
    leader.start(0.0)
    request = replica_fetch(fetch.request)  # type: ignore[arg-type]
    assert request is not None
    answer = leader.on_fetch(request, 0.2)
    assert answer.error == ErrorCode.NONE
    raft.on_answer(fetch.to, fetch.request, fetch_response(answer, leader.leader, None), 0.3)
    response = raft.on_vote(asked, 0.4)
    assert not response.topics[0].partitions[0].vote_granted
    assert response.topics[0].partitions[0].leader_id == 1
    assert response.node_endpoints[0].host == "n1"


def test_silence_makes_a_follower_ask_before_it_stands() -> None:
    raft = core()
    raft.start(0.0)
    raft.on_begin_quorum_epoch(begin_by(1, 3), 0.0)
    raft.take_effects()
    raft.on_time(2.0)
    assert raft.role == "prospective"
    requests = sent(raft)
    assert {send.to.node_id for send in requests} == {1, 2}
    assert all(send.request.topics[0].partitions[0].pre_vote for send in requests)  # type: ignore[attr-defined]
    assert raft.epoch == 3


def test_a_successor_stands_at_once() -> None:
    raft = core()
    raft.start(0.0)
    raft.on_begin_quorum_epoch(begin_by(1, 3), 0.0)
    raft.on_end_quorum_epoch(end_by(1, 3, ReplicaKey(0, DISK), ReplicaKey(2)), 0.5)
    assert raft.deadline <= 0.5
    raft.on_time(0.5)
    assert raft.role == "prospective"


def test_a_long_list_of_successors_is_read_like_a_short_one() -> None:
    raft = core()
    raft.start(0.0)
    raft.on_begin_quorum_epoch(begin_by(1, 3), 0.0)
    others = [ReplicaKey(node_id) for node_id in range(5000, 10_000)]
    raft.on_end_quorum_epoch(end_by(1, 3, others[0], ReplicaKey(0, DISK), *others), 0.5)
    assert 0.5 <= raft.deadline < 1.6


def test_a_leader_steps_down_for_a_later_epoch() -> None:
    raft = core(voters=VoterSet([Voter(0, "n0", 9093, DISK)]))
    raft.start(0.0)
    epoch = raft.epoch
    raft.take_effects()
    raft.on_vote(vote_by(1, epoch + 1, (0, 0)), 0.1)
    assert not raft.is_leader
    assert NoLongerLeading(epoch) in raft.take_effects()


# What others get wrong


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (vote.VoteRequest(cluster_id="ours"), ErrorCode.INVALID_REQUEST),
        (vote.VoteRequest(cluster_id="ours", topics=[vote.TopicData("other")]), ErrorCode.INVALID_REQUEST),
        (vote_by(1, 9, cluster_id="theirs"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (begin.BeginQuorumEpochRequest(cluster_id="theirs"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (begin.BeginQuorumEpochRequest(cluster_id=None), ErrorCode.INVALID_REQUEST),
        (end.EndQuorumEpochRequest(cluster_id="theirs"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (end.EndQuorumEpochRequest(), ErrorCode.INVALID_REQUEST),
    ],
)
def test_requests_about_nothing_or_of_strangers(request_: Any, error: ErrorCode) -> None:
    raft = core()
    raft.start(0.0)
    assert raft.on_request(request_, 0.1).error_code == error  # type: ignore[attr-defined]
    assert raft.epoch == 0


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (vote_by(1, 1), ErrorCode.FENCED_LEADER_EPOCH),
        (vote_by(1, 9, voter_id=2), ErrorCode.INVALID_VOTER_KEY),
        (vote_by(-1, 9), ErrorCode.INVALID_REQUEST),
        (vote_by(0, 9), ErrorCode.INVALID_REQUEST),
        (vote_by(1, 9, (9, 4)), ErrorCode.INVALID_REQUEST),
        (vote_by(1, 9, (2, -4)), ErrorCode.INVALID_REQUEST),
        (vote_by(1, 2**31 - 1), ErrorCode.INVALID_REQUEST),
        (begin_by(1, 1), ErrorCode.FENCED_LEADER_EPOCH),
        (begin_by(0, 9), ErrorCode.INVALID_REQUEST),
        (begin_by(-1, 9), ErrorCode.INVALID_REQUEST),
        (begin_by(7, 9), ErrorCode.INVALID_REQUEST),
        (begin_by(2, 2), ErrorCode.INVALID_REQUEST),
        (end_by(1, 1), ErrorCode.FENCED_LEADER_EPOCH),
        (end_by(2, 2), ErrorCode.INVALID_REQUEST),
        (end_by(-5, 9), ErrorCode.INVALID_REQUEST),
    ],
)
def test_odd_requests_are_answered_and_change_nothing(request_: Any, error: ErrorCode) -> None:
    raft = core()
    raft.start(0.0)
    raft.on_begin_quorum_epoch(begin_by(1, 2), 0.0)
    answer = raft.on_request(request_, 0.1).topics[0].partitions[0]  # type: ignore[attr-defined]
    assert answer.error_code == error
    assert (answer.leader_id, answer.leader_epoch) == (1, 2)
    assert (raft.epoch, raft.leader_id) == (2, 1)


def test_a_replaced_disk_is_another_voter() -> None:
    raft = core(voters=VoterSet([Voter(0, "n0", 9093, UUID(int=77)), Voter(1, "n1", 9093)]))
    raft.start(0.0)
    assert not raft.is_voter
    answer = raft.on_vote(vote_by(1, 9), 0.1).topics[0].partitions[0]
    assert answer.error_code == ErrorCode.INCONSISTENT_VOTER_SET
    assert not answer.vote_granted
    assert raft.epoch == 0


NUMBERS = [-(2**31), -2, -1, 0, 0, 1, 1, 1, 2, 3, 4, 2**31 - 1, 2**40]


def odd_answer(request: object, toss: random.Random) -> Any:
    """An answer of the right kind with any numbers in it, or none, or one about nothing."""

    def pick() -> int:
        return toss.choice(NUMBERS)

    error = toss.choice((0, 0, 0, 6, 74, 75, 98, 104))
    if toss.random() < 0.2:
        return None
    if isinstance(request, FetchRequest):
        partition = fetched.PartitionData(
            error_code=error,
            high_watermark=pick(),
            current_leader=fetched.LeaderIdAndEpoch(pick(), pick()),
            diverging_epoch=fetched.EpochEndOffset(pick(), pick()) if toss.random() < 0.3 else fetched.EpochEndOffset(),
            snapshot_id=fetched.SnapshotId(pick(), pick()) if toss.random() < 0.3 else fetched.SnapshotId(),
        )
        topics = [fetched.FetchableTopicResponse(partitions=[partition] * toss.choice((0, 1, 1, 1, 2)))]
        return fetched.FetchResponse(error_code=error if error == 104 else 0, responses=topics)
    if isinstance(request, FetchSnapshotRequest):
        piece = pieces.PartitionSnapshot(
            error_code=error,
            snapshot_id=pieces.SnapshotId(pick(), pick()),
            current_leader=pieces.LeaderIdAndEpoch(pick(), pick()),
            size=pick(),
            position=pick(),
            unaligned_records=bytes(toss.randrange(4)),
        )
        if toss.random() < 0.5:
            asked = request.topics[0].partitions[0]
            piece.snapshot_id = pieces.SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
            piece.position = asked.position
        return pieces.FetchSnapshotResponse(topics=[pieces.TopicSnapshot(CLUSTER_METADATA, [piece])])
    if isinstance(request, vote.VoteRequest):
        node = voted.NodeEndpoint(pick(), "somewhere", 1)
        ballot = voted.PartitionData(0, error, pick(), pick(), toss.random() < 0.5)
        return voted.VoteResponse(topics=[voted.TopicData(CLUSTER_METADATA, [ballot])], node_endpoints=[node])
    return begun.BeginQuorumEpochResponse(
        topics=[begun.TopicData(CLUSTER_METADATA, [begun.PartitionData(0, error, pick(), pick())])]
    )


def test_whatever_is_said_is_survived() -> None:
    """Any numbers in every field of requests, and of answers to what the core itself asked."""
    toss = random.Random(20)

    def pick() -> int:
        return toss.choice(NUMBERS)

    roles = set()
    for _ in range(400):
        log = log_of(1, 1, 2)
        raft = core(log)
        raft.start(0.0)
        for step in range(15):
            now = step / 2
            raft.on_time(now)
            if toss.random() < 0.5:
                raft.on_vote(vote_by(pick(), pick(), (pick(), pick()), pre_vote=toss.random() < 0.5), now)
                raft.on_begin_quorum_epoch(begin_by(pick(), pick()), now)
                raft.on_end_quorum_epoch(end_by(pick(), pick(), ReplicaKey(pick())), now)
            raft.on_fetch(ReplicaFetch(pick(), pick(), pick(), pick(), high_watermark=pick()), now)
            raft.on_fetch_snapshot(ReplicaKey(pick()), pick(), "ours", now)
            for effect in raft.take_effects():
                if isinstance(effect, SendRequest):
                    raft.on_answer(effect.to, effect.request, odd_answer(effect.request, toss), now)
                elif isinstance(effect, InstallSnapshot):
                    log.install(effect.snapshot_id, b"")
                    raft.on_snapshot_installed(effect.snapshot_id, now)
            roles.add(raft.role)
    assert roles == {"unattached", "prospective", "candidate", "leader", "follower", "resigned"}


# Where logs agree


@pytest.mark.parametrize(
    ("offset", "epoch", "expected"),
    [
        (0, 0, None),
        (2, 1, None),
        (5, 3, None),
        (4, 3, None),
        (6, 3, EpochEnd(3, 5)),
        (3, 1, EpochEnd(1, 2)),
        (4, 2, EpochEnd(1, 2)),
        (2, 2, EpochEnd(1, 2)),
        (5, 4, EpochEnd(3, 5)),
    ],
)
def test_a_position_is_held_against_the_log(offset: int, epoch: int, expected: EpochEnd | None) -> None:
    assert check_position(log_of(1, 1, 3, 3, 3), offset, epoch) == expected


@pytest.mark.parametrize(
    ("offset", "epoch", "expected"),
    [
        (10, 2, None),
        (12, 4, None),
        (9, 2, SnapshotId(10, 2)),
        (0, 0, SnapshotId(10, 2)),
        (11, 1, SnapshotId(10, 2)),
        (10, 3, SnapshotId(10, 2)),
        (11, 3, EpochEnd(3, 10)),
        (13, 4, EpochEnd(4, 12)),
    ],
)
def test_below_the_log_start_there_is_the_snapshot(offset: int, epoch: int, expected: object) -> None:
    """(10, 3): its last entry is of an epoch that has no entry here, and stands where the snapshot ends: a fork."""
    log = log_of(4, 4, start=10, snapshot=SnapshotId(10, 2))
    assert check_position(log, offset, epoch) == expected


@pytest.mark.parametrize(
    ("diverging", "expected"),
    [(EpochEnd(3, 4), 4), (EpochEnd(3, 9), 5), (EpochEnd(2, 9), 2), (EpochEnd(1, 1), 1), (EpochEnd(0, 0), 0)],
)
def test_a_log_is_cut_where_both_can_agree(diverging: EpochEnd, expected: int) -> None:
    assert truncation_point(log_of(1, 1, 3, 3, 3), diverging) == expected


# Voters


def test_a_voter_set_survives_its_record() -> None:
    assert VoterSet.of_record(VOTERS.record()) == VOTERS
    assert VOTERS.majority == 2
    assert VOTERS.holds(ReplicaKey(0, DISK))
    assert not VOTERS.holds(ReplicaKey(0, UUID(int=5)))
    assert VOTERS.holds(ReplicaKey(1, UUID(int=5))), "where no directory is named, the id decides"


def test_a_leader_counts_the_voters_it_learns_of() -> None:
    log = log_of()
    raft = core(log, VoterSet([Voter(0, "n0", 9093, DISK)]))
    raft.start(0.0)
    log.end_flush(*log.begin_flush())
    raft.on_flushed(0.0)
    raft.learn_voters(VOTERS, 1)
    raft.append([1, 2], 0.1)
    log.end_flush(*log.begin_flush())
    raft.on_flushed(0.1)
    assert raft.high_watermark == 1, "one of three is no majority"
    raft.on_fetch(ReplicaFetch(2, raft.epoch, 3, raft.epoch), 0.2)
    assert raft.high_watermark == 3
    raft.on_time(0.3)
    assert {effect.to.node_id for effect in sent(raft)} == {1}, "who fetches knows already who leads"
    raft.on_time(10.0)
    assert raft.role == "resigned"


def test_a_leader_is_confirmed_while_no_follower_can_stand_for_election() -> None:
    log = log_of()
    raft = core(log, VoterSet([Voter(0, "n0", 9093, DISK)]))
    assert not raft.is_confirmed(0.0), "it does not lead yet"
    raft.start(0.0)
    assert raft.is_confirmed(1000.0), "a quorum of one has no other voter"
    raft.learn_voters(VOTERS, 1)
    raft.on_fetch(ReplicaFetch(2, raft.epoch, 1, raft.epoch), 5.0)
    assert raft.is_confirmed(6.59)
    assert raft.is_leader
    assert not raft.is_confirmed(6.61), "who followed until 5.0 stands from 6.6 on, while we lead until 8.0"


def test_truncation_takes_a_voter_set_back() -> None:
    two, one = VoterSet(list(VOTERS)[:2]), VoterSet(list(VOTERS)[:1])
    history = VoterHistory(VOTERS)
    history.add(10, two)
    history.add(20, one)
    assert history.newest == one
    history.truncate_to(20)
    assert history.newest == two
    history.truncate_to(5)
    assert history.newest == VOTERS
    history.replace(30, one)
    history.truncate_to(30)
    assert history.newest == one
