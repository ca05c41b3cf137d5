"""Ten thousand connections that say two bytes and no more: others do not notice, and in the end they are closed."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from tests.hostile.batches import batch, produce
from tests.hostile.peer import Peer, request
from tests.hostile.process import MIB, descriptors, resident_bytes, until
from tests.hostile.stage import stage

from strandline.local.embedded_broker import EmbeddedBroker

CROWD = 10_000
PER_ADDRESS = 5_000
REQUESTS = 2_000
ROUNDS = 3
P99_RATIO_MAX = 2.0
NOISE_MS = 0.5
"""Added to what is compared: below it a shared machine measures itself."""
MEMORY_EACH_BYTES_MAX = 4096


@contextmanager
def crowd(broker: EmbeddedBroker, count: int, *, is_welcome: bool = True) -> Iterator[list[socket.socket]]:
    held: list[socket.socket] = []
    before = descriptors(broker.pid)
    try:
        for number in range(count):
            peer = socket.socket()
            held.append(peer)
            peer.bind((f"127.0.0.{2 + number // PER_ADDRESS}", 0))
            peer.connect(("127.0.0.1", broker.port))
            with suppress(ConnectionResetError, BrokenPipeError):
                peer.sendall(b"\0\0")
        if is_welcome:
            until(lambda: descriptors(broker.pid) >= before + count, f"{count} connections are accepted")
        yield held
    finally:
        for peer in held:
            peer.close()
    until(lambda: descriptors(broker.pid) < before + 100, "descriptors are given back")


def p99_ms(broker: EmbeddedBroker) -> float:
    """Of one-record requests on one connection, one after the other."""
    content = request(produce("target", batch([b"x" * 100]), acks=1), 9)
    took: list[float] = []
    with Peer(broker.port) as peer:
        for _ in range(REQUESTS):
            start = time.perf_counter()
            peer.send(content)
            peer.receive_answer()
            took.append(time.perf_counter() - start)
    return sorted(took)[REQUESTS * 99 // 100] * 1000


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_others_do_not_notice() -> None:
    properties = {"flush.mode": "async", "connection.first.request.timeout.ms": "600000"}
    with stage({"target": 1}, properties=properties) as log:
        p99_ms(log)
        alone, crowded = [], []
        for _ in range(ROUNDS):
            # In turn, so that what changes is the crowd and not the hour.
            alone.append(p99_ms(log))
            before = resident_bytes(log.pid)
            with crowd(log, CROWD):
                grown = (resident_bytes(log.pid) - before) / CROWD
                crowded.append(p99_ms(log))
            print(f"p99 {alone[-1]:.2f} ms alone, {crowded[-1]:.2f} ms in the crowd, {grown:.0f} bytes each")
            assert grown < MEMORY_EACH_BYTES_MAX
        # The best of each: what the machine adds is never less than nothing.
        assert min(crowded) < P99_RATIO_MAX * (min(alone) + NOISE_MS), f"alone {alone}, crowded {crowded}"


@pytest.mark.parametrize("count", [500, pytest.param(CROWD, marks=pytest.mark.slow)])
def test_they_are_hung_up_on(count: int) -> None:
    """All of them at about the same time; the stage says whether that kept the loop."""
    # Not so short that a machine which stands still for seconds makes silent peers of the others, too.
    with stage({"target": 1}, properties={"connection.first.request.timeout.ms": "5000"}) as log:
        with crowd(log, count, is_welcome=False) as held, Peer(log.port) as served:
            assert served.is_served()
            for peer in held:
                peer.settimeout(60)
                with suppress(ConnectionResetError):
                    assert peer.recv(1) == b""
            assert served.is_served()
        assert resident_bytes(log.pid) < 400 * MIB
