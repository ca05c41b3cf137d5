"""AlterUserScramCredentials (51), version 0: writes and removes SCRAM credentials of users.

The client computes the salted password; the controller derives and stores the keys. All users that are not refused are
changed in one batch of records. Answered when it is committed.
"""

from __future__ import annotations

from strandline.codec.messages.alter_user_scram_credentials_request import AlterUserScramCredentialsRequest
from strandline.codec.messages.alter_user_scram_credentials_response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from strandline.errors import error_code, error_message
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.refusals import refusal
from strandline.quorum.controller.security.credentials import AlteredUser

API_KEY = 51
VERSIONS = (0, 0)


def handle(context: RequestContext, request: AlterUserScramCredentialsRequest) -> None:
    def on_done(outcomes: list[AlteredUser] | None, error: BaseException | None) -> None:
        if outcomes is None:
            assert error is not None
            context.reply(refusal(request, context.api_version, error_code(error), error_message(error)))
            return
        results = [
            AlterUserScramCredentialsResult(
                user=each.name,
                error_code=0 if each.refusal is None else error_code(each.refusal),
                error_message=None if each.refusal is None else error_message(each.refusal),
            )
            for each in outcomes
        ]
        context.reply(AlterUserScramCredentialsResponse(results=results))

    controller = context.node.controller
    controller.submit(lambda: controller.alter_credentials(request), on_done)
