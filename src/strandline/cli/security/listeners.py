"""The listeners of a cluster, as its brokers describe them, and the certificates that they show."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from typing import Any, Final

from strandline.cli.common.client import Cluster
from strandline.cli.config.access import ConfigValue, Target, read_entries, value_of
from strandline.config.listeners import parse_listeners, security_protocol
from strandline.errors import InvalidConfig, MalformedMessage
from strandline.security.tls.certificates import Certificate, read_certificate

_EVERY_INTERFACE: Final = ("", "0.0.0.0", "::")


@dataclass(frozen=True)
class ListenerSeen:
    """One listener of one broker."""

    broker: int
    name: str
    protocol: str
    host: str
    port: int
    certificate: Certificate | None
    """None without TLS, and if nothing shows one there from here."""

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class SecuritySettings:
    """What the settings of the brokers say about access."""

    has_authorizer: bool
    super_users: frozenset[str]


def read_listeners(cluster: Cluster, admin: Any) -> tuple[list[ListenerSeen], SecuritySettings]:
    """Return the listeners for clients of all brokers, and what their settings say about access."""
    with cluster.errors("cannot list brokers"):
        brokers = admin.list_topics(timeout=cluster.timeout_s).brokers
    seen: list[ListenerSeen] = []
    has_authorizer, super_users = False, set[str]()
    for broker_id, broker in sorted(brokers.items()):
        entries = read_entries(cluster, admin, Target("broker", str(broker_id))) or {}
        seen += _listeners_of(cluster, broker_id, broker, entries)
        has_authorizer = has_authorizer or bool(value_of(entries, "authorizer.class.name"))
        super_users |= {each.strip() for each in (value_of(entries, "super.users") or "").split(";") if each.strip()}
    return seen, SecuritySettings(has_authorizer, frozenset(super_users))


def _listeners_of(cluster: Cluster, broker_id: int, broker: Any, entries: dict[str, ConfigValue]) -> list[ListenerSeen]:
    protocols = value_of(entries, "listener.security.protocol.map")
    advertised = value_of(entries, "advertised.listeners") or value_of(entries, "listeners") or ""
    try:
        listeners = parse_listeners(advertised)
    except InvalidConfig:
        return []
    seen = []
    for listener in listeners:
        protocol = security_protocol(listener.name, protocols)
        # A port 0 is one that the node chose, which only the address that it tells to clients has.
        at, port = listener.host, listener.port or broker.port
        if at in _EVERY_INTERFACE:
            at = broker.host
        has_tls = protocol in ("SSL", "SASL_SSL")
        certificate = certificate_at(at, port, cluster.timeout_s) if has_tls else None
        seen.append(ListenerSeen(broker_id, listener.name, protocol, at, port, certificate))
    return seen


def certificate_at(host: str, port: int, timeout_s: float) -> Certificate | None:
    """Return the certificate that a server shows, without a check of it; None if there is none to see."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Only looked at: a certificate that is expired or not trusted is what a person wants to see here.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), timeout_s) as plain,
            context.wrap_socket(plain, server_hostname=host) as secured,
        ):
            content = secured.getpeercert(binary_form=True)
        return None if content is None else read_certificate(content)
    except (OSError, MalformedMessage):
        return None
