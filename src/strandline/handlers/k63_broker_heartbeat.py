"""BrokerHeartbeat (63), versions 0-2: a broker lives, tells how far it has read the metadata, and what it wants.

Honoured: fencing and unfencing on request, controlled shutdown, directories that are offline (version 1) or take no
new replicas (version 2). Answered when what follows from it is committed.
"""

from __future__ import annotations

from typing import Any

from strandline.codec.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from strandline.codec.messages.broker_heartbeat_response import BrokerHeartbeatResponse
from strandline.errors import ErrorCode, error_code
from strandline.handlers.support.context import RequestContext
from strandline.quorum.controller.brokers.broker_liveness import OWN_LINK

API_KEY = 63
VERSIONS = (0, 2)


def handle(context: RequestContext, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse | None:
    node = context.node
    if not node.metadata.is_confirmed:
        # An answer is a promise not to fence the broker for a session. If another leads the quorum by now, it would be
        # broken: a broker that is cut off together with us must learn from our silence.
        return BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER)

    def beat() -> tuple[list[Any], BrokerHeartbeatResponse]:
        decision = node.controller.heartbeat(
            request, now=node.runtime.monotonic(), next_offset=node.metadata.next_offset
        )
        # A broker that dies closes the connection of its heartbeats.
        link = OWN_LINK if request.broker_id == node.node_id else context.connection
        node.controller.liveness.on_heartbeat(request.broker_id, link)
        return decision

    def on_done(response: BrokerHeartbeatResponse | None, error: BaseException | None) -> None:
        context.reply(response if error is None else BrokerHeartbeatResponse(error_code=error_code(error)))

    node.controller.submit(beat, on_done)
    return None
