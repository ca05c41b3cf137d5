"""Checks of a node's place in a cluster that need several settings: roles, listeners and quorum."""

from __future__ import annotations

from collections.abc import Mapping

from strandline.config.cluster_settings import ClusterSettings
from strandline.config.listeners import PLAINTEXT, PORT_MAX, SECURITY_PROTOCOLS, SSL, ListenerAddress, NodeListeners
from strandline.errors import InvalidConfig

EVERY_INTERFACE = ("0.0.0.0", "::")
"""Addresses to listen on. A client that connects to one of them reaches its own machine."""


def is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def why_exposed(listener: ListenerAddress, protocol: str, client_auth: str | None) -> str | None:
    """Return a sentence if peers on other machines reach this listener without authentication; None if not."""
    is_open = protocol == PLAINTEXT or (protocol == SSL and client_auth != "required")
    if not is_open or is_loopback(listener.host):
        return None
    where = f"{listener.host or 'every interface'}:{listener.port}"
    return f"listener {listener.name} ({protocol}) at {where} serves all who can reach it, without authentication"


def check_cluster(config: ClusterSettings, listeners: NodeListeners, *, names_other_voters: bool) -> None:
    """Raise InvalidConfig, with what to write instead, where the settings contradict one another."""
    if not config.process_roles:
        raise InvalidConfig("process.roles is empty; expected broker, controller, or both")
    _check_listeners(config, listeners, names_other_voters=names_other_voters)
    _check_advertised(listeners)
    _check_quorum(config)
    _check_times(config)


def _check_listeners(config: ClusterSettings, listeners: NodeListeners, *, names_other_voters: bool) -> None:
    given, clients, controllers, _ = listeners
    if config.is_broker and not clients:
        raise InvalidConfig(f"listeners={given!r} has no listener for clients")
    if config.is_controller and not controllers:
        if config.controller_listener_names or not config.is_broker:
            names = ",".join(config.controller_listener_names)
            raise InvalidConfig(
                f"listeners={given!r} has none of controller.listener.names={names!r}, and this node is a controller; "
                "expected for example listeners=...,CONTROLLER://host:9093 and controller.listener.names=CONTROLLER"
            )
        if names_other_voters:
            raise InvalidConfig(
                "the quorum has other nodes, and this controller has no listener for them; expected for example "
                f"listeners={given},CONTROLLER://host:9093 and controller.listener.names=CONTROLLER"
            )
    if not config.is_broker and clients:
        raise InvalidConfig(
            f"listeners={given!r} has a listener for clients, and process.roles has no broker to serve them; expected "
            "only those of controller.listener.names"
        )


def check_protocol_map(protocols: str | None) -> None:
    """Raise InvalidConfig for an entry of `listener.security.protocol.map` that is not NAME:PROTOCOL."""
    for entry in filter(None, (protocols or "").split(",")):
        name, _, protocol = entry.partition(":")
        if not name.strip() or protocol.strip().upper() not in SECURITY_PROTOCOLS:
            raise InvalidConfig(
                f"listener.security.protocol.map has {entry.strip()!r}; expected NAME:PROTOCOL, comma-separated, with "
                f"one of {', '.join(SECURITY_PROTOCOLS)}"
            )


def check_inter_broker(name: str | None, listeners: NodeListeners, *, given: Mapping[str, str]) -> None:
    """Raise InvalidConfig if brokers could not find the listener that they use among themselves."""
    if name is None:
        return
    if "security.inter.broker.protocol" in given:
        raise InvalidConfig(
            "both inter.broker.listener.name and security.inter.broker.protocol are set; expected only the first"
        )
    names = [each.name for each in listeners.clients]
    if len(names) > 1 and name.upper() not in names:
        raise InvalidConfig(
            f"inter.broker.listener.name={name} is none of listeners={listeners.given!r}; expected one of "
            f"{', '.join(names)}"
        )


def _check_advertised(listeners: NodeListeners) -> None:
    names = {each.name for each in listeners.clients}
    told = {each.name for each in listeners.advertised}
    for_quorum = {each.name for each in listeners.controllers}
    if len(names) > 1 and (unknown := sorted(told - names - for_quorum)):
        raise InvalidConfig(
            f"advertised.listeners has {', '.join(unknown)}, and listeners={listeners.given!r} does not; expected "
            "names of listeners"
        )
    for each in listeners.advertised:
        if each.host in EVERY_INTERFACE:
            raise InvalidConfig(
                f"advertised.listeners has {each.host}, which is no address to connect to; expected a name or an "
                "address that clients can reach"
            )
    for each in listeners.clients:
        if each.host in EVERY_INTERFACE and each.name not in {other.name for other in listeners.advertised}:
            raise InvalidConfig(
                f"listeners={listeners.given!r} listens on every interface, and clients must be told an "
                f"address; expected advertised.listeners={each.name}://HOST:{each.port} with a name or an address that "
                "they can reach; without a login or client certificates (docs/security.md) there is no authentication"
            )


def _check_quorum(config: ClusterSettings) -> None:
    voters = config.quorum_voters()
    if len(voters) < len(config.controller_quorum_voters):
        raise InvalidConfig("controller.quorum.voters names a node twice")
    for host, port in [*voters.values(), *config.quorum_bootstrap_servers()]:
        if not 1 <= port <= PORT_MAX:
            raise InvalidConfig(f"the quorum is to be found at {host}:{port}; expected a port from 1 to {PORT_MAX}")
    if config.is_controller and voters and config.node_id not in voters:
        raise InvalidConfig(
            f"node.id={config.node_id} is a controller and not among controller.quorum.voters="
            f"{','.join(config.controller_quorum_voters)}; expected {config.node_id}@host:port in that list, "
            "on every node, or process.roles=broker here"
        )
    if not config.is_controller:
        if config.node_id in voters:
            raise InvalidConfig(
                f"node.id={config.node_id} is among controller.quorum.voters, and process.roles has no controller; "
                "expected another node.id, or process.roles=broker,controller"
            )
        if not voters and not config.controller_quorum_bootstrap_servers:
            raise InvalidConfig(
                "this node is no controller and knows none; expected "
                "controller.quorum.bootstrap.servers=host:port,... with the controllers of its cluster"
            )


def _check_times(config: ClusterSettings) -> None:
    pairs = (
        (
            ("broker.heartbeat.interval.ms", config.broker_heartbeat_interval_ms),
            ("broker.session.timeout.ms", config.broker_session_timeout_ms),
            "a broker would be fenced between two heartbeats",
        ),
        (
            ("replica.fetch.wait.max.ms", config.replica_fetch_wait_max_ms),
            ("replica.lag.time.max.ms", config.replica_lag_time_max_ms),
            "an idle follower would leave the in-sync set",
        ),
    )
    for (shorter, short_ms), (longer, long_ms), because in pairs:
        if short_ms >= long_ms:
            raise InvalidConfig(f"{shorter}={short_ms} is not below {longer}={long_ms}: {because}; expected less")
