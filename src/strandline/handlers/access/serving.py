"""The way from a decoded request to its handler, for requests of clients and of other brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from strandline.codec.message import Message
from strandline.errors import ErrorCode, RequestError

if TYPE_CHECKING:
    from strandline.handlers.support.context import RequestContext


class Served(Protocol):
    """A row of the table of routes."""

    api_key: int
    name: str

    def load(self) -> Any: ...


class RefusedRequest(NamedTuple):
    """A request of which nothing is left."""

    response: Any


def serve(context: RequestContext, route: Served, request: Message) -> Any:
    """Have the handler answer what the client may ask for, and refuse the rest. Return None if it answers later."""
    if context.node.authorizer is not None:
        allowed = reduce(context, route, request)
        if isinstance(allowed, RefusedRequest):
            return allowed.response
        request = allowed
    return route.load().handle(context, request)


def reduce(context: RequestContext, route: Served, request: Message) -> Message | RefusedRequest:
    """Return what the client may ask for; `context.amend` puts the rest into the response.

    Raise RequestError where a refusal has no place in the response, so that the connection is closed.
    """
    # Loaded late, because a node without access rules does not need it.
    from strandline.handlers.access.authorization import authorize

    outcome = authorize(context, route.api_key, route.name, request)
    if outcome is None:
        return request
    if outcome.request is not None:
        context.amend = outcome.amend
        reduced: Message = outcome.request
        return reduced
    if outcome.answer is None:
        raise RequestError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "the client may not ask this")
    return RefusedRequest(outcome.answer)
