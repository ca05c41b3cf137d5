"""Envelope (58), version 0: a client's request that a broker hands on to the active controller.

`request_data` is the request as the client sent it, header and body; the answer's `response_data` is header and body of
what the client is to get. Served on the controller listener only. The sender needs CLUSTER_ACTION; the request in it is
checked for its principal and address. Refused: requests that are not forwarded (an Envelope among them), versions that
are not served, bytes that are no request, a principal that cannot be read. If the controller lost its office meanwhile,
the whole Envelope is answered with NOT_CONTROLLER, so that the broker asks the next one.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from struct import Struct
from typing import Any, Final, NamedTuple

from strandline.codec.answers import response_class
from strandline.codec.message import Message
from strandline.codec.message_codec import decode, encode
from strandline.codec.messages.envelope_request import EnvelopeRequest
from strandline.codec.messages.envelope_response import EnvelopeResponse
from strandline.codec.wire import skip_tags
from strandline.errors import ErrorCode, MalformedMessage, PeerError, RequestError
from strandline.handlers.access.serving import serve
from strandline.handlers.support.context import ApiRange, EncodedResponse, Metadata, RequestContext
from strandline.handlers.support.local_context import LocalContext
from strandline.observability.response_errors import carries_error
from strandline.security.principal import decode_session

API_KEY = 58
VERSIONS = (0, 0)

HEADER: Final = Struct(">hhih")
"""API key, version, correlation id, length of the client id."""
_CORRELATION_ID: Final = Struct(">i")


class Wrapped(NamedTuple):
    """What is in an Envelope."""

    route: Any
    version: int
    correlation_id: int
    client_id: str | None
    request: Message


def handle(context: RequestContext, request: EnvelopeRequest) -> EnvelopeResponse | None:
    try:
        wrapped = unwrap(context.routes, request.request_data)
        session = decode_session(request.request_principal)
        client_host = _host(request.client_host_address)
    except MalformedMessage:
        # What cannot be read may be of a version that is newer than we are: that is what Kafka says of it.
        return EnvelopeResponse(error_code=int(ErrorCode.UNSUPPORTED_VERSION))
    except PeerError as error:
        return EnvelopeResponse(error_code=int(error.code))
    epoch = context.node.metadata.epoch

    def on_reply(response: Any) -> None:
        context.reply(_wrap(context, wrapped, response, epoch))

    inner = LocalContext(
        context.node,
        context.routes,
        wrapped.version,
        on_reply,
        client_id=wrapped.client_id,
        client_host=client_host,
        session=session,
        pays_quotas=True,
    )
    try:
        response = serve(inner, wrapped.route, wrapped.request)
    except PeerError as error:
        return EnvelopeResponse(error_code=int(error.code))
    if response is not None:
        inner.reply(response)
    return None


def unwrap(routes: Mapping[int, ApiRange], content: bytes) -> Wrapped:
    """Return the request in an Envelope; raise PeerError with the error code of the EnvelopeResponse."""
    if len(content) < HEADER.size:
        raise MalformedMessage("an Envelope without a request")
    api_key, version, correlation_id, client_id_size = HEADER.unpack_from(content)
    route: Any = routes.get(api_key)
    if route is None or not route.is_forwarded:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"requests with API key {api_key} are not forwarded")
    if not route.version_min <= version <= route.version_max:
        raise RequestError(ErrorCode.UNSUPPORTED_VERSION, f"{route.name} has no version {version}")
    at = HEADER.size + max(0, client_id_size)
    if client_id_size < -1 or at > len(content):
        raise MalformedMessage(f"a client id of {client_id_size} bytes")
    client_id = None if client_id_size < 0 else content[HEADER.size : at].decode("utf-8", "replace")
    try:
        if version >= route.flexible_from:
            at = skip_tags(content, at)
    except IndexError:
        raise MalformedMessage("a header that ends within its tagged fields") from None
    request, _ = decode(route.load().request_class, version, content, at, elements_max=route.elements_max)
    return Wrapped(route, version, correlation_id, client_id, request)


def _host(address: bytes) -> str:
    if len(address) not in (4, 16):
        raise RequestError(ErrorCode.INVALID_REQUEST, f"a client address of {len(address)} bytes")
    return str(ipaddress.ip_address(address))


def _wrap(context: RequestContext, wrapped: Wrapped, response: Any, epoch: int) -> EnvelopeResponse:
    if lost_office(context.node.metadata, wrapped.request, wrapped.version, response, epoch):
        return EnvelopeResponse(error_code=int(ErrorCode.NOT_CONTROLLER))
    body = response.body if type(response) is EncodedResponse else encode(response, wrapped.version)
    tags = b"\x00" if wrapped.version >= wrapped.route.flexible_from else b""
    return EnvelopeResponse(response_data=_CORRELATION_ID.pack(wrapped.correlation_id) + tags + body)


def lost_office(metadata: Metadata, request: Message, version: int, response: Any, epoch: int) -> bool:
    """Return whether the answer says NOT_CONTROLLER somewhere; `epoch` was the quorum's when the request was begun."""
    if type(response) is EncodedResponse:
        if metadata.is_leader and metadata.epoch == epoch:
            # It was in office all the time; a long answer need not be read again to know.
            return False
        response, _ = decode(response_class(type(request)), version, response.body)
    return carries_error(response, ErrorCode.NOT_CONTROLLER)
