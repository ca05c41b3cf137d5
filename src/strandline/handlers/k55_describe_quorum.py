"""DescribeQuorum (55), versions 0-2: who leads the metadata quorum, how far each replica is, and where voters are (2).

Answered by the leader; brokers hand it on. The leader itself counts as having fetched now.
"""

from __future__ import annotations

from strandline.codec.messages.describe_quorum_request import DescribeQuorumRequest
from strandline.codec.messages.describe_quorum_response import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.quorum_member import member_of
from strandline.ids import ZERO_UUID
from strandline.quorum.raft.messages import only_partition
from strandline.quorum.raft.raft import Raft, ReplicaFacts

API_KEY = 55
VERSIONS = (0, 2)
DIRECTORIES_FROM = 2
NODES_FROM = 2
NEVER_MS = -1


def handle(context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    raft = member_of(context).raft
    if only_partition(request) is None:
        return _refusal(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Only __cluster_metadata-0 has a quorum.")
    now = context.node.runtime.monotonic()
    replicas = raft.describe(now)
    if not replicas:
        return _refusal(request, ErrorCode.NOT_LEADER_OR_FOLLOWER, "This node does not lead the quorum.")
    states = [(facts.is_voter, _state(context, facts, now)) for facts in replicas]
    partition = PartitionData(
        leader_id=raft.leader_id,
        leader_epoch=raft.epoch,
        high_watermark=raft.high_watermark,
        current_voters=[state for is_voter, state in states if is_voter],
        observers=[state for is_voter, state in states if not is_voter],
    )
    topic = TopicData(topic_name=request.topics[0].topic_name, partitions=[partition])
    return DescribeQuorumResponse(topics=[topic], nodes=_nodes(raft) if context.api_version >= NODES_FROM else [])


def _state(context: RequestContext, facts: ReplicaFacts, now: float) -> ReplicaState:
    now_ms = context.node.runtime.now_ms()

    def wall_ms(at: float | None) -> int:
        return NEVER_MS if at is None else now_ms - round((now - at) * 1000)

    return ReplicaState(
        replica_id=facts.key.node_id,
        replica_directory_id=facts.key.directory_id if context.api_version >= DIRECTORIES_FROM else ZERO_UUID,
        log_end_offset=facts.log_end_offset,
        last_fetch_timestamp=wall_ms(facts.last_fetch_at),
        last_caught_up_timestamp=wall_ms(facts.last_caught_up_at),
    )


def _nodes(raft: Raft) -> list[Node]:
    return [
        Node(node_id=voter.node_id, listeners=[Listener(name=voter.listener_name, host=voter.host, port=voter.port)])
        for voter in raft.voters
    ]


def _refusal(request: DescribeQuorumRequest, code: ErrorCode, message: str) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        topics=[
            TopicData(
                topic_name=topic.topic_name,
                partitions=[
                    PartitionData(partition_index=each.partition_index, error_code=code, error_message=message)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
