"""ListPartitionReassignments (46), version 0: which partitions are getting other replicas, of some or of all.

Answered from what is committed. The timeout is `broker/network/forwarding`'s.
"""

from __future__ import annotations

from strandline.codec.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from strandline.codec.messages.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from strandline.handlers.support.context import RequestContext
from strandline.quorum.controller.reassignment import ongoing
from strandline.quorum.image.cluster_image import PartitionImage
from strandline.runtime.time_slicing import gradually

API_KEY = 46
VERSIONS = (0, 0)


def handle(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse | None:
    def then(found: list[tuple[str, int, PartitionImage] | None]) -> None:
        topics: dict[str, OngoingTopicReassignment] = {}
        for each in found:
            if each is not None:
                name, index, partition = each
                topics.setdefault(name, OngoingTopicReassignment(name=name)).partitions.append(
                    OngoingPartitionReassignment(
                        partition_index=index,
                        replicas=partition.replicas,
                        adding_replicas=partition.adding_replicas,
                        removing_replicas=partition.removing_replicas,
                    )
                )
        context.reply(ListPartitionReassignmentsResponse(error_message=None, topics=list(topics.values())))

    asked = None if request.topics is None else [(each.name, each.partition_indexes) for each in request.topics]
    gradually(context.node.runtime, ongoing(context.node.image, asked), then)
    return None
