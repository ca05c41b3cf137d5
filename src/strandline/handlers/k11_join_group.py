"""JoinGroup (11), versions 0-9: enter a group, or take part in its next generation.

Honoured: dynamic members (an id first from version 4), static members (5), the protocol type in the answer (7),
skip_assignment (9). The reason (8) is in the group's history.
"""

from __future__ import annotations

from strandline.codec.messages.join_group_request import JoinGroupRequest
from strandline.codec.messages.join_group_response import JoinGroupResponse
from strandline.coordinators.groups.classic.rebalance import join_refusal
from strandline.coordinators.groups.events import JoinGroup
from strandline.coordinators.groups.pending_request import PendingRequest
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext

API_KEY = 11
VERSIONS = (0, 9)
NULLABLE_PROTOCOL_NAME_FROM_VERSION = 7


def handle(context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse | None:
    def refusal(code: ErrorCode) -> JoinGroupResponse:
        return shape(join_refusal(code, request.member_id))

    def shape(response: JoinGroupResponse) -> JoinGroupResponse:
        if response.protocol_name is None and context.api_version < NULLABLE_PROTOCOL_NAME_FROM_VERSION:
            response.protocol_name = ""
        return response

    pending = PendingRequest(context.reply, refusal=refusal, shape=shape)
    context.node.groups.submit(
        request.group_id,
        JoinGroup(
            pending,
            request,
            api_version=context.api_version,
            client_id=context.client_id or "",
            # Kafka's tools know a host in the form that Java gives to an address.
            client_host=f"/{context.client_host}",
        ),
    )
    response: JoinGroupResponse | None = pending.collect()
    return response
