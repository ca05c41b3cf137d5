"""SyncGroup (14), versions 0-5: the leader hands in the assignment, every member gets its part.

From version 5 a member must name the protocol it believes in.
"""

from __future__ import annotations

from strandline.codec.messages.sync_group_request import SyncGroupRequest
from strandline.codec.messages.sync_group_response import SyncGroupResponse
from strandline.coordinators.groups.events import SyncGroup
from strandline.coordinators.groups.pending_request import PendingRequest
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext

API_KEY = 14
VERSIONS = (0, 5)

PROTOCOL_REQUIRED_FROM_VERSION = 5


def handle(context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse | None:
    if context.api_version >= PROTOCOL_REQUIRED_FROM_VERSION and None in (request.protocol_type, request.protocol_name):
        return refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    pending = PendingRequest(context.reply, refusal=refusal)
    context.node.groups.submit(request.group_id, SyncGroup(pending, request))
    response: SyncGroupResponse | None = pending.collect()
    return response


def refusal(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)
