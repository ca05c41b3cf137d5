"""UnregisterBroker (64), version 0: forget a broker that is gone for good.

It leaves every in-sync set; its replicas stay assigned to its id until they are reassigned, as in Kafka. Answered when
that is committed.
"""

from __future__ import annotations

from strandline.codec.messages.unregister_broker_request import UnregisterBrokerRequest
from strandline.codec.messages.unregister_broker_response import UnregisterBrokerResponse
from strandline.errors import error_code, error_message
from strandline.handlers.support.context import RequestContext

API_KEY = 64
VERSIONS = (0, 0)


def handle(context: RequestContext, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse | None:
    def on_done(outcome: None, error: BaseException | None) -> None:
        context.reply(
            UnregisterBrokerResponse(error_message=None)
            if error is None
            else UnregisterBrokerResponse(error_code=error_code(error), error_message=error_message(error))
        )

    controller = context.node.controller
    controller.submit_steps(controller.unregistration(request.broker_id), on_done)
    return None
