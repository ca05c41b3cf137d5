"""TLS over real sockets: every byte once and in order, whatever the sizes; and peers that do not play along."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.authority import Authority
from tests.unit.broker.test_socket_transport import HeldSegment

from strandline.broker.network.network import SocketNetwork, SocketOptions
from strandline.broker.network.socket_transport import SLICE_OVERHEAD_BYTES
from strandline.broker.network.tls import tls_handshakes
from strandline.broker.network.tls.tls_transport import CHUNK_BYTES_MAX, TlsTransport
from strandline.config.node_config import BrokerConfig
from strandline.log.segment.log_slice import LogSlice
from strandline.runtime.runtime import LoopRuntime
from strandline.security.tls.contexts import TlsContexts, make_contexts

SEED = 80_080
KIB = 1024
MIB = 1024 * KIB
WITHIN_S = 30.0
SILENT = 1000


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def store(authority: Authority) -> Path:
    return authority.issue("node")


def contexts(authority: Authority, store: Path, **more: str) -> TlsContexts:
    config = BrokerConfig.load("", authority.settings(store, **more))
    return make_contexts(config.text, now_s=time.time())


class Told:
    """Our end of a connection, which notes what happens."""

    def __init__(self, transport: Any = None) -> None:
        self.transport = transport
        self.received = bytearray()
        self.events: list[str] = []
        self.certificate: bytes | None = None
        self.on_receive: Callable[[], object] = lambda: None

    def receive(self, view: memoryview) -> None:
        self.received += view
        self.on_receive()

    def on_congested(self) -> None:
        if "congested" not in self.events:
            self.events.append("congested")

    def on_drained(self) -> None:
        self.events.append("drained")

    def on_closed(self) -> None:
        self.events.append("closed")

    def on_connected(self) -> None:
        self.events.append("connected")


class Stage:
    """A network on a loop of its own that listens with TLS."""

    is_between_nodes = False

    def __init__(self, server: ssl.SSLContext) -> None:
        self.loop = asyncio.new_event_loop()
        self.runtime = LoopRuntime(self.loop)
        self.network = SocketNetwork(self.runtime, SocketOptions(2048, -1, -1))
        self.context = server
        self.accepted: list[Told] = []
        self.failed: list[tuple[str, str]] = []
        self.secured = 0
        self.sockets: list[socket.socket] = []
        self.listening = self.network.listen("127.0.0.1", 0, self._accept, tls=self)
        self.listening.open()

    def _accept(self, transport: Any) -> Told:
        self.accepted.append(Told(transport))
        return self.accepted[-1]

    def server_context(self) -> ssl.SSLContext:
        return self.context

    def on_secured(self, receiver: Any, certificate: bytes | None) -> None:
        self.secured += 1
        receiver.certificate = certificate

    def on_failed(self, receiver: Any, reason: str, kind: str) -> None:
        self.failed.append((reason, kind))
        receiver.transport.close()
        receiver.on_closed()

    def until(self, condition: Callable[[], object]) -> None:
        async def wait() -> None:
            deadline = time.monotonic() + WITHIN_S
            while not condition():
                assert time.monotonic() < deadline, (self.failed, self.secured, len(self.accepted))
                await asyncio.sleep(0.0005)

        self.loop.run_until_complete(wait())

    def close(self) -> None:
        self.listening.close()
        for each in self.accepted:
            each.transport.close()
        self.until(lambda: not any(each.transport.is_stepping for each in self.accepted))
        for peer in self.sockets:
            peer.close()
        self.runtime.close()
        self.loop.close()


@pytest.fixture
def stage(authority: Authority, store: Path) -> Iterator[Stage]:
    made = Stage(contexts(authority, store).server)
    yield made
    made.close()


class Peer:
    """A client whose TLS is done by hand, so that its bytes can be sent in any pieces."""

    def __init__(self, stage: Stage, context: ssl.SSLContext, *, receive_buffer_bytes: int = 0) -> None:
        self.stage = stage
        self.socket = socket.socket()
        stage.sockets.append(self.socket)
        if receive_buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.connect(("127.0.0.1", stage.listening.port))
        self.socket.setblocking(False)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def flush(self, step: int = 1 << 30) -> None:
        """Send what is encrypted, `step` bytes at a time with turns of the loop between."""
        data = self.outgoing.read()
        for at in range(0, len(data), step):
            rest = memoryview(data)[at : at + step]
            while rest:
                with contextlib.suppress(BlockingIOError):
                    rest = rest[self.socket.send(rest) :]
                self.turn()

    def turn(self) -> None:
        self.stage.loop.run_until_complete(asyncio.sleep(0))

    def take(self, size: int = 256 * KIB) -> bool:
        """Take bytes of the socket; False when the broker has closed it."""
        self.turn()
        with contextlib.suppress(BlockingIOError):
            data = self.socket.recv(size)
            self.incoming.write(data)
            return bool(data)
        return True

    def shake_hands(self, step: int = 1 << 30) -> None:
        deadline = time.monotonic() + WITHIN_S
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.flush(step)
                assert self.take(), self.stage.failed
                assert time.monotonic() < deadline
            else:
                self.flush(step)
                return

    def read(self, size: int) -> bytes:
        received = bytearray()
        deadline = time.monotonic() + WITHIN_S
        while len(received) < size:
            assert time.monotonic() < deadline, (len(received), size)
            try:
                received += self.tls.read(min(size - len(received), MIB))
            except ssl.SSLWantReadError:
                assert self.take(), "the broker hung up"
        return bytes(received)


@pytest.fixture
def client(authority: Authority, store: Path) -> ssl.SSLContext:
    return contexts(authority, store).client


@pytest.mark.parametrize("step", [1, 7, 1 << 30])
def test_records_in_any_pieces(stage: Stage, client: ssl.SSLContext, step: int) -> None:
    peer = Peer(stage, client)
    peer.shake_hands(step)
    peer.tls.write(b"a request")
    peer.flush(step)
    (told,) = stage.accepted
    stage.until(lambda: told.received == b"a request")
    told.transport.send(b"an answer")
    assert peer.read(9) == b"an answer"
    assert told.certificate is None
    peer.socket.close()
    stage.until(lambda: told.events == ["closed"])


def test_the_first_request_may_come_with_the_end_of_the_handshake(stage: Stage, client: ssl.SSLContext) -> None:
    peer = Peer(stage, client)
    while True:
        try:
            peer.tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            peer.flush()
            peer.take()
    peer.tls.write(b"at once")
    peer.flush()
    stage.until(lambda: stage.accepted[0].received == b"at once")


@pytest.mark.parametrize("is_held", [False, True])
def test_bytes_that_openssl_holds_are_read_though_the_socket_is_silent(
    stage: Stage, client: ssl.SSLContext, is_held: bool
) -> None:
    """Each part ends before a record does, and reading stops after each: what is left is in no socket any more."""
    peer = Peer(stage, client)
    peer.shake_hands()
    stage.listening.hold_back(is_held)
    sent = random.Random(SEED).randbytes(315 * 10_000)
    stage.until(lambda: stage.secured)
    (told,) = stage.accepted
    told.on_receive = told.transport.pause
    for at in range(0, len(sent), 10_000):
        peer.tls.write(sent[at : at + 10_000])
    data = peer.outgoing.read()
    while data:
        with contextlib.suppress(BlockingIOError):
            data = data[peer.socket.send(data) :]
        peer.turn()
        told.transport.resume()

    def is_all() -> bool:
        told.transport.resume()
        return len(told.received) == len(sent)

    stage.until(is_all)
    assert told.received == sent


def test_a_paused_connection_is_not_read(stage: Stage, client: ssl.SSLContext) -> None:
    peer = Peer(stage, client)
    peer.shake_hands()
    stage.until(lambda: stage.secured)
    (told,) = stage.accepted
    told.transport.pause()
    peer.tls.write(b"later")
    peer.flush()
    for _ in range(20):
        peer.turn()
    assert not told.received
    told.transport.resume()
    stage.until(lambda: told.received == b"later")


@pytest.mark.parametrize("is_cold", [False, True])
def test_a_slow_reader_gets_all_of_it_and_keeps_little_in_memory(
    stage: Stage, client: ssl.SSLContext, tmp_path: Path, is_cold: bool
) -> None:
    rng = random.Random(SEED)
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(rng.randbytes(6 * MIB))
    segment: Any = HeldSegment(path, rng if is_cold else None)
    peer = Peer(stage, client, receive_buffer_bytes=16 * KIB)
    peer.shake_hands()
    stage.until(lambda: stage.secured)
    (told,) = stage.accepted
    pieces: list[Any] = []
    for _ in range(30):
        pieces.append(rng.randbytes(rng.randrange(1, 200)))
        pieces.append(LogSlice(segment, rng.randrange(MIB), rng.randrange(1, 300 * KIB)))
    pieces.append(rng.randbytes(300 * KIB))
    pieces.append(memoryview(rng.randbytes(300 * KIB)))
    content = path.read_bytes()
    expected = b"".join(
        content[each.position : each.position + each.size_bytes] if isinstance(each, LogSlice) else each
        for each in pieces
    )
    waiting = sum(SLICE_OVERHEAD_BYTES if isinstance(each, LogSlice) else len(each) for each in pieces)
    told.transport.send_pieces(pieces)
    told.transport.send(b"the end")
    assert told.transport.is_congested
    received = bytearray()
    while len(received) < len(expected) + 7:
        received += peer.read(min(10 * KIB, len(expected) + 7 - len(received)))
        assert told.transport.unsent_bytes <= waiting + CHUNK_BYTES_MAX + 7
    assert received == expected + b"the end"
    stage.until(lambda: not told.transport.is_congested)
    assert told.events[-1] == "drained"
    assert segment.held == 0


def test_a_connection_that_is_closed_releases_what_waits(stage: Stage, client: ssl.SSLContext, tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(bytes(6 * MIB))
    segment: Any = HeldSegment(path, random.Random(SEED))
    peer = Peer(stage, client)
    peer.shake_hands()
    stage.until(lambda: stage.secured)
    (told,) = stage.accepted
    told.transport.send_pieces([b"head", *(LogSlice(segment, 0, 5 * MIB) for _ in range(4))])
    told.transport.close()
    stage.until(lambda: segment.held == 0)
    assert told.events in ([], ["congested"])


def test_a_close_tells_the_peer_that_nothing_is_missing(stage: Stage, client: ssl.SSLContext) -> None:
    peer = Peer(stage, client)
    peer.shake_hands()
    stage.until(lambda: stage.secured)
    stage.accepted[0].transport.close()
    while peer.take():
        pass
    assert peer.tls.read(1) == b"", "without the word of the broker it would ask for more"


def test_a_plain_client_is_told_apart(stage: Stage) -> None:
    with socket.create_connection(("127.0.0.1", stage.listening.port)) as plain:
        plain.sendall(b"\0\0\0\x20\0\x12\0\4")
        stage.until(lambda: stage.failed)
    assert stage.failed == [
        ("it does not speak TLS, and this listener does: set security.protocol=SSL or SASL_SSL", "protocol")
    ]


@pytest.mark.parametrize("noise", [b"\x16", b"\x16\x03\x01\x00", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"])
def test_half_a_hello_and_no_more(stage: Stage, noise: bytes) -> None:
    with socket.create_connection(("127.0.0.1", stage.listening.port)) as half:
        half.sendall(noise)
        for _ in range(10):
            stage.loop.run_until_complete(asyncio.sleep(0.001))
    stage.until(lambda: "closed" in stage.accepted[0].events)
    assert stage.secured == 0


def test_bytes_that_are_no_handshake(stage: Stage) -> None:
    with socket.create_connection(("127.0.0.1", stage.listening.port)) as odd:
        odd.sendall(b"\x16\x03\x01\x00\x20" + bytes(32))
        stage.until(lambda: stage.failed)
    assert "the TLS handshake failed" in stage.failed[0][0]


def test_hellos_with_other_bits_harm_only_their_connections(stage: Stage, client: ssl.SSLContext) -> None:
    rng = random.Random(SEED)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        client.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    hello = outgoing.read()
    for number in range(300):
        odd = bytearray(hello)
        for _ in range(rng.randrange(1, 8)):
            odd[rng.randrange(1, len(odd))] = rng.randrange(256)
        with socket.create_connection(("127.0.0.1", stage.listening.port)) as peer:
            peer.sendall(odd[: rng.randrange(1, len(odd))] if number % 3 else odd)
            stage.loop.run_until_complete(asyncio.sleep(0))
    stage.until(lambda: len(stage.accepted) == 300 and all("closed" in each.events for each in stage.accepted))
    assert stage.secured == 0
    Peer(stage, client).shake_hands()
    stage.until(lambda: stage.secured == 1)


def test_noise_after_the_handshake_ends_the_connection(stage: Stage, client: ssl.SSLContext) -> None:
    peer = Peer(stage, client)
    peer.shake_hands()
    stage.until(lambda: stage.secured)
    peer.socket.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
    stage.until(lambda: stage.accepted[0].events == ["closed"])


@pytest.mark.lengthy("large inputs")
def test_silent_peers_cost_little_and_are_closed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 3 * SILENT:
        pytest.skip("too few descriptors are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3 * SILENT), hard))
    descriptors = len(os.listdir("/proc/self/fd"))
    before = _resident_bytes()
    peers = [socket.create_connection(("127.0.0.1", stage.listening.port)) for _ in range(SILENT)]
    try:
        stage.until(lambda: len(stage.accepted) == SILENT)
        for peer in peers[::2]:
            peer.sendall(b"\x16\x03\x01\x02\x00\x01")
        for _ in range(50):
            stage.loop.run_until_complete(asyncio.sleep(0.002))
        assert _resident_bytes() - before < SILENT * 100 * KIB
        assert len(os.listdir("/proc/self/fd")) <= descriptors + 2 * SILENT + 10
        monkeypatch.setattr(tls_handshakes, "HANDSHAKE_S_MAX", 0.0)
        stage.until(lambda: len(stage.failed) == SILENT)
        assert {kind for _, kind in stage.failed} == {"deadline"}
        stage.until(lambda: len(os.listdir("/proc/self/fd")) <= descriptors + SILENT + 10)
    finally:
        for peer in peers:
            peer.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_a_handshake_is_served_while_many_wait(stage: Stage, client: ssl.SSLContext) -> None:
    hellos = []
    for _ in range(100):
        waiting = Peer(stage, client)
        with contextlib.suppress(ssl.SSLWantReadError):
            waiting.tls.do_handshake()
        hellos.append(waiting)
    for waiting in hellos:
        waiting.socket.send(waiting.outgoing.read())
    Peer(stage, client).shake_hands()
    for waiting in hellos:
        waiting.shake_hands()
    stage.until(lambda: stage.secured == 101)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_old_versions_are_rejected(stage: Stage, version: ssl.TLSVersion) -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname = False
    old.verify_mode = ssl.CERT_NONE
    old.minimum_version = old.maximum_version = version
    old.set_ciphers("ALL:@SECLEVEL=0")
    peer = Peer(stage, old)
    with contextlib.suppress(ssl.SSLError, AssertionError):
        peer.shake_hands()
    stage.until(lambda: stage.failed)
    assert "unsupported protocol" in stage.failed[0][0]


def test_renegotiation_is_refused(stage: Stage, authority: Authority) -> None:
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{stage.listening.port}", "-tls1_2"]
    with subprocess.Popen(
        [*command, "-CAfile", str(authority.trusted)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as asking:
        stage.until(lambda: stage.secured)
        assert asking.stdin is not None
        asking.stdin.write(b"R\n")
        asking.stdin.flush()
        stage.until(lambda: asking.poll() is not None)
        assert asking.stdout is not None
        assert b"no renegotiation" in asking.stdout.read()
    assert stage.secured == 1


def test_a_client_shows_its_certificate(authority: Authority, store: Path) -> None:
    stage = Stage(contexts(authority, store, ssl_client_auth="required").server)
    try:
        Peer(stage, contexts(authority, authority.issue("guest")).client).shake_hands()
        stage.until(lambda: stage.secured)
        assert b"guest" in (stage.accepted[0].certificate or b"")
        plain = ssl.create_default_context(cafile=str(authority.trusted))
        peer = Peer(stage, plain)
        with contextlib.suppress(ssl.SSLError, AssertionError):
            peer.shake_hands()
        stage.until(lambda: stage.failed)
        assert "peer did not return a certificate" in stage.failed[0][0]
    finally:
        stage.close()


class Outgoing:
    """A connection that is made to the stage."""

    def __init__(self, stage: Stage, context: ssl.SSLContext, *, host: str = "localhost", port: int = 0) -> None:
        self.told = Told()
        tls = SimpleNamespace(client_context=lambda: context)
        self.transport = stage.network.connect(host, port or stage.listening.port, self.told, tls=tls)


def test_a_connection_that_we_make(stage: Stage, client: ssl.SSLContext) -> None:
    made = Outgoing(stage, client)
    stage.until(lambda: made.told.events == ["connected"])
    made.transport.send(b"asked")
    stage.until(lambda: stage.accepted and stage.accepted[0].received == b"asked")
    stage.accepted[0].transport.send(b"x" * MIB)
    stage.until(lambda: len(made.told.received) == MIB)
    made.transport.close()
    stage.until(lambda: "closed" in stage.accepted[0].events)


def test_the_certificate_of_another_host_is_rejected(
    stage: Stage, authority: Authority, client: ssl.SSLContext
) -> None:
    stage.context = contexts(authority, authority.issue("elsewhere", names=("DNS:elsewhere",))).server
    made = Outgoing(stage, client)
    stage.until(lambda: made.told.events)
    assert made.told.events == ["closed"]
    assert "localhost" in made.transport.failure
    assert "certificate of the peer is rejected" in made.transport.failure
    assert not made.transport.is_refused


def test_a_certificate_of_an_unknown_authority_is_rejected(stage: Stage, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger")
    made = Outgoing(stage, contexts(stranger, stranger.issue("guest")).client)
    stage.until(lambda: made.told.events)
    assert made.told.events == ["closed"]
    assert "certificate of the peer is rejected" in made.transport.failure


def test_a_peer_without_tls_is_told_apart(stage: Stage, client: ssl.SSLContext) -> None:
    with socket.create_server(("127.0.0.1", 0)) as plain:
        made = Outgoing(stage, client, host="127.0.0.1", port=plain.getsockname()[1])
        plain.setblocking(False)
        accepted: list[socket.socket] = []

        def is_accepted() -> bool:
            with contextlib.suppress(BlockingIOError):
                accepted.append(plain.accept()[0])
            return bool(accepted)

        stage.until(is_accepted)
        accepted[0].sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        stage.until(lambda: made.told.events)
        accepted[0].close()
    assert made.transport.failure == "the peer does not speak TLS"


def test_a_closed_handshake_leaves_nothing_behind(stage: Stage, client: ssl.SSLContext) -> None:
    for _ in range(20):
        made = Outgoing(stage, client)
        stage.until(lambda made=made: made.transport._transport is not None)
        made.transport.close()
        assert "closed" not in made.told.events
    stage.until(lambda: len(stage.accepted) == 20 and all(each.events for each in stage.accepted))
    assert isinstance(stage.accepted[0].transport, TlsTransport)
