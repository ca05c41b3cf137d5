"""The quorum's messages: built from facts, and read back with everything checked that a peer may have got wrong.

All are about one partition, `__cluster_metadata-0`. A message about none, several or another partition is answered with
an error; reading it gives None.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from strandline.codec.messages import begin_quorum_epoch_request as begin
from strandline.codec.messages import begin_quorum_epoch_response as begun
from strandline.codec.messages import end_quorum_epoch_request as end
from strandline.codec.messages import end_quorum_epoch_response as ended
from strandline.codec.messages import fetch_request as fetch
from strandline.codec.messages import fetch_response as fetched
from strandline.codec.messages import fetch_snapshot_request as snapshot
from strandline.codec.messages import vote_request as vote
from strandline.codec.messages import vote_response as voted
from strandline.errors import ErrorCode
from strandline.quorum.controller.topic_names import CLUSTER_METADATA
from strandline.quorum.raft.fetch import ReplicaFetch, ReplicaFetchAnswer
from strandline.quorum.raft.raft_log import SnapshotId
from strandline.quorum.raft.voters import Peer, ReplicaKey, Voter

if TYPE_CHECKING:
    from strandline.codec.message import Message

METADATA_TOPIC_ID: Final = UUID(int=1)
VERSIONS: Final[dict[type[Message], int]] = {
    vote.VoteRequest: 2,
    begin.BeginQuorumEpochRequest: 1,
    end.EndQuorumEpochRequest: 1,
    fetch.FetchRequest: 18,
    snapshot.FetchSnapshotRequest: 1,
}
"""The version that each request of the quorum is sent in."""
MAX_BYTES: Final = 1024 * 1024


def only_partition(message: Any) -> Any | None:
    """Return the one partition of a request or answer of the quorum; None if it is not ours alone."""
    topics = message.topics
    if len(topics) != 1:
        return None
    topic = topics[0]
    name = topic.topic_name if hasattr(topic, "topic_name") else topic.name
    if name != CLUSTER_METADATA or len(topic.partitions) != 1:
        return None
    partition = topic.partitions[0]
    index = partition.partition_index if hasattr(partition, "partition_index") else getattr(partition, "index", 0)
    return partition if index == 0 else None


def endpoint_of(message: Any, node_id: int) -> Peer | None:
    """Return the endpoint of `node_id`, if the answer has it."""
    for node in message.node_endpoints:
        if node.node_id == node_id and node.host and node.port > 0:
            return Peer(node_id, node.host, node.port)
    return None


# Requests


def vote_request(
    cluster_id: str | None, voter: Voter, epoch: int, candidate: ReplicaKey, last: tuple[int, int], *, pre_vote: bool
) -> vote.VoteRequest:
    """`last` is the candidate's (last epoch, end offset)."""
    partition = vote.PartitionData(
        replica_epoch=epoch,
        replica_id=candidate.node_id,
        replica_directory_id=candidate.directory_id,
        voter_directory_id=voter.directory_id,
        last_offset_epoch=last[0],
        last_offset=last[1],
        pre_vote=pre_vote,
    )
    topics = [vote.TopicData(topic_name=CLUSTER_METADATA, partitions=[partition])]
    return vote.VoteRequest(cluster_id=cluster_id, voter_id=voter.node_id, topics=topics)


def begin_request(
    cluster_id: str | None, voter: Voter, epoch: int, leader_id: int, leader: Voter | None
) -> begin.BeginQuorumEpochRequest:
    partition = begin.PartitionData(voter_directory_id=voter.directory_id, leader_id=leader_id, leader_epoch=epoch)
    return begin.BeginQuorumEpochRequest(
        cluster_id=cluster_id,
        voter_id=voter.node_id,
        topics=[begin.TopicData(topic_name=CLUSTER_METADATA, partitions=[partition])],
        leader_endpoints=[begin.LeaderEndpoint(name=leader.listener_name, host=leader.host, port=leader.port)]
        if leader is not None
        else [],
    )


def end_request(
    cluster_id: str | None, epoch: int, leader_id: int, leader: Voter | None, successors: Iterable[ReplicaKey]
) -> end.EndQuorumEpochRequest:
    partition = end.PartitionData(
        leader_id=leader_id,
        leader_epoch=epoch,
        preferred_candidates=[
            end.ReplicaInfo(candidate_id=key.node_id, candidate_directory_id=key.directory_id) for key in successors
        ],
    )
    return end.EndQuorumEpochRequest(
        cluster_id=cluster_id,
        topics=[end.TopicData(topic_name=CLUSTER_METADATA, partitions=[partition])],
        leader_endpoints=[end.LeaderEndpoint(name=leader.listener_name, host=leader.host, port=leader.port)]
        if leader is not None
        else [],
    )


