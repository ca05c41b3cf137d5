"""DescribeGroups (15), versions 0-6: state, protocol and members of classic groups.

A group that does not exist is Dead; from version 6 it is GROUP_ID_NOT_FOUND too. So is a group of the consumer
protocol, which ConsumerGroupDescribe describes. Authorized operations (3+) are all of them while there are no access
rules. A group that is named twice is described once, so that an answer is never larger than all groups together. Many
groups are described over several turns of the loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from strandline.codec.message import encode
from strandline.codec.messages.describe_groups_request import DescribeGroupsRequest
from strandline.codec.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse
from strandline.coordinators.events import DescribeGroup
from strandline.errors import ErrorCode
from strandline.handlers.context import RequestContext
from strandline.handlers.gathering import Gathering
from strandline.handlers.shares import gradually, joined_response

API_KEY = 15
VERSIONS = (0, 6)

# Bits by operation number: read, delete, describe, describe and alter configs.
GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))


def handle(context: RequestContext, request: DescribeGroupsRequest) -> None:
    version = context.api_version

    def answer(parts: list[bytes]) -> None:
        context.reply(joined_response(DescribeGroupsResponse(), version, parts))

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
        for group_id in dict.fromkeys(request.groups):
            token = gathering.token(refusal=partial(refused, group_id), shape=encoded)
            context.node.groups.submit(group_id, DescribeGroup(token, group_id, version))
            yield

    gradually(context.node.runtime, ask_all(), gathering.end)
