"""Ports for servers that are started a moment later, or again.

A port that the kernel chose is one of those that it gives to outgoing connections, too: until the server has it, or
while it is restarted, any client on the machine may get it. So one is chosen below their range, where that is known.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Final

EPHEMERAL_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
PORT_MIN: Final = 10_000
ATTEMPTS: Final = 50


def free_port(host: str = "127.0.0.1") -> int:
    """Choose a port that no socket is bound to."""
    with bound_socket(host) as probe:
        return int(probe.getsockname()[1])


def bound_socket(host: str = "127.0.0.1") -> socket.socket:
    """Bind a socket to such a port, to hold it until others are chosen as well."""
    ports = range(PORT_MIN, _ephemeral_min())
    # 0 leaves the choice to the kernel: no range is known, it begins too low, or all that were tried are in use.
    for port in [*random.SystemRandom().sample(ports, min(ATTEMPTS, len(ports))), 0]:
        # Without SO_REUSEADDR: with it, two sockets that do not listen yet may have the same port.
        probe = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            probe.bind((host, port))
        except OSError:
            probe.close()
            if not port:
                raise
        else:
            return probe
    raise AssertionError("the last attempt returns or raises")


def _ephemeral_min() -> int:
    """Return the first port that the kernel gives to outgoing connections."""
    try:
        return int(EPHEMERAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0
