"""AssignReplicasToDirs (73), version 0: a broker says in which of its directories its replicas are (KIP-858).

Honoured: the broker epoch, STALE_BROKER_EPOCH for the whole request if another life of the broker is registered. Each
partition has its outcome, sent when it is committed: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, or
NOT_LEADER_OR_FOLLOWER where the broker has no replica. As with AlterPartition, a controller that lost its lead says so
for the whole request. As in Kafka, a directory that is not online is taken, and the broker does not lead there.
"""

from __future__ import annotations

from uuid import UUID

from strandline.codec.messages.assign_replicas_to_dirs_request import AssignReplicasToDirsRequest
from strandline.codec.messages.assign_replicas_to_dirs_response import (
    AssignReplicasToDirsResponse,
    DirectoryData,
    PartitionData,
    TopicData,
)
from strandline.errors import ErrorCode, RequestError, error_code
from strandline.handlers.support.context import RequestContext
from strandline.quorum.controller.submission import Outcomes

API_KEY = 73
VERSIONS = (0, 0)


def handle(context: RequestContext, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse | None:
    node = context.node
    try:
        decisions = node.controller.decide_directories(request)
    except RequestError as refusal:
        return AssignReplicasToDirsResponse(error_code=error_code(refusal))

    def on_done(outcomes: Outcomes[tuple[UUID, UUID, PartitionData]]) -> None:
        directories: dict[UUID, DirectoryData] = {}
        topics: dict[tuple[UUID, UUID], TopicData] = {}
        for (directory_id, topic_id, outcome), error in outcomes:
            if error is not None and error_code(error) == ErrorCode.NOT_CONTROLLER:
                context.reply(AssignReplicasToDirsResponse(error_code=ErrorCode.NOT_CONTROLLER))
                return
            if error is not None:
                outcome = PartitionData(outcome.partition_index, error_code=error_code(error))
            directory = directories.setdefault(directory_id, DirectoryData(directory_id))
            if (directory_id, topic_id) not in topics:
                topics[directory_id, topic_id] = TopicData(topic_id)
                directory.topics.append(topics[directory_id, topic_id])
            topics[directory_id, topic_id].partitions.append(outcome)
        context.reply(AssignReplicasToDirsResponse(directories=list(directories.values())))

    node.controller.submit_all(decisions, on_done)
    return None
