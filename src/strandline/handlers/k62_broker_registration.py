"""BrokerRegistration (62), versions 0-4: a broker makes itself known to the active controller and gets its epoch.

Honoured: cluster id, the id of the process (incarnation), listeners, features, rack, log directories, and the epoch of
a clean shutdown before (version 3). Versions before 2 name no directory and are refused with INVALID_REGISTRATION, as
Kafka does at this metadata version. Answered when the registration is committed.
"""

from __future__ import annotations

import logging

from strandline.codec.messages.broker_registration_request import BrokerRegistrationRequest
from strandline.codec.messages.broker_registration_response import BrokerRegistrationResponse
from strandline.errors import error_code
from strandline.handlers.support.context import RequestContext
from strandline.observability.log_lines import fields

API_KEY = 62
VERSIONS = (0, 4)

log = logging.getLogger("strandline.controller")


def handle(context: RequestContext, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse | None:
    node = context.node

    def on_done(epoch: int | None, error: BaseException | None) -> None:
        if error is not None:
            facts = fields(broker_id=request.broker_id, error_code=error_code(error))
            log.info("broker %d is not registered: %s", request.broker_id, error, extra=facts)
            context.reply(BrokerRegistrationResponse(error_code=error_code(error)))
            return
        assert epoch is not None
        facts = fields(broker_id=request.broker_id, broker_epoch=epoch)
        log.info("broker %d is registered with epoch %d", request.broker_id, epoch, extra=facts)
        context.reply(BrokerRegistrationResponse(broker_epoch=epoch))

    steps = node.controller.registration(
        request,
        cluster_id=node.cluster_id,
        now=node.runtime.monotonic(),
        next_offset=lambda: node.metadata.next_offset,
        # Only one process can have this directory open, so an earlier incarnation is over.
        is_own=request.broker_id == node.node_id and node.directory_id in request.log_dirs,
    )
    node.controller.submit_steps(steps, on_done)
    return None
