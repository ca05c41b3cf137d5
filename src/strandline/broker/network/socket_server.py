"""The addresses of a node: one for clients and brokers, one for the quorum. Each has its own table of APIs."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import Final

from strandline.broker.environment import Environment
from strandline.broker.network.admission import Admission, parse_overrides
from strandline.broker.network.deadlines import Deadlines
from strandline.broker.network.descriptors import descriptors_max, share_out
from strandline.broker.network.dispatch import Dispatcher
from strandline.broker.network.listener import SocketListener
from strandline.broker.network.routes import BROKER, CONTROLLER, Route, routes
from strandline.config.cluster_checks import EVERY_INTERFACE
from strandline.config.listeners import ListenerAddress
from strandline.config.node_config import BrokerConfig
from strandline.handlers.support.context import BrokerServices

log = logging.getLogger("strandline.config")

IDLE_SWEEP_TICKS: Final = 30


class SocketServer:
    """An address that peers of one kind connect to, and the APIs that they may call. Without an address it is off."""

    def __init__(
        self, environment: Environment, services: BrokerServices, kind: str, *, is_active: Callable[[], bool]
    ) -> None:
        self._environment = environment
        self._kind = kind
        config, runtime = environment.config(), environment.runtime
        self.routes: dict[int, Route] = routes(kind)
        self.dispatcher = Dispatcher(
            services,
            self.routes,
            frame_size_max=config.socket_request_max_bytes,
            inbox_bytes_max=config.queued_max_request_bytes if config.queued_max_request_bytes >= 0 else 1 << 62,
            clock_ns=runtime.monotonic_ns if config.metrics_enable else None,
            listener=kind,
        )
        self.dispatcher.is_active = is_active
        self.limits = self.dispatcher.limits
        self.limits.deadlines = Deadlines(
            first_request_timeout_ms=config.connection_first_request_timeout_ms,
            partial_request_timeout_ms=config.connection_partial_request_timeout_ms,
        )
        self._overrides = config.per_host_overrides()
        self.listener = SocketListener(environment.network, runtime, self.dispatcher, _admission(config))
        self.bound: tuple[str, int] | None = None
        self._is_open = False

    @property
    def advertised(self) -> tuple[str, int] | None:
        """Where others are to connect: as configured, with the port that was bound."""
        config = self._environment.config()
        for listener in config.advertised() if self._kind == BROKER else config.advertised_controllers():
            return listener.host, listener.port or (self.bound or ("", 0))[1]
        if self.bound is not None and self.bound[0] in ("", *EVERY_INTERFACE):
            return socket.getfqdn(), self.bound[1]
        return self.bound

    def configure(self, config: BrokerConfig) -> None:
        """Obey settings that changed."""
        admission, deadlines = self.listener.admission, self.limits.deadlines
        admission.connections_room = _connections_room(config)
        admission.connections_max = config.max_connections
        admission.connections_per_host_max = config.max_connections_per_ip
        admission.creations_per_s_max = config.max_connection_creation_rate
        deadlines.first_request_timeout_ms = config.connection_first_request_timeout_ms
        deadlines.partial_request_timeout_ms = config.connection_partial_request_timeout_ms
        before, self._overrides = self._overrides, config.per_host_overrides()
        if self._overrides != before:
            # A thread looks up the host names, because that may take seconds.
            self._environment.runtime.in_thread(partial(parse_overrides, self._overrides), self._on_overrides)

    def _on_overrides(self, overrides: dict[str, int] | None, error: BaseException | None) -> None:
        if overrides is None:
            log.error("max.connections.per.ip.overrides is not in force: %s", error)
        else:
            self.listener.admission.per_host_overrides = overrides

    def bind(self, listener: ListenerAddress) -> None:
        """Take the address; connections are accepted after `open`."""
        self.bound = self.listener.bind(listener.host, listener.port)

    def open(self) -> None:
        if self.bound is not None and not self._is_open:
            self._is_open = True
            self.limits.ticks = 0
            self.listener.open()

    def tick(self, *, idle_s: float) -> None:
        """Close connections that are idle, or that do not finish a request; called every second."""
        limits = self.limits
        limits.ticks += 1
        limits.close_stalled()
        if idle_s >= 0 and limits.ticks % max(1, min(IDLE_SWEEP_TICKS, int(idle_s / 2))) == 0:
            limits.close_idle(idle_s=idle_s)

    def close(self) -> None:
        """Accept no connection and start no request any more; requests that were started are finished."""
        self.listener.close()
        self.limits.is_stopping = True
        for connection in list(self.limits.connections):
            connection.transport.pause()

    @property
    def is_congested(self) -> bool:
        return any(connection.transport.is_congested for connection in self.limits.connections)

    def hang_up(self) -> None:
        for connection in list(self.limits.connections):
            connection.close()


def client_server(environment: Environment, services: BrokerServices, *, is_active: Callable[[], bool]) -> SocketServer:
    """Return the server of clients and other brokers, bound if this node is a broker."""
    server, config = SocketServer(environment, services, BROKER, is_active=is_active), environment.config()
    for listener in config.client_listeners()[:1]:
        if config.is_broker:
            server.bind(listener)
    return server


def controller_server(
    environment: Environment, services: BrokerServices, *, is_active: Callable[[], bool]
) -> SocketServer:
    """Return the server of the quorum and of brokers, bound if this node is a controller."""
    server = SocketServer(environment, services, CONTROLLER, is_active=is_active)
    for listener in environment.config().controller_listeners()[:1]:
        server.bind(listener)
    return server


def _admission(config: BrokerConfig) -> Admission:
    return Admission(
        connections_max=config.max_connections,
        connections_per_host_max=config.max_connections_per_ip,
        per_host_overrides=parse_overrides(config.per_host_overrides()),
        creations_per_s_max=config.max_connection_creation_rate,
        connections_room=_connections_room(config),
    )


def _connections_room(config: BrokerConfig) -> int:
    return share_out(descriptors_max(), open_files_max=config.open_files_max).connections_max
