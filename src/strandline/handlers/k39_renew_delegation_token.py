"""RenewDelegationToken (39), versions 1-2: another end of a token, by its owner or one of its renewers.

The new end is never later than the token may live. Answered when its record is committed.
"""

from __future__ import annotations

from strandline.codec.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from strandline.codec.messages.renew_delegation_token_response import RenewDelegationTokenResponse
from strandline.errors import error_code
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.token_requests import NO_TIME, refused_here

API_KEY = 39
VERSIONS = (1, 2)


def handle(context: RequestContext, request: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse | None:
    refused = refused_here(context)
    if refused is not None:
        return RenewDelegationTokenResponse(error_code=refused, expiry_timestamp_ms=NO_TIME)

    def on_done(ends_ms: int | None, error: BaseException | None) -> None:
        code = 0 if error is None else error_code(error)
        context.reply(RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=ends_ms or 0))

    node, by = context.node, context.session.principal
    node.controller.submit(
        lambda: node.controller.renew_token(request.hmac, by, request.renew_period_ms, node.runtime.now_ms()), on_done
    )
    return None
