"""ExpireDelegationToken (40), versions 1-2: another end of a token, by its owner or one of its renewers.

A period below zero removes the token now. Sessions that were begun with it last until they end by themselves.
"""

from __future__ import annotations

from strandline.codec.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from strandline.codec.messages.expire_delegation_token_response import ExpireDelegationTokenResponse
from strandline.errors import error_code
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.token_requests import NO_TIME, refused_here

API_KEY = 40
VERSIONS = (1, 2)


def handle(context: RequestContext, request: ExpireDelegationTokenRequest) -> ExpireDelegationTokenResponse | None:
    refused = refused_here(context)
    if refused is not None:
        return ExpireDelegationTokenResponse(error_code=refused, expiry_timestamp_ms=NO_TIME)

    def on_done(ends_ms: int | None, error: BaseException | None) -> None:
        code = 0 if error is None else error_code(error)
        context.reply(ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=ends_ms or 0))

    node, by = context.node, context.session.principal
    node.controller.submit(
        lambda: node.controller.expire_token(request.hmac, by, request.expiry_time_period_ms, node.runtime.now_ms()),
        on_done,
    )
    return None
