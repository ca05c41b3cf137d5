"""ConsumerGroupDescribe (69), versions 0-1: epochs, state and members of groups of the consumer protocol.

A group that does not exist or is a classic one is GROUP_ID_NOT_FOUND. UNSUPPORTED_VERSION where heartbeats are too.
"""

from __future__ import annotations

from strandline.codec.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from strandline.codec.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse, DescribedGroup
from strandline.coordinators.groups.events import DescribeConsumerGroup
from strandline.coordinators.groups.pending_request import PendingRequest
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.group_descriptions import describe_each
from strandline.quorum.image.cluster_image import GROUP_VERSION

API_KEY = 69
VERSIONS = (0, 1)


def handle(context: RequestContext, request: ConsumerGroupDescribeRequest) -> None:
    is_served = bool(context.node.image.features.get(GROUP_VERSION, 0))

    def ask(token: PendingRequest, group_id: str) -> None:
        if is_served:
            context.node.groups.submit(group_id, DescribeConsumerGroup(token, group_id))
        else:
            token.refuse(ErrorCode.UNSUPPORTED_VERSION)

    describe_each(
        context,
        request.group_ids,
        api_key=API_KEY,
        response=ConsumerGroupDescribeResponse(),
        described_class=DescribedGroup,
        with_operations=request.include_authorized_operations,
        ask=ask,
    )
