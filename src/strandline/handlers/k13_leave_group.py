"""LeaveGroup (13), versions 0-5: one member goes (0-2), or many, also static ones by their instance id (3+).

The reason (5) is in the group's history.
"""

from __future__ import annotations

from strandline.codec.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from strandline.codec.messages.leave_group_response import LeaveGroupResponse
from strandline.coordinators.groups.events import LeaveGroup
from strandline.coordinators.groups.pending_request import PendingRequest
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext

API_KEY = 13
VERSIONS = (0, 5)

MEMBERS_FROM_VERSION = 3


def handle(context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse | None:
    if context.api_version < MEMBERS_FROM_VERSION:
        request = LeaveGroupRequest(group_id=request.group_id, members=[MemberIdentity(member_id=request.member_id)])

    def shape(response: LeaveGroupResponse) -> LeaveGroupResponse:
        if context.api_version >= MEMBERS_FROM_VERSION:
            return response
        return LeaveGroupResponse(
            error_code=response.error_code or next((member.error_code for member in response.members), 0)
        )

    pending = PendingRequest(context.reply, refusal=refusal, shape=shape)
    context.node.groups.submit(request.group_id, LeaveGroup(pending, request))
    response: LeaveGroupResponse | None = pending.collect()
    return response


def refusal(code: ErrorCode) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=code)