def fetch_request(
    cluster_id: str | None,
    key: ReplicaKey,
    epoch: int,
    position: tuple[int, int],
    high_watermark: int,
    max_wait_s: float,
) -> fetch.FetchRequest:
    """`position` is (last fetched epoch, fetch offset)."""
    partition = fetch.FetchPartition(
        current_leader_epoch=epoch,
        fetch_offset=position[1],
        last_fetched_epoch=position[0],
        partition_max_bytes=MAX_BYTES,
        replica_directory_id=key.directory_id,
        high_watermark=high_watermark,
    )
    return fetch.FetchRequest(
        cluster_id=cluster_id,
        replica_state=fetch.ReplicaState(replica_id=key.node_id),
        max_wait_ms=round(max_wait_s * 1000),
        max_bytes=MAX_BYTES,
        topics=[fetch.FetchTopic(topic=CLUSTER_METADATA, topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def snapshot_request(
    cluster_id: str | None, key: ReplicaKey, epoch: int, snapshot_id: SnapshotId, position: int
) -> snapshot.FetchSnapshotRequest:
    partition = snapshot.PartitionSnapshot(
        current_leader_epoch=epoch,
        snapshot_id=snapshot.SnapshotId(end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch),
        position=position,
        replica_directory_id=key.directory_id,
    )
    return snapshot.FetchSnapshotRequest(
        cluster_id=cluster_id,
        replica_id=key.node_id,
        max_bytes=MAX_BYTES,
        topics=[snapshot.TopicSnapshot(name=CLUSTER_METADATA, partitions=[partition])],
    )


# Answers


def vote_response(
    error: ErrorCode, leader_id: int, epoch: int, leader: Peer | None, *, granted: bool = False
) -> voted.VoteResponse:
    partition = voted.PartitionData(error_code=error, leader_id=leader_id, leader_epoch=epoch, vote_granted=granted)
    return voted.VoteResponse(
        topics=[voted.TopicData(topic_name=CLUSTER_METADATA, partitions=[partition])],
        node_endpoints=[] if leader is None else [voted.NodeEndpoint(leader_id, leader.host, leader.port)],
    )


def begin_response(error: ErrorCode, leader_id: int, epoch: int, leader: Peer | None) -> begun.BeginQuorumEpochResponse:
    partition = begun.PartitionData(error_code=error, leader_id=leader_id, leader_epoch=epoch)
    return begun.BeginQuorumEpochResponse(
        topics=[begun.TopicData(topic_name=CLUSTER_METADATA, partitions=[partition])],
        node_endpoints=[] if leader is None else [begun.NodeEndpoint(leader_id, leader.host, leader.port)],
    )


def end_response(error: ErrorCode, leader_id: int, epoch: int, leader: Peer | None) -> ended.EndQuorumEpochResponse:
    partition = ended.PartitionData(error_code=error, leader_id=leader_id, leader_epoch=epoch)
    return ended.EndQuorumEpochResponse(
        topics=[ended.TopicData(topic_name=CLUSTER_METADATA, partitions=[partition])],
        node_endpoints=[] if leader is None else [ended.NodeEndpoint(leader_id, leader.host, leader.port)],
    )


def replica_fetch(request: fetch.FetchRequest) -> ReplicaFetch | None:
    """Return the facts of a Fetch of `__cluster_metadata-0`; None if it is about anything else."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    topic = request.topics[0]
    partition = topic.partitions[0]
    if topic.topic_id != METADATA_TOPIC_ID and topic.topic != CLUSTER_METADATA:
        return None
    if partition.partition != 0:
        return None
    replica_id = request.replica_state.replica_id
    return ReplicaFetch(
        replica_id if replica_id >= 0 else request.replica_id,
        partition.current_leader_epoch,
        partition.fetch_offset,
        partition.last_fetched_epoch,
        partition.replica_directory_id,
        partition.high_watermark,
        request.cluster_id,
    )


def fetch_response(answer: ReplicaFetchAnswer, leader: Peer | None, records: Any) -> fetched.FetchResponse:
    """`records` are the bytes read for it; they are left out beside an error, a divergence or a snapshot."""
    if answer.error == ErrorCode.INCONSISTENT_CLUSTER_ID:
        return fetched.FetchResponse(error_code=answer.error)
    partition = fetched.PartitionData(
        error_code=answer.error,
        high_watermark=answer.high_watermark,
        last_stable_offset=answer.high_watermark,
        log_start_offset=answer.log_start_offset,
        current_leader=fetched.LeaderIdAndEpoch(answer.leader_id, answer.leader_epoch),
        records=records if answer.has_records else b"",
    )
    if answer.diverging is not None:
        partition.diverging_epoch = fetched.EpochEndOffset(*answer.diverging)
    if answer.snapshot is not None:
        partition.snapshot_id = fetched.SnapshotId(*answer.snapshot)
    topic = fetched.FetchableTopicResponse(topic=CLUSTER_METADATA, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    endpoints = [] if leader is None else [fetched.NodeEndpoint(leader.node_id, leader.host, leader.port)]
    return fetched.FetchResponse(responses=[topic], node_endpoints=endpoints)


def fetched_partition(response: fetched.FetchResponse) -> fetched.PartitionData | None:
    if len(response.responses) != 1 or len(response.responses[0].partitions) != 1:
        return None
    return response.responses[0].partitions[0]
