"""Addresses that sources listen on, and TLS for them."""

from __future__ import annotations

import ipaddress
import ssl

from strandline.connect.failures import InvalidConnectorConfig


def address_of(text: str) -> tuple[str, int]:
    """Return host and port of `host:port`. An IPv6 address is in brackets. Raise ValueError if it is no address."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535 or (":" in host and host[0] != "["):
        raise ValueError(f"{text!r} is no address like 127.0.0.1:8088")
    return host.removeprefix("[").removesuffix("]"), int(port)


def check_address(text: str) -> str | None:
    """Return what is wrong with an address; an empty one is none, and right."""
    try:
        if text:
            address_of(text)
    except ValueError as error:
        return str(error)
    return None


def is_loopback(text: str) -> bool:
    """Return whether only programs of this machine reach an address."""
    host, _ = address_of(text)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def server_tls(certificate: str | None, key: str | None) -> ssl.SSLContext | None:
    """Return the TLS context of a server with a certificate in PEM files; None without one."""
    if not certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key or None)
    except (OSError, ssl.SSLError) as error:
        raise InvalidConnectorConfig(f"ssl.certificate.location={certificate} cannot be used: {error}") from None
    return context
