"""Requests to a registry, or to a server that answers its reads, over bare sockets: one in flight on each connection.

They follow one another at once, or come at `rate` a second. They are made before the sign, and answers are not parsed
beyond their status and length, so that the client takes few of the cores that the server needs.
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections.abc import Iterator
from typing import Any, Final

from bench.clients.turn import finish, task, wait_for_sign
from bench.measure import percentile

_RECEIVED_BYTES: Final = 1 << 16


class Connection:
    """A connection with the bytes of an answer that has begun."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self.began_s = 0.0

    def send(self, request: bytes, began_s: float) -> None:
        self.began_s = began_s
        self.socket.sendall(request)

    def receive(self) -> int | None:
        """Return the status if an answer is whole."""
        data = self.socket.recv(_RECEIVED_BYTES)
        if not data:
            raise ConnectionError("the server closed the connection")
        self._buffer += data
        head, separator, body = self._buffer.partition(b"\r\n\r\n")
        if not separator:
            return None
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(body) < length:
            return None
        self._buffer = body[length:]
        return int(head[9:12])


def schema_text(number: int) -> str:
    """Return a schema of its own for each number, about as large as one that people write."""
    fields = [
        {"name": "id", "type": "long"},
        {"name": f"total_{number}", "type": ["null", "double"], "default": None},
        {"name": "customer", "type": "string", "doc": "the one who pays"},
        {"name": "lines", "type": {"type": "array", "items": "string"}},
    ]
    record = {"type": "record", "name": f"Order{number}", "namespace": "shop", "fields": fields}
    return json.dumps(record, separators=(",", ":"))


def read(schema_id: int) -> bytes:
    return _request("GET", f"/schemas/ids/{schema_id}")


def latest(number: int) -> bytes:
    return _request("GET", f"/subjects/s{number}-value/versions/latest")


def look_up(number: int) -> bytes:
    return _request("POST", f"/subjects/s{number}-value", {"schema": schema_text(number)})


def register(number: int) -> bytes:
    return _request("POST", f"/subjects/s{number}-value/versions", {"schema": schema_text(number)})


def _request(method: str, path: str, value: Any = None) -> bytes:
    body = b"" if value is None else json.dumps(value).encode()
    length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n{length}\r\n"
    return head.encode() + body


def requests_of(options: dict[str, Any]) -> Iterator[bytes]:
    count, first, subjects = options["count"], options.get("first", 0), options["subjects"]
    for at in range(count):
        # A step that is prime to the number of subjects: neighbours are not asked for one after the other.
        known = (at * 7919) % subjects + 1
        match options["what"]:
            case "read":
                yield read(known)
            case "register":
                yield register(first + at)
            case _ if at % 20 == 19:
                yield register(first + at)
            case _ if at % 10 == 3:
                yield look_up(known)
            case _ if at % 10 in (5, 7):
                yield latest(known)
            case _:
                yield read(known)


def main() -> None:
    options = task()
    host, _, port = options["bootstrap"].partition(":")
    requests, rate, sent = list(requests_of(options)), options.get("rate", 0), 0
    count = len(requests)
    connections = [Connection(host, int(port)) for _ in range(options["connections"])]
    selector = selectors.DefaultSelector()
    for each in connections:
        selector.register(each.socket, selectors.EVENT_READ, each)
    idle = list(connections)
    wait_for_sign()
    start = time.perf_counter()
    latencies: list[float] = []
    while len(latencies) < count:
        due_s = 0.0
        while idle and sent < count:
            # With a rate, a request that waits for a connection waits from the moment on when it was due.
            due_s = start + sent / rate if rate else time.perf_counter()
            if due_s > time.perf_counter():
                break
            idle.pop().send(requests[sent], due_s)
            sent += 1
        is_pacing = bool(rate) and bool(idle) and sent < count
        for key, _ in selector.select(max(0.0, due_s - time.perf_counter()) if is_pacing else None):
            connection: Connection = key.data
            status = connection.receive()
            if status is None:
                continue
            assert status == 200, f"answered with {status}"
            latencies.append(time.perf_counter() - connection.began_s)
            idle.append(connection)
    seconds = time.perf_counter() - start
    finish(
        seconds=seconds,
        requests=len(latencies),
        p50_ms=percentile(latencies, 50) * 1e3,
        p99_ms=percentile(latencies, 99) * 1e3,
    )


if __name__ == "__main__":
    main()
