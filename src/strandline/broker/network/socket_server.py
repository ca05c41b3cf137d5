"""The addresses of a node: those for clients and brokers, those for the quorum. Each kind has its own table of APIs."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from strandline.broker.environment import Environment
from strandline.broker.network.admission import Admission, parse_overrides
from strandline.broker.network.connection_limits import ConnectionLimits
from strandline.broker.network.deadlines import Deadlines
from strandline.broker.network.descriptors import descriptors_max, share_out
from strandline.broker.network.dispatch import Dispatcher
from strandline.broker.network.listener import SocketListener
from strandline.broker.network.routes import BROKER, CONTROLLER, Route, routes
from strandline.broker.network.transport import AcceptedTls
from strandline.config.cluster_checks import EVERY_INTERFACE
from strandline.config.listeners import SECURITY_PROTOCOLS, ListenerAddress
from strandline.config.node_config import BrokerConfig
from strandline.config.settings import INT_MAX
from strandline.handlers.support.context import BrokerServices

log = logging.getLogger("strandline.config")

IDLE_SWEEP_TICKS: Final = 30


class SocketServer:
    """The addresses that peers of one kind connect to, and the APIs that they may call. Without an address it is off.

    Its listeners share the table of APIs and the limits. Each has a dispatcher of its own, which knows its name.
    """

    def __init__(
        self,
        environment: Environment,
        services: BrokerServices,
        kind: str,
        addresses: list[ListenerAddress],
        *,
        is_active: Callable[[], bool],
        tls: Mapping[str, AcceptedTls] = MappingProxyType({}),
    ) -> None:
        """`tls` has the listeners of TLS by their names."""
        self._environment = environment
        self._tls = tls
        self._kind = kind
        self._addresses = addresses
        config = environment.config()
        self.routes: dict[int, Route] = routes(kind)
        self._services = services
        self._is_active = is_active
        names = [address.name for address in addresses] or [""]
        self.dispatcher = self._dispatcher(config, names[0], None)
        self.limits = self.dispatcher.limits
        self.dispatchers = [self.dispatcher, *(self._dispatcher(config, name, self.limits) for name in names[1:])]
        self.limits.deadlines = Deadlines(
            first_request_timeout_ms=config.connection_first_request_timeout_ms,
            partial_request_timeout_ms=config.connection_partial_request_timeout_ms,
        )
        self._overrides = config.per_host_overrides()
        self._admission = _admission(config)
        self.listeners = [self._listener(config, dispatcher) for dispatcher in self.dispatchers]
        self.listener = self.listeners[0]
        self._bound: dict[str, tuple[str, int]] = {}
        self._is_open = False
        for address, listener in zip(addresses, self.listeners, strict=False):
            self._bound[address.name] = listener.bind(address.host, address.port)

    def _dispatcher(self, config: BrokerConfig, name: str, limits: ConnectionLimits | None) -> Dispatcher:
        dispatcher = Dispatcher(
            self._services,
            self.routes,
            frame_size_max=config.socket_request_max_bytes,
            inbox_bytes_max=config.queued_max_request_bytes if config.queued_max_request_bytes >= 0 else 1 << 62,
            clock_ns=self._environment.runtime.monotonic_ns if config.metrics_enable else None,
            listener=self._kind,
            listener_name=name,
            limits=limits,
        )
        dispatcher.is_active = self._is_active
        return dispatcher

    def _listener(self, config: BrokerConfig, dispatcher: Dispatcher) -> SocketListener:
        environment, name = self._environment, dispatcher.listener_name
        # As in Kafka: clients that take up all connections must not keep brokers from each other.
        is_exempt = len(self._addresses) > 1 and name == config.inter_broker_listener()[0]
        return SocketListener(
            environment.network,
            environment.runtime,
            dispatcher,
            self._admission,
            _own_admission(config, name),
            is_exempt=is_exempt,
            tls=self._tls.get(name),
        )

    @property
    def bound(self) -> tuple[str, int] | None:
        """The first address that was bound; None if the server is off."""
        return next(iter(self._bound.values()), None)

    def advertised(self, name: str) -> tuple[str, int] | None:
        """Return where others connect to this listener: as configured, with the port that was bound.

        None if there is no such listener, or if it is not advertised.
        """
        bound = self._bound.get(name)
        if bound is None:
            return None
        config = self._environment.config()
        told = config.advertised() if self._kind == BROKER else config.advertised_controllers()
        for each in told:
            # A node with one listener may advertise it by another name.
            if each.name == name or len(self._addresses) == 1:
                return each.host, each.port or bound[1]
        if told:
            return None
        return (socket.getfqdn(), bound[1]) if bound[0] in ("", *EVERY_INTERFACE) else bound

    def endpoints(self) -> list[tuple[str, str, int, int]]:
        """Return name, host, port and security protocol of each listener that others may use, as it is registered."""
        config = self._environment.config()
        return [
            (address.name, *advertised, SECURITY_PROTOCOLS.index(config.security_protocol(address.name)))
            for address in self._addresses
            if (advertised := self.advertised(address.name)) is not None
        ]

    def configure(self, config: BrokerConfig) -> None:
        """Obey settings that changed."""
        admission, deadlines = self._admission, self.limits.deadlines
        admission.connections_room = _connections_room(config)
        admission.connections_max = config.max_connections
        admission.connections_per_host_max = config.max_connections_per_ip
        admission.creations_per_s_max = config.max_connection_creation_rate
        deadlines.first_request_timeout_ms = config.connection_first_request_timeout_ms
        deadlines.partial_request_timeout_ms = config.connection_partial_request_timeout_ms
        for dispatcher, listener in zip(self.dispatchers, self.listeners, strict=True):
            listener.own_admission = _own_admission(config, dispatcher.listener_name)
        before, self._overrides = self._overrides, config.per_host_overrides()
        if self._overrides != before:
            # A thread looks up the host names, because that may take seconds.
            self._environment.runtime.in_thread(partial(parse_overrides, self._overrides), self._on_overrides)

    def _on_overrides(self, overrides: dict[str, int] | None, error: BaseException | None) -> None:
        if overrides is None:
            log.error("max.connections.per.ip.overrides is not in force: %s", error)
        else:
            self._admission.per_host_overrides = overrides

    def open(self) -> None:
        """Accept connections on every address."""
        if self._bound and not self._is_open:
            self._is_open = True
            self.limits.ticks = 0
            for listener in self.listeners:
                listener.open()

    def tick(self, *, idle_s: float) -> None:
        """Close connections that are idle, or that do not finish a request; called every second."""
        limits = self.limits
        limits.ticks += 1
        limits.close_stalled()
        if idle_s >= 0 and limits.ticks % max(1, min(IDLE_SWEEP_TICKS, int(idle_s / 2))) == 0:
            limits.close_idle(idle_s=idle_s)

    def close(self) -> None:
        """Accept no connection and start no request any more; requests that were started are finished."""
        for listener in self.listeners:
            listener.close()
        self.limits.is_stopping = True
        for connection in list(self.limits.connections):
            connection.transport.pause()

    @property
    def is_congested(self) -> bool:
        return any(connection.transport.is_congested for connection in self.limits.connections)

    def hang_up(self) -> None:
        for connection in list(self.limits.connections):
            connection.close()


def client_server(
    environment: Environment,
    services: BrokerServices,
    *,
    is_active: Callable[[], bool],
    tls: Mapping[str, AcceptedTls],
) -> SocketServer:
    """Return the server of clients and other brokers, bound if this node is a broker."""
    config = environment.config()
    addresses = config.client_listeners() if config.is_broker else []
    return SocketServer(environment, services, BROKER, addresses, is_active=is_active, tls=tls)


def controller_server(
    environment: Environment,
    services: BrokerServices,
    *,
    is_active: Callable[[], bool],
    tls: Mapping[str, AcceptedTls],
) -> SocketServer:
    """Return the server of the quorum and of brokers, bound if this node is a controller."""
    addresses = environment.config().controller_listeners()
    return SocketServer(environment, services, CONTROLLER, addresses, is_active=is_active, tls=tls)


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


def _own_admission(config: BrokerConfig, listener_name: str) -> Admission | None:
    """Return the limits that are set for this listener alone; None if there are none."""
    connections_max = config.listener_number(listener_name, "max.connections")
    per_host_max = config.listener_number(listener_name, "max.connections.per.ip")
    creations_per_s_max = config.listener_number(listener_name, "max.connection.creation.rate")
    if connections_max is per_host_max is creations_per_s_max is None:
        return None
    return Admission(
        connections_max=INT_MAX if connections_max is None else connections_max,
        connections_per_host_max=INT_MAX if per_host_max is None else per_host_max,
        creations_per_s_max=INT_MAX if creations_per_s_max is None else creations_per_s_max,
    )
