"""Ten thousand peers that begin a TLS handshake and never end it: a client that produces goes on, memory is bounded.

Half of them send nothing, the other half the first part of a hello. The same number of plain connections is the
control: it is measured in the same run, on the same node.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from tests.hostile.process import descriptors, forget_peak, peak_resident_bytes, until
from tests.secured_node import SecuredNode, secured_node

from strandline.client.security import ClientSecurity

PER_ADDRESS = 5_000
MORE_EACH_BYTES_MAX = 40 * 1024
"""What a silent peer may cost more than a plain one, on average: the state of OpenSSL for those that sent something."""
TIMEOUT_S = 120
TOPIC = "neighbour"


def half_a_hello() -> bytes:
    """Return the first part of what a client of TLS begins with."""
    sent = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost").do_handshake()
    hello = sent.read()
    return hello[: len(hello) // 2]


@contextmanager
def crowd(node: SecuredNode, port: int, count: int) -> Iterator[list[socket.socket]]:
    hello = half_a_hello()
    held: list[socket.socket] = []
    try:
        for number in range(count):
            peer = socket.socket()
            held.append(peer)
            peer.bind((f"127.0.0.{2 + number // PER_ADDRESS}", 0))
            peer.connect(("127.0.0.1", port))
            if number % 2:
                with suppress(ConnectionResetError, BrokenPipeError):
                    peer.sendall(hello if port == node.port else b"\0\0")
        yield held
    finally:
        for peer in held:
            peer.close()


class Neighbour:
    """A producer over TLS with a login. It has no retries: each failure and each lost connection is noticed."""

    def __init__(self, node: SecuredNode) -> None:
        self.delivered = 0
        self.failures: list[str] = []
        given = ClientSecurity.of(node.admin).librdkafka()
        self._producer = Producer(
            {
                **given,
                "bootstrap.servers": node.bootstrap,
                "retries": 0,
                "socket.timeout.ms": TIMEOUT_S * 1000,
                "log_level": 0,
                "error_cb": lambda error: self.failures.append(str(error)),
            }
        )
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Neighbour:
        self._thread.start()
        until(lambda: self.delivered > 0 or bool(self.failures), "the first record is written")
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(TIMEOUT_S)

    def _write(self) -> None:
        while not self._ending.is_set():
            self._producer.produce(TOPIC, b"x" * 100, on_delivery=self._on_delivery)
            if self._producer.flush(TIMEOUT_S):
                self.failures.append("a record was not delivered in time")
                return

    def _on_delivery(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.delivered += 1
        else:
            self.failures.append(str(error))


def peak_with(node: SecuredNode, port: int, count: int, neighbour: Neighbour, *, until_ended: bool = False) -> int:
    """Return how many bytes each peer of a crowd cost at most, with the client that goes on beside it."""
    forget_peak(node.pid)
    before, open_before = peak_resident_bytes(node.pid), descriptors(node.pid)
    with crowd(node, port, count) as held:
        went_on = neighbour.delivered
        until(lambda: neighbour.delivered > went_on + 20 or bool(neighbour.failures), "the neighbour goes on")
        for peer in held if until_ended else ():
            # The node ends each of them by itself.
            peer.settimeout(TIMEOUT_S)
            with suppress(ConnectionResetError):
                while peer.recv(1024):
                    pass
    until(lambda: descriptors(node.pid) < open_before + 50, "descriptors are given back")
    return (peak_resident_bytes(node.pid) - before) // count


@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_client_goes_on_beside_silent_handshakes(tmp_path: Path, count: int) -> None:
    with secured_node(tmp_path, max_connections="20000") as node, Neighbour(node) as neighbour:
        # What the first crowd makes the node load and keep is not counted.
        peak_with(node, node.port, 100, neighbour)
        plain = peak_with(node, node.plain_port, count, neighbour)
        silent = peak_with(node, node.port, count, neighbour, until_ended=True)
        print(f"{plain} bytes for each of {count} plain connections, {silent} for each silent handshake")
        assert silent < plain + MORE_EACH_BYTES_MAX
        assert neighbour.failures == []
        assert "Traceback" not in node.stderr_text()
