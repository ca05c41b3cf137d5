"""From a frame to its handler.

The table in `routes` decides what is served and what ApiVersions advertises: one place, so they cannot disagree.
A request that cannot be read closes its connection and no other; nothing that a peer sends stops the node.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, Protocol

from strandline.broker.network.connection import Connection, Exchange, GateKeeper
from strandline.broker.network.connection_limits import ConnectionLimits
from strandline.broker.network.routes import BROKER, CONTROLLER, Route
from strandline.codec.message import Message
from strandline.codec.message_codec import decode, encode
from strandline.codec.messages.api_versions_request import ApiVersionsRequest
from strandline.codec.wire import skip_tags
from strandline.errors import ErrorCode, PeerError
from strandline.handlers.access.serving import RefusedRequest, reduce, serve
from strandline.handlers.support.context import BrokerServices, EncodedResponse
from strandline.handlers.support.refusals import refusal
from strandline.observability.log_lines import fields
from strandline.observability.request_meter import RequestMeter
from strandline.observability.response_errors import count_errors
from strandline.security.principal import Session

if TYPE_CHECKING:
    from strandline.handlers.access.client_guard import ClientGuard

API_VERSIONS: Final = 18
ALTERS_CONFIGS: Final = (33, 44)
"""AlterConfigs and IncrementalAlterConfigs."""
REQUEST_HEADER: Final = Struct(">hhih")
"""API key, version, correlation id, length of the client id."""
SOFTWARE_MAX: Final = 256
SOFTWARE_CHARACTERS_MAX: Final = 100
"""Kinds of client libraries that are told apart, and the length of a name with its version."""
WINDOW_REQUESTS_BUSY: Final = 50
WINDOWS_PER_TIMED: Final = 4
"""With more requests in a window than that, one window of so many is timed."""
SLOW_NS: Final = 20_000_000
"""A request that keeps the loop for longer is remembered, so that a stall can be explained."""

log = logging.getLogger("strandline.broker")


class RequestContext:
    """One request of the compiled messages, until it is answered."""

    __slots__ = ("_exchange", "amend", "api_version", "client_host", "client_id", "guard", "node", "route")

    def __init__(
        self,
        node: BrokerServices,
        route: Route,
        exchange: Exchange,
        api_version: int,
        client_id: str | None,
        client_host: str,
    ) -> None:
        self.node = node
        self.route = route
        self._exchange = exchange
        self.api_version = api_version
        self.client_id = client_id
        self.client_host = client_host
        self.guard: ClientGuard | None = None
        self.amend: Callable[[Any], Any] | None = None

    @property
    def exchange(self) -> Exchange:
        return self._exchange

    @property
    def connection(self) -> Connection:
        return self._exchange.connection

    @property
    def session(self) -> Session:
        return self._exchange.connection.session

    @property
    def routes(self) -> dict[int, Route]:
        return self._exchange.connection.dispatcher.routes

    @property
    def is_at_controller(self) -> bool:
        return self._exchange.connection.dispatcher.listener == CONTROLLER

    @property
    def listener_name(self) -> str:
        return self._exchange.connection.dispatcher.listener_name

    @property
    def pays_quotas(self) -> bool:
        return self._exchange.connection.dispatcher.listener != CONTROLLER

    @property
    def client_port(self) -> int:
        return self._exchange.connection.transport.peer_port

    @property
    def client_software(self) -> tuple[str, str] | None:
        return self._exchange.connection.software

    def remember_software(self, name: str, version: str) -> None:
        self._exchange.connection.software = self._exchange.connection.dispatcher.one_software(name, version)

    def reply(self, response: Any) -> None:
        if self.amend is not None:
            response, self.amend = self.amend(response), None
        connection = self._exchange.connection
        if connection.quota is not None:
            response = connection.dispatcher.throttle(connection, self.route, self.api_version, response)
        if type(response) is EncodedResponse:
            self._exchange.reply(response.body)
            return
        if self.route.meter is not None:
            count_errors(self.route.meter, response)
        self._exchange.reply(encode(response, self.api_version))


class RequestQuotas(Protocol):
    """What charges the clients of a listener for their requests."""

    def begin(self, connection: Connection, view: memoryview, api_key: int, version: int, client_id_size: int) -> int:
        """Find what the client may use, from its id at the start of the view.

        Return when the request began, in nanoseconds, if its time is to be counted; else 0.
        """

    def end(self, connection: Connection, began_ns: int) -> None:
        """Count the time that the request took until it was started."""

    def throttle(self, connection: Connection, route: Route, version: int, response: Any) -> Any:
        """Return the response with the throttle time of the client, and mute its connection for that long."""


Forward = Callable[[RequestContext, Message, bytes], None]
"""Takes a request that was begun, as a message and as the bytes that came, header and body."""


class Dispatcher:
    def __init__(
        self,
        node: BrokerServices,
        routes: dict[int, Route],
        *,
        frame_size_max: int,
        inbox_bytes_max: int,
        clock_ns: Callable[[], int] | None = None,
        listener: str = BROKER,
        listener_name: str = "",
        limits: ConnectionLimits | None = None,
    ) -> None:
        """Listeners of one kind may share `routes` and `limits`: then they are counted and limited together."""
        self.node = node
        self.listener = listener
        self.listener_name = listener_name
        self.is_active: Callable[[], bool] = lambda: True
        """Whether this node is the active controller."""
        self.forward: Forward | None = None
        """Forwards a request to the active controller. Without it the client is answered NOT_CONTROLLER."""
        self.sasl: GateKeeper | None = None
        """What authenticates the connections of this listener; None if it has no SASL."""
        self.quotas: RequestQuotas | None = None
        """What charges clients; None while there are no quotas."""
        self.clock_ns = clock_ns
        """What requests are timed by; without a clock nothing is counted."""
        self.window_clock_ns = clock_ns
        """The same while requests that are answered at once are timed, too; see `next_window`."""
        self.received_ns = 0
        """When the bytes came that are being worked on, if such requests are timed now."""
        self._window = 0
        self._begun_before = 0
        self.current: RequestMeter | None = None
        """What counts the request that is being started, or was started last."""
        self.slow: tuple[int, str, str, str | None] | None = None
        """The last request that took long to start: nanoseconds, API, host, client id. The reader clears it."""
        if clock_ns is not None:
            for route in routes.values():
                route.meter = route.meter or RequestMeter(route.name)
        self.routes = routes
        self.limits = limits or ConnectionLimits(
            self.call_soon, frame_size_max=frame_size_max, inbox_bytes_max=inbox_bytes_max
        )
        self._software: dict[tuple[str, str], tuple[str, str]] = {}

    def start(
        self,
        connection: Connection,
        view: memoryview,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id_size: int,
    ) -> None:
        """Start one request; `view` begins with the client id and is good only until this returns."""
        route = self.routes.get(api_key)
        if route is None:
            self.limits.refuse(connection, f"unknown API key {api_key}")
            return
        try:
            if not route.version_min <= version <= route.version_max:
                self._refuse_version(connection, route, version, correlation_id)
                return
            at = max(0, client_id_size)
            if version >= route.flexible_from:
                at = skip_tags(view, at)
            route.requests += 1
            meter = self.current = route.meter
            if api_key and meter is not None:
                # Produce is key 0, and its partitions count its bytes.
                meter.request_bytes += len(view)
            quotas = self.quotas
            began_ns = 0 if quotas is None else quotas.begin(connection, view, api_key, version, client_id_size)
            hot = route.hot
            if hot is not None:
                hot(self.node, connection, view, at, version, correlation_id)
            elif (
                route.plain is None
                # An answer of the short path has no throttle time.
                or began_ns
                or not route.plain(self.node, connection, view, at, version, correlation_id)
            ):
                self._start_cold(connection, route, view, at, version, correlation_id, client_id_size)
            if began_ns and quotas is not None:
                quotas.end(connection, began_ns)
        except (PeerError, IndexError) as error:
            # IndexError: a header that ends within its tagged fields.
            self.limits.refuse(connection, f"{route.name} {version}: {error}")
        except Exception:
            # We are wrong, but one connection is what it may cost.
            facts = fields(api=route.name, version=version, host=connection.transport.peer_host)
            log.exception("%s %d failed", route.name, version, extra=facts)
            connection.close()

    def _start_cold(
        self,
        connection: Connection,
        route: Route,
        view: memoryview,
        at: int,
        version: int,
        correlation_id: int,
        client_id_size: int,
    ) -> None:
        began_ns = 0 if self.clock_ns is None else self.clock_ns()
        handler = route.load()
        # What follows the message is ignored, as Kafka does: librdkafka's Metadata 13 for "all topics" ends in three
        # bytes that belong to nothing.
        request, _ = decode(handler.request_class, version, view, at, elements_max=route.elements_max)
        # A client id is for people; what is no UTF-8 in it shows as U+FFFD, as in Kafka.
        client_id = str(view[:client_id_size], "utf-8", "replace") if client_id_size >= 0 else None
        exchange = connection.begin(
            correlation_id, flexible_header=version >= route.flexible_from and route.api_key != API_VERSIONS
        )
        context = RequestContext(self.node, route, exchange, version, client_id, connection.transport.peer_host)
        if route.watch is not None:
            context = route.watch(context, request)
        if (forward := self.forward) is not None and route.is_forwarded:
            header = REQUEST_HEADER.pack(route.api_key, version, correlation_id, client_id_size)
            if self.node.authorizer is None or route.api_key not in ALTERS_CONFIGS:
                forward(context, request, header + view)
            else:
                _forward_allowed(forward, context, request, header + view[:at], header + view)
        elif self.forward is None and route.for_active and not self.is_active():
            self._refuse_inactive(context, request)
        elif (response := serve(context, route, request)) is not None:
            context.reply(response)
        if self.clock_ns is not None and (took_ns := self.clock_ns() - began_ns) > SLOW_NS:
            self.slow = took_ns, route.name, context.client_host, client_id

    def _refuse_inactive(self, context: RequestContext, request: Message) -> None:
        """What only the active controller can answer has come to another one."""
        answer = refusal(request, context.api_version, ErrorCode.NOT_CONTROLLER)
        if answer is None:
            self.limits.refuse(context.connection, f"{context.route.name} is for the active controller")
        else:
            context.reply(answer)

    def _refuse_version(self, connection: Connection, route: Route, version: int, correlation_id: int) -> None:
        if route.api_key != API_VERSIONS:
            self.limits.refuse(connection, f"{route.name} has no version {version}")
            return
        # A newer client asks with a version we do not know: it is answered in version 0, with the list, and asks again.
        exchange = connection.begin(correlation_id, flexible_header=False)
        context = RequestContext(self.node, route, exchange, version, None, connection.transport.peer_host)
        context.reply(EncodedResponse(encode(route.load().handle(context, ApiVersionsRequest()), 0)))

    def one_software(self, name: str, version: str) -> tuple[str, str] | None:
        """The same object for all connections of one kind; None for what is too long, or one kind too many."""
        told = name, version
        known = self._software.get(told)
        if known is None and len(name) + len(version) <= SOFTWARE_CHARACTERS_MAX and len(self._software) < SOFTWARE_MAX:
            known = self._software[told] = told
        return known

    def next_window(self) -> None:
        """Some forty times a second: decide whether requests that are answered at once are timed until the next.

        Two looks at a clock are a good part of what counting such a request costs. While thousands of them come in a
        second, a quarter of the time tells as much of their latency as all of it. Whatever waits is always timed.
        """
        if self.clock_ns is None:
            return
        begun = sum(route.requests for route in self.routes.values() if route.hot is not None)
        is_busy = begun - self._begun_before > WINDOW_REQUESTS_BUSY
        self._begun_before = begun
        self._window += 1
        self.window_clock_ns = None if is_busy and self._window % WINDOWS_PER_TIMED else self.clock_ns

    def throttle(self, connection: Connection, route: Route, version: int, response: Any) -> Any:
        """Return the response with the throttle time of the client."""
        return response if self.quotas is None else self.quotas.throttle(connection, route, version, response)

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call on the next turn of the loop."""
        self.node.runtime.call_soon(callback)


def _forward_allowed(
    forward: Forward, context: RequestContext, request: Message, header: bytes, content: bytes
) -> None:
    """Forward what the client may change. A part of it is checked here, against this broker and its files."""
    allowed = reduce(context, context.route, request)
    if isinstance(allowed, RefusedRequest):
        context.reply(allowed.response)
    elif allowed is request and context.amend is None:
        forward(context, request, content)
    else:
        forward(context, allowed, header + encode(allowed, context.api_version))
