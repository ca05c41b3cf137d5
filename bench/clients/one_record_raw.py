"""`connections` sockets, each with one record per request and one request in flight, acks=all.

Bare sockets and a prebuilt request: the client costs a few microseconds per request, so that the latencies are the
broker's and not those of 32 client libraries fighting for two cores. With `idempotent` each connection has its own
producer id. With `users` each connection logs in as one of them, by SASL PLAIN.
"""

from __future__ import annotations

import select
import time

from bench.clients.turn import finish, task, wait_for_sign
from bench.measure import percentile
from bench.secured import log_in
from bench.wire import Connection, OneRecordProduce


def main() -> None:
    options = task()
    # Bare sockets know nothing of leaders: where each partition is led stands in the task, or there is one broker.
    addresses = options.get("addresses") or [options["bootstrap"]]
    connections: dict[int, Connection] = {}
    requests: dict[int, OneRecordProduce] = {}
    for number in range(options["connections"]):
        host, _, port = addresses[number % options["partitions"] % len(addresses)].partition(":")
        connection = Connection(host, int(port))
        if "users" in options:
            log_in(connection, options["users"][number % len(options["users"])])
        producer = connection.init_producer_id() if options["idempotent"] else None
        request = OneRecordProduce(options["topic"], number % options["partitions"], b"x" * 100, producer)
        connections[connection.socket.fileno()] = connection
        requests[connection.socket.fileno()] = request
        # One request outside the measured span: a connection's first touches what its later ones find warm.
        error = request.error_of(connection.exchange(request.request))
        if error:
            raise SystemExit(f"the first Produce was refused: error code {error}")
        request.advance()
    answer_bytes = _answer_bytes(next(iter(connections.values())), next(iter(requests.values())))
    for connection in connections.values():
        connection.socket.setblocking(False)
    wait_for_sign()

    start = time.perf_counter()
    latencies = _drive(connections, requests, options["count"], answer_bytes)
    seconds = time.perf_counter() - start
    finish(
        seconds=seconds,
        requests=len(latencies),
        p50_ms=percentile(latencies, 50) * 1e3,
        p99_ms=percentile(latencies, 99) * 1e3,
    )


def _answer_bytes(connection: Connection, request: OneRecordProduce) -> int:
    """The size of a good answer: fixed, because it holds one partition and no error text."""
    answer = connection.exchange(request.request)
    if request.error_of(answer):
        raise SystemExit(f"the second Produce was refused: error code {request.error_of(answer)}")
    request.advance()
    return len(answer)


def _drive(
    connections: dict[int, Connection], requests: dict[int, OneRecordProduce], count: int, answer_bytes: int
) -> list[float]:
    poll = select.epoll()
    sent_at: dict[int, float] = {}
    clock = time.perf_counter
    for descriptor, connection in connections.items():
        poll.register(descriptor, select.EPOLLIN)
        sent_at[descriptor] = clock()
        connection.socket.send(requests[descriptor].request)
    latencies: list[float] = []
    partial: dict[int, bytes] = {}
    to_send = count - len(connections)
    while len(latencies) < count:
        for descriptor, _ in poll.poll():
            answer = partial.pop(descriptor, b"") + connections[descriptor].socket.recv(4096)
            if len(answer) < answer_bytes:
                if not answer:
                    raise SystemExit("the server closed the connection")
                partial[descriptor] = answer
                continue
            now = clock()
            latencies.append(now - sent_at[descriptor])
            request = requests[descriptor]
            error = request.error_of(answer)
            if error:
                raise SystemExit(f"Produce was refused: error code {error}")
            if to_send > 0:
                to_send -= 1
                request.advance()
                sent_at[descriptor] = clock()
                connections[descriptor].socket.send(request.request)
    return latencies


if __name__ == "__main__":
    main()
