"""ShareGroupHeartbeat (76), version 1: all that a member of a share group (KIP-932) has to say.

UNSUPPORTED_VERSION while the cluster's `share.version` is 0. The rack id is kept, but the assignor does not look at it.
Throttle time is always 0.
"""

from __future__ import annotations

from strandline.codec.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from strandline.codec.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from strandline.coordinators.groups.events import ShareHeartbeat
from strandline.coordinators.groups.pending_request import PendingRequest
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext
from strandline.quorum.image.cluster_image import SHARE_VERSION

API_KEY = 76
VERSIONS = (1, 1)


def handle(context: RequestContext, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse | None:
    if not context.node.image.features.get(SHARE_VERSION, 0):
        return refusal(ErrorCode.UNSUPPORTED_VERSION)
    pending = PendingRequest(context.reply, refusal=refusal)
    context.node.groups.submit(
        request.group_id,
        # Kafka's tools know a host in the form that Java gives to an address.
        ShareHeartbeat(pending, request, context.client_id or "", f"/{context.client_host}"),
    )
    response: ShareGroupHeartbeatResponse | None = pending.collect()
    return response


def refusal(code: ErrorCode) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=code)
