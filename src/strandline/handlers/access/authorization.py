"""Between a decoded request and its handler: refuse what the client may not ask for.

Every way to a handler goes through `serve`: from a connection, and from an Envelope that another broker sent. Requests
of this process to its own controller do not: they come from no client.
"""

from __future__ import annotations

from typing import Any

from strandline.codec.answers import response_class
from strandline.codec.message import Message
from strandline.codec.message_codec import decode
from strandline.handlers.access.checks import AccessOutcome, CheckedRequest
from strandline.handlers.access.client_guard import ClientGuard
from strandline.handlers.access.rights_table import ON_CONTROLLER, RIGHTS
from strandline.handlers.support.context import EncodedResponse, RequestContext


def authorize(context: RequestContext, api_key: int, api: str, request: Message) -> AccessOutcome | None:
    """Return what is left of the request; None if the client may do all that it asks for."""
    authorizer = context.node.authorizer
    if authorizer is None:
        return None
    guard = context.guard = ClientGuard(authorizer, context.session.principal, context.client_host, api)
    check = ON_CONTROLLER.get(api_key) if context.is_at_controller else None
    outcome = (check or RIGHTS[api_key])(
        CheckedRequest(guard, request, context.api_version, context.node.image, context.is_at_controller)
    )
    if outcome is None or outcome.amend is None:
        return outcome
    amend, version = outcome.amend, context.api_version

    def amend_decoded(response: Any) -> Any:
        if type(response) is EncodedResponse:
            response, _ = decode(response_class(type(request)), version, response.body)
        return amend(response)

    return outcome._replace(amend=amend_decoded)
