"""What the security of its listeners asks of a node: logins of its clients, its own logins, and TLS.

A node whose listeners are plain imports none of the parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from strandline.broker.environment import Environment
from strandline.broker.network.socket_server import SocketServer
from strandline.broker.network.transport import Network
from strandline.config.node_config import BrokerConfig
from strandline.config.security.sasl_settings import SASL_PROTOCOLS
from strandline.runtime.runtime import Runtime
from strandline.security.principal import USER, Principal, Session

if TYPE_CHECKING:
    from strandline.broker.network.tls.tls_listeners import NodeTls
    from strandline.security.sasl.exchange import ClientLogin


def authenticate_clients(environment: Environment, *servers: SocketServer) -> None:
    """Have listeners with SASL authenticate their connections."""
    config = environment.config()
    for server in servers:
        for dispatcher in server.dispatchers:
            if config.security_protocol(dispatcher.listener_name) in SASL_PROTOCOLS:
                from strandline.broker.network.sasl.sasl_listeners import sasl_listener

                dispatcher.sasl = sasl_listener(
                    config, dispatcher.listener_name, environment.runtime, environment.image
                )


def logins(config: BrokerConfig, runtime: Runtime) -> dict[str, Callable[[], ClientLogin] | None]:
    """Return how this node logs in to brokers and to controllers."""
    brokers, _ = config.inter_broker_listener()
    # A node that no other can join never connects to one.
    is_member = bool(config.controller_listeners()) or config.names_other_voters() or not config.is_controller
    made: dict[str, Callable[[], ClientLogin] | None] = {}
    for name, listener, mechanism, setting in (
        (
            "broker_login",
            brokers or "",
            config.sasl_mechanism_inter_broker_protocol,
            "sasl.mechanism.inter.broker.protocol",
        ),
        (
            "controller_login",
            config.controller_listener() or "",
            config.sasl_mechanism_controller_protocol,
            "sasl.mechanism.controller.protocol",
        ),
    ):
        if is_member and config.security_protocol(listener.upper()) in SASL_PROTOCOLS:
            from strandline.broker.network.sasl.sasl_listeners import node_login

            made[name] = node_login(config, listener.upper(), mechanism.upper(), setting, runtime)
    return made


def is_peer(environment: Environment, listener_name: str, session: Session) -> bool:
    """Return whether another node may use such a connection: it comes in between brokers, as this node would log in.

    Certificates differ from node to node, and plain listeners have no names, so there the listener decides.
    """
    config = environment.config()
    name, _ = config.inter_broker_listener()
    if listener_name != name:
        return False
    if config.security_protocol(listener_name) not in SASL_PROTOCOLS:
        return True
    login = environment.broker_login
    return login is not None and session.principal == Principal(USER, login().name)


def networks(config: BrokerConfig, runtime: Runtime, network: Network) -> tuple[NodeTls | None, Network, Network]:
    """Return the TLS of the node, and the networks by which it reaches brokers and controllers."""
    if not config.tls_listeners():
        return None, network, network
    from strandline.broker.network.tls.tls_listeners import NodeTls, SecuredNetwork

    tls = NodeTls(config, runtime)
    reached = []
    for name in (config.inter_broker_listener()[0], config.controller_listener()):
        outgoing = tls.by_listener.get(name or "")
        reached.append(network if outgoing is None else SecuredNetwork(network, outgoing))
    return tls, reached[0], reached[1]
