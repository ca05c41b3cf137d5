"""The audit of a node, wired: every listener and the authorizer tell of what clients do; chains are anchored."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from strandline.broker.audit.audit_log import AuditLog
from strandline.broker.audit.chain_keeper import ChainKeeper
from strandline.broker.audit.client_events import ClientEvents
from strandline.broker.environment import Environment
from strandline.broker.network.sasl.authentication import SaslListener
from strandline.broker.network.socket_server import SocketServer
from strandline.handlers.support.context import BrokerServices

if TYPE_CHECKING:
    from strandline.broker.audit.audit_topic import AuditTopic
    from strandline.broker.network.tls.tls_listeners import NodeTls

SSL: Final = "SSL"
"""Stands for the mechanism where a certificate is the login."""


class NodeAudit:
    """The events of a node, and their way to the audit topic."""

    def __init__(self, environment: Environment, services: BrokerServices, topic: AuditTopic) -> None:
        self.log = AuditLog(environment, services, topic)
        self.events = ClientEvents(services, self.log.record)
        self.chains = ChainKeeper(environment, services, self.log)
        self.chains.start()
        if services.authorizer is not None:
            self.events.watch_denials(services.authorizer)

    def stop(self, on_stopped: Callable[[], object]) -> None:
        """Write what waits to be written, and call back."""
        self.chains.close()
        self.log.stop(on_stopped)

    def watch(self, *servers: SocketServer, tls: NodeTls | None) -> None:
        """Record the changes and logins at these listeners."""
        for server in servers:
            self.events.watch(server.routes)
            for dispatcher in server.dispatchers:
                if isinstance(dispatcher.sasl, SaslListener):
                    dispatcher.sasl.on_login = partial(self.events.on_login, dispatcher.listener_name)
        for name, listener in () if tls is None else tls.by_listener.items():
            listener.on_login = partial(self._on_certificate, name)

    def _on_certificate(self, listener_name: str, host: str, principal: str, reason: str) -> None:
        self.events.on_login(listener_name, host, SSL, principal, reason)
