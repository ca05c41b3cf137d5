"""Heartbeat (12), versions 0-4: a member is alive, and hears whether its group rebalances."""

from __future__ import annotations

from strandline.codec.messages.heartbeat_request import HeartbeatRequest
from strandline.codec.messages.heartbeat_response import HeartbeatResponse
from strandline.coordinators.groups.events import Heartbeat
from strandline.coordinators.groups.pending_request import PendingRequest
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext

API_KEY = 12
VERSIONS = (0, 4)


def handle(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse | None:
    pending = PendingRequest(context.reply, refusal=refusal)
    context.node.groups.submit(request.group_id, Heartbeat(pending, request))
    response: HeartbeatResponse | None = pending.collect()
    return response


def refusal(code: ErrorCode) -> HeartbeatResponse:
    # No member can have lost its session while the group is loading, because sessions start when the load has ended.
    return HeartbeatResponse(error_code=ErrorCode.NONE if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else code)
