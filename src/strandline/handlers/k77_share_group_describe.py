"""ShareGroupDescribe (77), version 1: epochs, state and members of share groups.

A group that does not exist or is of another kind is GROUP_ID_NOT_FOUND. UNSUPPORTED_VERSION where heartbeats are too.
"""

from __future__ import annotations

from strandline.codec.messages.share_group_describe_request import ShareGroupDescribeRequest
from strandline.codec.messages.share_group_describe_response import DescribedGroup, ShareGroupDescribeResponse
from strandline.coordinators.groups.events import DescribeShareGroup
from strandline.coordinators.groups.pending_request import PendingRequest
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.group_descriptions import describe_each
from strandline.quorum.image.cluster_image import SHARE_VERSION

API_KEY = 77
VERSIONS = (1, 1)


def handle(context: RequestContext, request: ShareGroupDescribeRequest) -> None:
    is_served = bool(context.node.image.features.get(SHARE_VERSION, 0))

    def ask(token: PendingRequest, group_id: str) -> None:
        if is_served:
            context.node.groups.submit(group_id, DescribeShareGroup(token, group_id))
        else:
            token.refuse(ErrorCode.UNSUPPORTED_VERSION)

    describe_each(
        context,
        request.group_ids,
        api_key=API_KEY,
        response=ShareGroupDescribeResponse(),
        described_class=DescribedGroup,
        with_operations=request.include_authorized_operations,
        ask=ask,
    )
