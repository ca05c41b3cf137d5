"""Addresses in settings: the listeners of a node, and the `host:port` of other nodes."""

from __future__ import annotations

import re
from typing import NamedTuple

from strandline.errors import InvalidConfig

PORT_MAX = 65_535
PLAINTEXT = "PLAINTEXT"
SSL = "SSL"
SECURITY_PROTOCOLS = (PLAINTEXT, SSL, "SASL_PLAINTEXT", "SASL_SSL")
"""In the order of their numbers in Kafka's protocol."""


class ListenerAddress(NamedTuple):
    """One `NAME://host:port`; an empty host means every interface."""

    name: str
    host: str
    port: int


class NodeListeners(NamedTuple):
    """The listeners of a node by their use."""

    given: str
    """The setting `listeners` as text."""
    clients: list[ListenerAddress]
    controllers: list[ListenerAddress]
    advertised: list[ListenerAddress]
    """The addresses that the node tells to clients and controllers. Empty where they follow from the ports it took."""


def security_protocol(listener_name: str, protocols: str | None) -> str:
    """Return the protocol of a listener: as `protocols` maps it, else its name if that is one, else PLAINTEXT."""
    for entry in (protocols or "").split(","):
        name, _, protocol = entry.partition(":")
        if name.strip().upper() == listener_name:
            return protocol.strip().upper()
    return listener_name if listener_name in SECURITY_PROTOCOLS else PLAINTEXT


def parse_address(raw: str) -> tuple[str, int]:
    """Return the host and port of a `host:port` that its setting has accepted."""
    host, _, port = raw.rpartition(":")
    return host.strip("[]"), int(port)


def parse_listeners(raw: str, *, name: str = "listeners", source: str = "") -> list[ListenerAddress]:
    """Parse `NAME://host:port,...`. Raise InvalidConfig for anything else, and for a name that occurs twice."""
    at = f"{source}: " if source else ""
    listeners = []
    for part in (part.strip() for part in raw.split(",")):
        match = re.fullmatch(r"([A-Za-z0-9_]+)://(\[[0-9A-Fa-f:.%]+\]|[^:/\[\]\s]*):([0-9]{1,5})", part)
        if match is None or int(match[3]) > PORT_MAX:
            raise InvalidConfig(f"{at}{name}={part!r} is not allowed; expected NAME://host:port, comma-separated")
        listeners.append(ListenerAddress(match[1].upper(), match[2].strip("[]"), int(match[3])))
    if len({listener.name for listener in listeners}) < len(listeners):
        raise InvalidConfig(f"{at}{name}={raw!r} is not allowed; each listener needs a name of its own")
    return listeners
