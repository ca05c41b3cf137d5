"""Opens `connections` sockets, asks ApiVersions on each, and holds them; at the end counts those still open."""

from __future__ import annotations

import resource
import socket

from bench.clients.turn import finish, task, wait_for_sign
from bench.wire import API_VERSIONS, Connection, frame


def main() -> None:
    options = task()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    host, _, port = options["bootstrap"].partition(":")
    request = frame(API_VERSIONS, 0, b"")
    held: list[Connection] = []
    for _ in range(options["connections"]):
        connection = Connection(host, int(port))
        connection.exchange(request)
        held.append(connection)
    wait_for_sign()
    finish(alive=sum(is_open(connection.socket) for connection in held))


def is_open(peer: socket.socket) -> bool:
    peer.setblocking(False)
    try:
        return peer.recv(1) != b""
    except BlockingIOError:
        return True  # Nothing to read and no end of stream: the server still holds it.
    except ConnectionError:
        return False


if __name__ == "__main__":
    main()
