"""Addresses of brokers as users write them. Nothing else is imported, because every command needs this at its start."""

from __future__ import annotations


def parse_address(server: str) -> tuple[str, int] | None:
    """Return host and port of `host:port`, or None if `server` has another form.

    An IPv6 address stands in brackets. A protocol in front is left out, as in `PLAINTEXT://host:9092`.
    """
    host, _, port = server.strip().rpartition("://")[2].rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        return None
    return host.strip("[]"), int(port)
