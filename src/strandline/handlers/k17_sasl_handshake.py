"""SaslHandshake (17), versions 0-1: the client names the mechanism of its login.

After version 0 the tokens of the login travel bare, after version 1 in SaslAuthenticate. The connection's gate decides;
a connection that needs no login, or is authenticated for good, gets ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from strandline.codec.messages.sasl_handshake_request import SaslHandshakeRequest
from strandline.codec.messages.sasl_handshake_response import SaslHandshakeResponse
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext

API_KEY = 17
VERSIONS = (0, 1)


def handle(context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse | None:
    gate = context.connection.gate
    if gate is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    answer: SaslHandshakeResponse | None = gate.on_handshake(context, request)
    return answer
