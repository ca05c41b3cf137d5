"""Requests to the active controller, wherever it is: in this process, or behind a connection.

A request is asked again while no controller is known, while the one that was asked says NOT_CONTROLLER, and when the
connection to it is lost, until `timeout_s` is over: then `TimedOut`. So every request that goes this way must be one
that may be carried out twice, or whose second answer says that it was.

In this process the handler that a request from outside would meet is called, with the same message.

A server answers a connection in order. Give what must not wait (heartbeats) a channel apart from what may take long.

`ControllerChannels` opens them, and tells all of them when the metadata log has another leader.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from strandline.broker.environment import Environment
from strandline.broker.network.channel import Channel, OnAnswer
from strandline.broker.network.transport import Network
from strandline.codec.answers import response_class
from strandline.codec.message import Message
from strandline.codec.message_codec import decode
from strandline.errors import Disconnected, ErrorCode, PeerError, RequestError, TimedOut
from strandline.handlers.support.context import EncodedResponse
from strandline.handlers.support.local_context import LocalContext
from strandline.observability.response_errors import carries_error
from strandline.runtime.runtime import Runtime, TimerHandle

if TYPE_CHECKING:
    from strandline.broker.network.routes import Route
    from strandline.handlers.support.context import BrokerServices
    from strandline.security.sasl.exchange import ClientLogin

log = logging.getLogger("strandline.broker")

RETRY_S: Final = 0.05
RETRY_S_MAX: Final = 0.5
ASKED_MAX: Final = 10_000
"""Requests of one channel that may be under way, most of them waiting for a controller."""

Where = Callable[[], tuple[str, int] | None]


class LocalController:
    """The controller of this process, asked as if from outside."""

    def __init__(self, node: BrokerServices, routes: Mapping[int, Route], *, client_id: str) -> None:
        self._node = node
        self._routes = routes
        self._client_id = client_id

    @property
    def is_active(self) -> bool:
        return self._node.metadata.is_leader

    def ask(self, request: Message, version: int, on_answer: OnAnswer) -> None:
        """Call the handler; it may answer before this returns, or never."""

        def on_reply(response: Any) -> None:
            if type(response) is EncodedResponse:
                response, _ = decode(response_class(type(request)), version, response.body)
            on_answer(response, None)

        context = LocalContext(self._node, self._routes, version, on_reply, client_id=self._client_id)
        try:
            response = self._routes[request.API_KEY].load().handle(context, request)
        except PeerError as refusal:
            on_answer(None, refusal)
            return
        if response is not None:
            context.reply(response)


class _Asking:
    """One request, until it is answered or its time is over."""

    __slots__ = ("attempt", "deadline", "is_over", "on_answer", "request", "timer", "version")

    def __init__(self, request: Message, version: int, on_answer: OnAnswer, deadline: float) -> None:
        self.request = request
        self.version = version
        self.on_answer = on_answer
        self.deadline = deadline
        self.attempt = 0
        """Answers to earlier attempts are not taken any more."""
        self.timer: TimerHandle | None = None
        self.is_over = False


class ControllerChannel:
    def __init__(
        self,
        runtime: Runtime,
        network: Network,
        *,
        local: LocalController | None,
        where: Where,
        client_id: str,
        login: Callable[[], ClientLogin] | None = None,
    ) -> None:
        self._runtime = runtime
        self._network = network
        self._login = login
        self._local = local
        self._where = where
        self._client_id = client_id
        self._channel: Channel | None = None
        self._asked: dict[_Asking, None] = {}
        self._is_closed = False

    def ask(self, request: Message, version: int, on_answer: OnAnswer, *, timeout_s: float) -> None:
        """Call `on_answer(response, None)`, or `on_answer(None, error)`; once, and never before this has returned."""
        if self._is_closed or len(self._asked) >= ASKED_MAX:
            words = "the node is stopping" if self._is_closed else f"{ASKED_MAX} requests wait for the controller"
            self._runtime.call_soon(on_answer, None, Disconnected(words))
            return
        asking = _Asking(request, version, on_answer, self._runtime.monotonic() + timeout_s)
        self._asked[asking] = None
        # Not in this turn, so that no caller is answered before `ask` has returned.
        self._runtime.call_soon(self._try, asking)

    def on_leader_changed(self) -> None:
        """Another controller may be active now: what waits for the old one is asked again."""
        channel = self._channel
        if channel is not None and channel.address != self._where():
            self._channel = None
            channel.close()

    def close(self) -> None:
        """Answer requests that still wait with `Disconnected`, on a later turn."""
        self._is_closed = True
        for asking in list(self._asked):
            self._runtime.call_soon(self._finish, asking, None, Disconnected("the node is stopping"))
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    # Asking

    def _try(self, asking: _Asking) -> None:
        if asking.is_over:
            return
        if asking.timer is not None:
            asking.timer.cancel()
            asking.timer = None
        left_s = asking.deadline - self._runtime.monotonic()
        if left_s <= 0:
            self._finish(asking, None, TimedOut("no controller answered in time"))
            return
        asking.attempt += 1
        attempt = asking.attempt

        def on_answer(response: Any, error: BaseException | None) -> None:
            if attempt == asking.attempt and not asking.is_over:
                self._on_answer(asking, response, error)

        if self._local is not None and self._local.is_active:
            # A write without a majority may never end, and no connection would report that the time is over.
            asking.timer = self._runtime.call_later(left_s, self._try, asking)
            self._local.ask(asking.request, asking.version, on_answer)
            return
        channel = self._channel_now()
        if channel is None:
            self._try_later(asking)
        else:
            channel.ask(asking.request, asking.version, on_answer, timeout_s=left_s)

    def _channel_now(self) -> Channel | None:
        """To where the active controller is, as far as this node knows."""
        address = self._where()
        if self._channel is not None and self._channel.address != address:
            # Requests that wait for the old one get `Disconnected`, and are sent to the new one.
            self._channel.close()
            self._channel = None
        if self._channel is None and address is not None and not self._is_closed:
            self._channel = Channel(
                self._runtime, self._network, *address, client_id=self._client_id, login=self._login
            )
        return self._channel

    def _on_answer(self, asking: _Asking, response: Any, error: BaseException | None) -> None:
        is_elsewhere = (
            carries_error(response, ErrorCode.NOT_CONTROLLER)
            if response is not None
            else isinstance(error, Disconnected)
            or (isinstance(error, RequestError) and error.code == ErrorCode.NOT_CONTROLLER)
        )
        if is_elsewhere and not self._is_closed:
            self._try_later(asking)
        else:
            self._finish(asking, response, error)

    def _try_later(self, asking: _Asking) -> None:
        # An election takes longer than one attempt; a channel that cannot connect has a patience of its own.
        delay_s = min(RETRY_S_MAX, RETRY_S * 2 ** min(asking.attempt - 1, 10)) * (0.5 + self._runtime.random.random())
        delay_s = min(delay_s, max(0.0, asking.deadline - self._runtime.monotonic()))
        if asking.timer is not None:
            asking.timer.cancel()
        asking.timer = self._runtime.call_later(delay_s, self._try, asking)

    def _finish(self, asking: _Asking, response: Any, error: BaseException | None) -> None:
        if asking.is_over:
            return
        asking.is_over = True
        del self._asked[asking]
        if asking.timer is not None:
            asking.timer.cancel()
            asking.timer = None
        asking.on_answer(response, error)


class ControllerChannels:
    """The channels of a broker to the active controller, one for each purpose."""

    def __init__(
        self,
        environment: Environment,
        network: Network,
        services: BrokerServices,
        routes: Mapping[int, Route],
        where: Where,
    ) -> None:
        """`network` is the one that controllers are reached by."""
        self._environment = environment
        self._network = network
        self._services = services
        self._routes = routes
        self._where = where
        self._channels: list[ControllerChannel] = []

    def open(self, purpose: str) -> ControllerChannel:
        """Return a channel of its own. A server answers a connection in order, so slow requests need their own."""
        environment = self._environment
        client_id = f"broker-{environment.node_id}-{purpose}"
        channel = ControllerChannel(
            environment.runtime,
            self._network,
            local=LocalController(self._services, self._routes, client_id=client_id),
            where=self._where,
            client_id=client_id,
            login=environment.controller_login,
        )
        self._channels.append(channel)
        return channel

    def on_leader_changed(self) -> None:
        """Have requests that wait for the former controller sent to the new one."""
        for channel in self._channels:
            channel.on_leader_changed()

    def close(self) -> None:
        """Close all channels."""
        for channel in self._channels:
            channel.close()
