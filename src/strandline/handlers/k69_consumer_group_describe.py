"""ConsumerGroupDescribe (69), versions 0-1: epochs, state and members of groups of the consumer protocol.

A group that does not exist or is a classic one is GROUP_ID_NOT_FOUND. Authorized operations are all of them while there
are no access rules. A group that is named twice is described once, so that an answer is never larger than all groups
together. Many groups are described over several turns of the loop. UNSUPPORTED_VERSION where heartbeats are too.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from strandline.codec.message import encode
from strandline.codec.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from strandline.codec.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse, DescribedGroup
from strandline.coordinators.events import DescribeConsumerGroup
from strandline.errors import ErrorCode
from strandline.handlers.context import RequestContext
from strandline.handlers.gathering import Gathering
from strandline.handlers.k15_describe_groups import GROUP_OPERATIONS
from strandline.handlers.shares import gradually, joined_response
from strandline.quorum.cluster_image import GROUP_VERSION

API_KEY = 69
VERSIONS = (0, 1)


def handle(context: RequestContext, request: ConsumerGroupDescribeRequest) -> None:
    version = context.api_version

    def answer(parts: list[bytes]) -> None:
        context.reply(joined_response(ConsumerGroupDescribeResponse(), version, parts))

    gathering = Gathering(answer)

    def encoded(group: DescribedGroup) -> bytes:
        if group.error_code:
            context.node.count_error(API_KEY, group.error_code)
        elif request.include_authorized_operations:
            group.authorized_operations = GROUP_OPERATIONS
        return encode(group, version)

    def refused(group_id: str, code: ErrorCode) -> bytes:
        return encoded(DescribedGroup(group_id=group_id, error_code=code))

    def ask_all() -> Iterator[None]:
        is_served = bool(context.node.image.features.get(GROUP_VERSION, 0))
        for group_id in dict.fromkeys(request.group_ids):
            token = gathering.token(refusal=partial(refused, group_id), shape=encoded)
            if is_served:
                context.node.groups.submit(group_id, DescribeConsumerGroup(token, group_id))
            else:
                token.refuse(ErrorCode.UNSUPPORTED_VERSION)
            yield

    gradually(context.node.runtime, ask_all(), gathering.end)
