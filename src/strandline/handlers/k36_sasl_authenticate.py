"""SaslAuthenticate (36), versions 0-2: a token of a login, and the server's answer to it.

The connection's gate decides (`broker/network/authentication`). Versions 1 and 2 tell the client how long its session
lasts; it authenticates again before the end.
"""

from __future__ import annotations

from strandline.codec.messages.sasl_authenticate_request import SaslAuthenticateRequest
from strandline.codec.messages.sasl_authenticate_response import SaslAuthenticateResponse
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext

API_KEY = 36
VERSIONS = (0, 2)


def handle(context: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse | None:
    gate = context.connection.gate
    if gate is None:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
        )
    answer: SaslAuthenticateResponse | None = gate.on_authenticate(context, request)
    return answer
