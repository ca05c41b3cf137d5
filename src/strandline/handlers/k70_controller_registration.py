"""ControllerRegistration (70), version 0: a controller tells its listeners and features to the active one.

The record serves clients that list controllers; nothing depends on it. Answered when it is committed.
"""

from __future__ import annotations

from strandline.codec.messages.controller_registration_request import ControllerRegistrationRequest
from strandline.codec.messages.controller_registration_response import ControllerRegistrationResponse
from strandline.errors import error_code, error_message
from strandline.handlers.support.context import RequestContext

API_KEY = 70
VERSIONS = (0, 0)


def handle(context: RequestContext, request: ControllerRegistrationRequest) -> None:
    def on_done(_: None, error: BaseException | None) -> None:
        context.reply(
            ControllerRegistrationResponse(error_message=None)
            if error is None
            else ControllerRegistrationResponse(error_code=error_code(error), error_message=error_message(error))
        )

    controller = context.node.controller
    controller.submit(lambda: (controller.register_controller(request), None), on_done)
