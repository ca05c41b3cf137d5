"""A bystander: one-record Produce requests at a steady rate over a few sockets, until it is told to stop.

A request goes out when it is due even while earlier ones wait, and its latency counts from that moment. Otherwise a
stalled broker would hide its stall by keeping us from asking.
"""

from __future__ import annotations

import select
import sys
import time
from collections import deque
from typing import Any

from bench.clients.turn import finish, task, wait_for_sign
from bench.measure import percentile
from bench.wire import Connection, OneRecordProduce


class Lane:
    """One connection with its requests in flight, oldest first; the broker answers them in order."""

    def __init__(self, host: str, port: int, topic: str, partition: int, value_bytes: int) -> None:
        self.connection = Connection(host, port)
        self.request = OneRecordProduce(topic, partition, b"x" * value_bytes)
        answer = self.connection.exchange(self.request.request)
        self.check(answer)
        self.answer_bytes = len(answer)
        self.connection.socket.setblocking(False)
        self.due: deque[float] = deque()
        self.received = b""

    def fileno(self) -> int:
        return self.connection.socket.fileno()

    def check(self, answer: bytes) -> None:
        error = self.request.error_of(answer)
        if error:
            raise SystemExit(f"a Produce was refused: error code {error}")

    def send(self, due: float) -> None:
        self.due.append(due)
        self.connection.socket.send(self.request.request)

    def receive(self) -> list[float]:
        self.received += self.connection.socket.recv(65_536)
        now = time.perf_counter()
        latencies = []
        while len(self.received) >= self.answer_bytes:
            self.check(self.received)
            self.received = self.received[self.answer_bytes :]
            latencies.append(now - self.due.popleft())
        return latencies


def main() -> None:
    options = task()
    host, _, port = options["bootstrap"].partition(":")
    lanes = [
        Lane(host, int(port), options["topic"], number % options["partitions"], options.get("value_bytes", 100))
        for number in range(options["connections"])
    ]
    wait_for_sign()
    start = time.perf_counter()
    latencies = _pace(lanes, 1 / options["rate_per_s"])
    finish(
        seconds=time.perf_counter() - start,
        requests=len(latencies),
        p50_ms=percentile(latencies, 50) * 1e3,
        p99_ms=percentile(latencies, 99) * 1e3,
        max_ms=max(latencies) * 1e3,
    )


def _pace(lanes: list[Lane], interval_s: float) -> list[float]:
    latencies: list[float] = []
    due = time.perf_counter()
    stopping = False
    turn = 0
    while not stopping or any(lane.due for lane in lanes):
        wait_s = 1.0 if stopping else max(0.0, due - time.perf_counter())
        readable: list[Any] = select.select([*lanes, sys.stdin], [], [], wait_s)[0]
        for source in readable:
            if isinstance(source, Lane):
                latencies += source.receive()
            else:
                stopping = True
        while not stopping and due <= time.perf_counter():
            lanes[turn % len(lanes)].send(due)
            turn += 1
            due += interval_s
    return latencies


if __name__ == "__main__":
    main()
