"""Opens `connections` sockets and says the first two bytes of a request on each; at the end counts those still open."""

from __future__ import annotations

import resource
import socket

from bench.clients.connections import is_open
from bench.clients.turn import finish, task, wait_for_sign

PER_ADDRESS = 5_000
"""One address has some 28,000 ports for connections to one server, and others want some too."""
BEGINNING = b"\0\0"


def main() -> None:
    options = task()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    host, _, port = options["bootstrap"].partition(":")
    held: list[socket.socket] = []
    for number in range(options["connections"]):
        peer = socket.socket()
        peer.bind((f"127.0.0.{2 + number // PER_ADDRESS}", 0))
        peer.settimeout(30.0)
        peer.connect((host, int(port)))
        peer.sendall(BEGINNING)
        held.append(peer)
    wait_for_sign()
    finish(alive=sum(is_open(peer) for peer in held))


if __name__ == "__main__":
    main()
