"""ConsumerGroupHeartbeat (68), versions 0-1: all that a member of the consumer protocol (KIP-848) has to say.

Honoured: member ids of the client (1) and of the coordinator (0), static members, subscriptions by name and by
pattern (1), server-side assignors. UNSUPPORTED_VERSION while the cluster's `group.version` is 0 or the broker does not
serve the protocol (`group.coordinator.rebalance.protocols`). Throttle time is always 0.
"""

from __future__ import annotations

from functools import partial

from strandline.codec.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from strandline.codec.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from strandline.coordinators.groups.events import ConsumerHeartbeat
from strandline.coordinators.groups.pending_request import PendingRequest
from strandline.errors import ErrorCode
from strandline.handlers.access.client_guard import ClientGuard
from strandline.handlers.support.context import RequestContext
from strandline.quorum.image.cluster_image import GROUP_VERSION
from strandline.security.acl.kinds import Operation, ResourceType

API_KEY = 68
VERSIONS = (0, 1)


def handle(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse | None:
    if not context.node.image.features.get(GROUP_VERSION, 0):
        return refusal(ErrorCode.UNSUPPORTED_VERSION)
    pending = PendingRequest(context.reply, refusal=refusal)
    context.node.groups.submit(
        request.group_id,
        ConsumerHeartbeat(
            pending,
            request,
            api_version=context.api_version,
            client_id=context.client_id or "",
            # Kafka's tools know a host in the form that Java gives to an address.
            client_host=f"/{context.client_host}",
            may_describe=None if context.guard is None else partial(_may_describe, context.guard),
        ),
    )
    response: ConsumerGroupHeartbeatResponse | None = pending.collect()
    return response


def _may_describe(guard: ClientGuard, topic: str) -> bool:
    return guard.shows(Operation.DESCRIBE, ResourceType.TOPIC, topic)


def refusal(code: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code)
