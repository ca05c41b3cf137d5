"""Answers of bytes and slices over a real socket: every byte once and in order, and little of it in memory."""

from __future__ import annotations

import asyncio
import random
import socket
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.broker.network.disconnects import Disconnects
from strandline.broker.network.socket_transport import COPY_BYTES_MAX, ReceiveBuffer, SocketTransport
from strandline.log.disk import RealDisk
from strandline.log.segment.log_slice import LogSlice
from strandline.runtime.runtime import LoopRuntime

SEED = 61_616
KIB = 1024


class ColdAtTimes:
    """A file whose pages are not in the cache now and then."""

    def __init__(self, real: Any, rng: random.Random | None) -> None:
        self.real = real
        self.rng = rng

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def is_warm(self) -> bool:
        return self.rng is None or self.rng.random() < 0.7

    def read_at_nowait(self, position: int, size: int) -> bytes | None:
        return self.real.read_at_nowait(position, size) if self.is_warm() else None

    def is_cached(self, position: int) -> bool:
        return self.is_warm() and bool(self.real.is_cached(position))


class HeldSegment:
    """A file that counts its readers."""

    def __init__(self, path: Path, rng: random.Random | None) -> None:
        self.path = path
        self.held = 0
        self._file = ColdAtTimes(RealDisk().open(path), rng)

    def file(self) -> Any:
        return self._file

    def retain(self) -> None:
        self.held += 1

    def release(self) -> None:
        self.held -= 1
        assert self.held >= 0


class CountedSocket:
    """A socket that counts how often bytes are sent by it."""

    def __init__(self, real: socket.socket) -> None:
        self.real = real
        self.sends = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def send(self, data: Any, flags: int = 0) -> int:
        self.sends += 1
        return self.real.send(data, flags)


class Told:
    def __init__(self) -> None:
        self.drained = 0
        self.closed = 0

    def receive(self, view: memoryview) -> None: ...

    def on_congested(self) -> None: ...

    def on_drained(self) -> None:
        self.drained += 1

    def on_closed(self) -> None:
        self.closed += 1


class Wire:
    """A transport on a loop of its own, and the other end of its socket."""

    def __init__(self, path: Path, rng: random.Random | None = None) -> None:
        self.loop = asyncio.new_event_loop()
        self.runtime = LoopRuntime(self.loop)
        ours, self.theirs = socket.socketpair()
        ours.setblocking(False)
        self.theirs.setblocking(False)
        self.socket = CountedSocket(ours)
        accepted: Any = self.socket
        self.told = Told()
        buffer = ReceiveBuffer(memoryview(bytearray(KIB)))
        self.transport = SocketTransport(self.loop, self.runtime, accepted, buffer, Disconnects(self.loop), "peer")
        self.transport.attach(self.told)
        self.segment = HeldSegment(path, rng)

    def slice_of(self, position: int, size: int) -> LogSlice:
        segment: Any = self.segment
        return LogSlice(segment, position, size)

    def receive(self, size: int) -> bytes:
        """What the peer takes next, with turns of the loop between."""
        received = bytearray()
        while len(received) < size:
            self.loop.run_until_complete(asyncio.sleep(0))
            try:
                received += self.theirs.recv(size - len(received))
            except BlockingIOError:
                continue
        return bytes(received)

    def close(self) -> None:
        self.transport.close()
        self.theirs.close()
        self.runtime.close()
        self.loop.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(random.Random(SEED).randbytes(4 * 1024 * KIB))
    return path


@pytest.fixture
def wire(file: Path) -> Iterator[Wire]:
    made = Wire(file)
    yield made
    made.close()


def test_a_small_answer_is_one_send(wire: Wire) -> None:
    wire.transport.send_pieces([b"head", wire.slice_of(10, 500), b"between", wire.slice_of(7_000, 1_000), b"tail"])
    assert wire.socket.sends == 1
    assert wire.segment.held == 0
    whole = wire.segment.path.read_bytes()
    assert wire.receive(1_515) == b"head" + whole[10:510] + b"between" + whole[7_000:8_000] + b"tail"


def test_views_of_a_cache_are_sent_without_a_copy(wire: Wire) -> None:
    block = bytearray(random.Random(SEED).randbytes(3 * 1024 * KIB))
    tracemalloc.start()
    try:
        wire.transport.send_pieces(
            [b"head", *(memoryview(block)[n : n + 1024 * KIB] for n in range(0, len(block), 1024 * KIB))]
        )
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < COPY_BYTES_MAX, "a view that waits was copied"
    assert wire.transport.unsent_bytes >= 2 * len(block), "a view that waits holds its whole block"
    assert wire.receive(4 + len(block)) == b"head" + block
    assert wire.told.drained == 1


def test_small_slices_that_are_not_taken_are_not_read(wire: Wire) -> None:
    slices = [wire.slice_of(n * 60 * KIB, 60 * KIB) for n in range(60)]
    tracemalloc.start()
    try:
        wire.transport.send_pieces([b"head", *slices])
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert wire.transport.is_congested
    assert held < COPY_BYTES_MAX, "batches that wait take memory"
    assert wire.receive(4 + 60 * 60 * KIB) == b"head" + wire.segment.path.read_bytes()[: 60 * 60 * KIB]
    assert wire.segment.held == 0
    assert wire.told.drained == 1


def test_closing_releases_what_waits(wire: Wire) -> None:
    wire.transport.send_pieces([b"head", *(wire.slice_of(n * 60 * KIB, 60 * KIB) for n in range(60))])
    assert wire.segment.held > 0
    wire.transport.close()
    assert wire.segment.held == 0


@pytest.mark.parametrize("number", range(12))
def test_every_byte_once_and_in_order(file: Path, number: int) -> None:
    """Pieces of all sizes, pages that come and go, a peer that takes crumbs."""
    rng = random.Random(SEED + number)
    wire = Wire(file, rng if number % 2 else None)
    whole = file.read_bytes()
    try:
        expected = bytearray()
        for _ in range(3):
            pieces: list[bytes | memoryview | LogSlice] = []
            for _ in range(rng.randrange(1, 30)):
                if rng.random() < 0.5:
                    data = rng.randbytes(rng.choice((0, 1, 50, 100_000)))
                    pieces.append(memoryview(data) if rng.random() < 0.3 else data)
                    expected += data
                else:
                    size = rng.choice((1, 800, 20_000, COPY_BYTES_MAX, COPY_BYTES_MAX + 1, 500_000))
                    position = rng.randrange(len(whole) - size)
                    pieces.append(wire.slice_of(position, size))
                    expected += whole[position : position + size]
            wire.transport.send_pieces(pieces)
            wire.transport.send(b"an answer of bytes")
            expected += b"an answer of bytes"
        received = b""
        while len(received) < len(expected):
            received += wire.receive(min(len(expected) - len(received), rng.choice((1, 3_000, 300_000))))
        assert received == bytes(expected)
        wire.loop.run_until_complete(asyncio.sleep(0))
        assert wire.segment.held == 0
        assert not wire.transport.is_congested
        assert wire.transport.unsent_bytes == 0
    finally:
        wire.close()
