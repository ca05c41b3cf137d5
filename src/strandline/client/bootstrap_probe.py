"""Is anybody there? All bootstrap servers are asked at once, and the first that answers is enough.

librdkafka keeps trying a connection that is refused, and waits half a minute for a server that takes it and says
nothing. That is right for a service and wrong for a person at a prompt, who can also not interrupt it.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import time
from collections.abc import Sequence

# ApiVersions, version 0: 4 bytes of size, api key 18, version 0, correlation id 0, no client id.
QUESTION = struct.pack(">ihhih", 10, 18, 0, 0, -1)


def knock(servers: Sequence[tuple[str, int]], timeout_s: float) -> list[str]:
    """Why no server answers within the time, a reason each; none if one does.

    Whatever comes back counts, also the end of the connection: a listener with TLS does not understand the question,
    but it is there.
    """
    deadline = time.monotonic() + timeout_s
    reasons: list[str] = []
    with selectors.DefaultSelector() as selector:
        opened: list[socket.socket] = []
        try:
            for host, port in servers:
                _open(host, port, selector, opened, reasons)
            while selector.get_map() and (left_s := deadline - time.monotonic()) > 0:
                for key, events in selector.select(left_s):
                    assert isinstance(key.fileobj, socket.socket)
                    if _answers(key.fileobj, events, selector, reasons):
                        return []
            for key in selector.get_map().values():
                what = "connected, but no answer" if key.events == selectors.EVENT_READ else "no connection"
                reasons.append(f"{what} within {timeout_s:g} s")
        finally:
            for each in opened:
                each.close()
    return reasons


def _open(
    host: str, port: int, selector: selectors.BaseSelector, opened: list[socket.socket], reasons: list[str]
) -> None:
    """Begin a connection to every address that the host has: one of them may not be listened on."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        reasons.append(_words(error))
        return
    for family, kind, protocol, _, address in found:
        try:
            connection = socket.socket(family, kind, protocol)
        except OSError as error:
            reasons.append(_words(error))
            continue
        opened.append(connection)
        connection.setblocking(False)
        try:
            connection.connect(address)
        except BlockingIOError:
            pass
        except OSError as error:
            reasons.append(_words(error))
            continue
        selector.register(connection, selectors.EVENT_WRITE)


def _answers(connection: socket.socket, events: int, selector: selectors.BaseSelector, reasons: list[str]) -> bool:
    if events & selectors.EVENT_READ:
        return True
    failed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if failed:
        selector.unregister(connection)
        reasons.append(_words(OSError(failed, os.strerror(failed))))
        return False
    try:
        connection.send(QUESTION)
    except OSError as error:
        selector.unregister(connection)
        reasons.append(_words(error))
        return False
    selector.modify(connection, selectors.EVENT_READ)
    return False


def _words(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
