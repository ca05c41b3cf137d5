"""ControllerRegistration (70), version 0: a controller tells its listeners and features to the active one.

The record is kept for whoever lists controllers; nothing is decided by it. Answered when it is committed.
"""

from __future__ import annotations

from strandline.codec.messages.controller_registration_request import ControllerRegistrationRequest
from strandline.codec.messages.controller_registration_response import ControllerRegistrationResponse
from strandline.errors import RequestError, error_code, error_message
from strandline.handlers.support.context import RequestContext

API_KEY = 70
VERSIONS = (0, 0)


def handle(context: RequestContext, request: ControllerRegistrationRequest) -> ControllerRegistrationResponse | None:
    def on_done(error: BaseException | None) -> None:
        context.reply(
            ControllerRegistrationResponse(error_message=None)
            if error is None
            else ControllerRegistrationResponse(error_code=error_code(error), error_message=error_message(error))
        )

    try:
        records = context.node.controller.register_controller(request)
    except RequestError as refusal:
        on_done(refusal)
    else:
        context.node.controller_write(records, on_done)
    return None
