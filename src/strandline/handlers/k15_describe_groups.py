"""DescribeGroups (15), versions 0-6: state, protocol and members of classic groups.

A group that does not exist is Dead; from version 6 it is GROUP_ID_NOT_FOUND too. So is a group of the consumer
protocol, which ConsumerGroupDescribe describes.
"""

from __future__ import annotations

from strandline.codec.messages.describe_groups_request import DescribeGroupsRequest
from strandline.codec.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse
from strandline.coordinators.groups.events import DescribeGroup
from strandline.coordinators.groups.pending_request import PendingRequest
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.group_descriptions import describe_each

API_KEY = 15
VERSIONS = (0, 6)


def handle(context: RequestContext, request: DescribeGroupsRequest) -> None:
    def ask(token: PendingRequest, group_id: str) -> None:
        context.node.groups.submit(group_id, DescribeGroup(token, group_id, context.api_version))

    describe_each(
        context,
        request.groups,
        api_key=API_KEY,
        response=DescribeGroupsResponse(),
        described_class=DescribedGroup,
        with_operations=request.include_authorized_operations,
        ask=ask,
    )
