"""Where peers come in: the address of clients and brokers, and that of the quorum. Each has its own table of APIs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from strandline.broker.network.admission import Admission, parse_overrides
from strandline.broker.network.deadlines import Deadlines
from strandline.broker.network.dispatch import Dispatcher
from strandline.broker.network.listener import Listener
from strandline.broker.network.routes import BROKER, CONTROLLER, Route, routes
from strandline.config.listeners import ListenerAddress
from strandline.config.node_config import BrokerConfig

if TYPE_CHECKING:
    from strandline.broker.node import Node

IDLE_SWEEP_TICKS: Final = 30


class Door:
    """One kind of peers: who is let in, and what they may ask. Without an address it stays shut."""

    def __init__(self, node: Node, kind: str, connections_room: int) -> None:
        config = node.config
        self.routes: dict[int, Route] = routes(kind)
        self.dispatcher = Dispatcher(
            node,
            self.routes,
            frame_size_max=config.socket_request_max_bytes,
            inbox_bytes_max=config.queued_max_request_bytes if config.queued_max_request_bytes >= 0 else 1 << 62,
            clock_ns=node.runtime.monotonic_ns if config.metrics_enable else None,
            listener=kind,
        )
        self.dispatcher.is_active = lambda: node.metadata.is_leader
        self.dispatcher.deadlines = Deadlines(
            first_request_timeout_ms=config.connection_first_request_timeout_ms,
            partial_request_timeout_ms=config.connection_partial_request_timeout_ms,
        )
        self.listener = Listener(node.network, node.runtime, self.dispatcher, _admission(config, connections_room))
        self.bound: tuple[str, int] | None = None
        self._is_open = False

    def bind(self, listener: ListenerAddress) -> None:
        """Take the address; nobody is let in yet."""
        self.bound = self.listener.bind(listener.host, listener.port)

    def open(self) -> None:
        if self.bound is not None and not self._is_open:
            self._is_open = True
            self.dispatcher.ticks = 0
            self.listener.open()

    def tick(self, *, idle_s: float) -> None:
        """Every second: hang up on who is silent, or does not finish what it began."""
        dispatcher = self.dispatcher
        dispatcher.ticks += 1
        dispatcher.close_stalled()
        if idle_s >= 0 and dispatcher.ticks % max(1, min(IDLE_SWEEP_TICKS, int(idle_s / 2))) == 0:
            dispatcher.close_idle(idle_s=idle_s)

    def close(self) -> None:
        """Let nobody in any more, and begin nothing new; what was begun goes on."""
        self.listener.close()
        self.dispatcher.is_stopping = True
        for connection in list(self.dispatcher.connections):
            connection.transport.pause()

    @property
    def is_congested(self) -> bool:
        return any(connection.transport.is_congested for connection in self.dispatcher.connections)

    def hang_up(self) -> None:
        for connection in list(self.dispatcher.connections):
            connection.close()


def client_door(node: Node, connections_room: int) -> Door:
    door = Door(node, BROKER, connections_room)
    for listener in node.config.client_listeners()[:1]:
        if node.config.is_broker:
            door.bind(listener)
    return door


def controller_door(node: Node, connections_room: int) -> Door:
    door = Door(node, CONTROLLER, connections_room)
    for listener in node.config.controller_listeners()[:1]:
        door.bind(listener)
    return door


def _admission(config: BrokerConfig, connections_room: int) -> Admission:
    return Admission(
        connections_max=config.max_connections,
        connections_per_host_max=config.max_connections_per_ip,
        per_host_overrides=parse_overrides(config.per_host_overrides()),
        creations_per_s_max=config.max_connection_creation_rate,
        connections_room=connections_room,
    )
