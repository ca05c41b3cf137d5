"""A client's request that only the active controller can answer: done here if this node is the active one, else handed
on in an Envelope, and its answer handed back.

The client is answered on its own connection, in its turn, and not later than its request says (`FORWARD_S` where it
does not, `FORWARD_S_MAX` at most): then with REQUEST_TIMED_OUT. What was asked may be carried out all the same. While
no controller is known, and when a controller loses its office, the request waits for the next one.

A request without any time is answered REQUEST_TIMED_OUT at once, and begun. Apache Kafka's controller gives the same
answer and does nothing. But librdkafka, with `operation_timeout=0`, reports success then: it expects that the request
is under way.

Wired as `dispatcher.forward = Forwarding(channel).forward`, with a `ControllerChannel` of its own: creating thousands
of topics takes seconds, and nothing else should wait for it.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable
from typing import Any, Final

from strandline.broker.network.dispatch import RequestContext
from strandline.codec.answers import response_class
from strandline.codec.message import Message
from strandline.codec.message_codec import decode, encode
from strandline.codec.messages.envelope_request import EnvelopeRequest
from strandline.codec.messages.envelope_response import EnvelopeResponse
from strandline.codec.wire import skip_tags
from strandline.errors import ErrorCode, error_code, error_message
from strandline.handlers.access.serving import serve
from strandline.handlers.k58_envelope import HEADER, lost_office
from strandline.handlers.support.context import ControllerChannel, EncodedResponse
from strandline.handlers.support.local_alterations import LocalPart
from strandline.handlers.support.refusals import refusal
from strandline.runtime.runtime import TimerHandle
from strandline.security.principal import encode_session

log = logging.getLogger("strandline.broker")

FORWARD_S_MAX: Final = 60.0
FORWARD_S: Final = 30.0
"""Where a request does not say how long it may take."""
FORWARD_S_MIN: Final = 1.0
"""How long a controller has to answer, however little time its client has: requests that time out cost a connection."""
FORWARD_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of one request: in its Envelope it must still fit into a frame that the controller takes."""
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of all requests that wait for the controller; no other limit counts them, and they may wait for long."""
_CORRELATION_ID_SIZE: Final = 4
_HAVE_DEADLINE: Final = frozenset((19, 20, 37, 43, 45))
"""CreateTopics, DeleteTopics, CreatePartitions, ElectLeaders, AlterPartitionReassignments: these have a deadline in
Apache Kafka's controller. The timeouts of ListPartitionReassignments and UpdateFeatures only end our wait."""


class TimedContext(RequestContext):
    """A request that is answered in time, by the controller or with REQUEST_TIMED_OUT, and once."""

    __slots__ = ("_client", "_deadline", "_on_lost_office", "_request", "_timer")

    def __init__(self, context: RequestContext, request: Message, timeout_s: float) -> None:
        super().__init__(
            context.node,
            context.route,
            context.exchange,
            context.api_version,
            context.client_id,
            context.client_host,
        )
        self.amend, context.amend = context.amend, None
        self._client = context
        self._request = request
        runtime = self.node.runtime
        self._deadline = runtime.monotonic() + timeout_s
        self._on_lost_office: tuple[int, Callable[[], object]] | None = None
        self._timer: TimerHandle | None = runtime.call_later(timeout_s, self.on_timeout)

    @property
    def left_s(self) -> float:
        return self._deadline - self.node.runtime.monotonic()

    def handle_here(self, on_lost_office: Callable[[], object]) -> None:
        """Have the controller of this node answer, as long as it is the active one."""
        self._on_lost_office = self.node.metadata.epoch, on_lost_office
        response = serve(self, self.route, self._request)
        if response is not None:
            self.reply(response)

    def reply(self, response: Any) -> None:
        if self._timer is None:
            return
        if self._on_lost_office is not None:
            (epoch, on_lost_office), self._on_lost_office = self._on_lost_office, None
            if lost_office(self.node.metadata, self._request, self.api_version, response, epoch):
                on_lost_office()
                return
        self._timer.cancel()
        self._timer = None
        if self.amend is not None:
            response, self.amend = self.amend(response), None
        self._client.reply(response)

    def on_timeout(self) -> None:
        """Answer that the time is over, unless the request is answered."""
        self._on_lost_office = None
        message = "The controller did not finish the request in time."
        self.reply(refusal(self._request, self.api_version, ErrorCode.REQUEST_TIMED_OUT, message))


class Forwarding:
    def __init__(self, channel: ControllerChannel) -> None:
        self._channel = channel
        self._waiting_bytes = 0

    def forward(self, context: RequestContext, request: Message, content: bytes) -> None:
        """Have the active controller answer `request`; `content` are its bytes with its header."""
        timeout_s = _timeout_s(request)
        timed = TimedContext(context, request, max(0.0, timeout_s))
        if timeout_s <= 0:
            timed.on_timeout()
        if context.node.metadata.is_leader:
            timed.handle_here(lambda: self._hand_on(timed, request, content))
        else:
            self._hand_on(timed, request, content)

    def _hand_on(self, context: TimedContext, request: Message, content: bytes) -> None:
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

    def _ask(self, context: TimedContext, request: Message, content: bytes, reply: Callable[[Any], object]) -> None:
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
            request_data=content,
            request_principal=encode_session(context.session),
            client_host_address=_packed(context.client_host),
        )

        def on_answer(response: EnvelopeResponse | None, error: BaseException | None) -> None:
            self._waiting_bytes -= len(content)
            if response is not None:
                _unwrap(context, request, response, reply)
            else:
                assert error is not None
                reply(refusal(request, context.api_version, error_code(error), error_message(error)))

        self._channel.ask(envelope, 0, on_answer, timeout_s=max(FORWARD_S_MIN, context.left_s))


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
    if timeout_ms is None or (timeout_ms <= 0 and request.API_KEY not in _HAVE_DEADLINE):
        return FORWARD_S
    return min(FORWARD_S_MAX, timeout_ms / 1000)


def _packed(host: str) -> bytes:
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        # A name, where the network has no addresses.
        return bytes(4)
