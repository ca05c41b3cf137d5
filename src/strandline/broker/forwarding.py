"""A client's request that only the active controller can answer, handed on in an Envelope, and its answer handed back.

The client is answered on its own connection, in its turn. While no controller is known the request waits, as long as
its own timeout says or `FORWARD_S_MAX`; then it is answered with REQUEST_TIMED_OUT. A request that reached a controller
which then fell silent may have been carried out: that, too, is what this code says.

Wired as `dispatcher.forward = Forwarding(channel).forward` and `dispatcher.is_active = lambda: metadata.is_leader`,
with a `ControllerChannel` of its own: creating thousands of topics takes seconds, and nothing else should wait for it.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from strandline.codec.answers import response_class
from strandline.codec.message import Message, decode, encode
from strandline.codec.messages.envelope_request import EnvelopeRequest
from strandline.codec.messages.envelope_response import EnvelopeResponse
from strandline.codec.wire import skip_tags
from strandline.errors import ErrorCode, error_code, error_message
from strandline.handlers.context import ControllerChannel, EncodedResponse
from strandline.handlers.k58_envelope import ANONYMOUS, HEADER
from strandline.handlers.local_alterations import LocalPart
from strandline.handlers.refusals import refusal

if TYPE_CHECKING:
    from strandline.broker.dispatch import RequestContext

log = logging.getLogger("strandline.broker")

FORWARD_S_MAX: Final = 60.0
FORWARD_S: Final = 30.0
"""Where a request does not say how long it may take."""
FORWARD_S_MIN: Final = 1.0
FORWARD_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of one request: in its Envelope it must still fit into a frame that the controller takes."""
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of all that wait for the controller; nobody else counts them, and without a controller they wait for long."""
_CORRELATION_ID_SIZE: Final = 4


class Forwarding:
    def __init__(self, channel: ControllerChannel) -> None:
        self._channel = channel
        self._waiting_bytes = 0

    def forward(self, context: RequestContext, request: Message, content: bytes) -> None:
        """Hand `content`, the bytes of `request` with its header, to the active controller, and its answer back."""
        local = LocalPart(context.node, request)
        if local.is_nothing:
            self._ask(context, request, content, context.reply)
            return
        rest = local.rest()
        if rest is None:
            context.reply(local.answer(None))
            return

        def on_reply(response: Any) -> None:
            if type(response) is EncodedResponse:
                response, _ = decode(response_class(type(rest)), context.api_version, response.body)
            context.reply(local.answer(response))

        self._ask(context, rest, _header(context, content) + encode(rest, context.api_version), on_reply)

    def _ask(self, context: RequestContext, request: Message, content: bytes, reply: Callable[[Any], object]) -> None:
        if len(content) > FORWARD_BYTES_MAX:
            message = (
                f"{len(content)} bytes are more than the {FORWARD_BYTES_MAX} that are handed on to the controller."
            )
            reply(refusal(request, context.api_version, ErrorCode.POLICY_VIOLATION, message))
            return
        if self._waiting_bytes + len(content) > WAITING_BYTES_MAX:
            message = "Too many requests wait for the controller."
            reply(refusal(request, context.api_version, ErrorCode.REQUEST_TIMED_OUT, message))
            return
        self._waiting_bytes += len(content)
        envelope = EnvelopeRequest(
            request_data=content, request_principal=ANONYMOUS, client_host_address=_packed(context.client_host)
        )

        def on_answer(response: EnvelopeResponse | None, error: BaseException | None) -> None:
            self._waiting_bytes -= len(content)
            if response is not None:
                _unwrap(context, request, response, reply)
            else:
                assert error is not None
                reply(refusal(request, context.api_version, error_code(error), error_message(error)))

        self._channel.ask(envelope, 0, on_answer, timeout_s=_timeout_s(request))


def _unwrap(
    context: RequestContext, request: Message, response: EnvelopeResponse, reply: Callable[[Any], object]
) -> None:
    content = response.response_data
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        # The controller cannot read it: it is older than this broker, and what we said of versions does not hold.
        context.connection.close()
    elif response.error_code or content is None or len(content) < _CORRELATION_ID_SIZE:
        log.error("the controller refused a forwarded %s with code %d", context.route.name, response.error_code)
        reply(refusal(request, context.api_version, ErrorCode.UNKNOWN_SERVER_ERROR))
    else:
        at = _CORRELATION_ID_SIZE
        if context.api_version >= context.route.flexible_from:
            at = skip_tags(content, at)
        reply(EncodedResponse(content[at:]))


def _header(context: RequestContext, content: bytes) -> bytes:
    *_, client_id_size = HEADER.unpack_from(content)
    end = HEADER.size + max(0, client_id_size)
    return content[: skip_tags(content, end) if context.api_version >= context.route.flexible_from else end]


def _timeout_s(request: Any) -> float:
    timeout_ms: int | None = getattr(request, "timeout_ms", None)
    if timeout_ms is None:
        return FORWARD_S
    return min(FORWARD_S_MAX, max(FORWARD_S_MIN, timeout_ms / 1000))


def _packed(host: str) -> bytes:
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        # A name, where the network has no addresses.
        return bytes(4)
