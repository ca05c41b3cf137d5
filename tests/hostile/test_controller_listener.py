"""The controller listener and strangers: every API that nodes use among themselves, sound, odd and spoilt.

An empty FetchSnapshot once stopped Apache Kafka's controllers. Here every request gets an answer or a closed
connection, no exception reaches the top, and when all is over the node still leads its quorum and creates topics. A
stranger who is let through to this port may vote, and depose the leader of a quorum of one for a moment; it comes back
by itself.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.hostile.odd_requests import body_of, cuts, damages, may_wait, odd_message
from tests.hostile.peer import Peer, answer_of, framed, header, request_class
from tests.hostile.process import MIB, resident_bytes, standard_error, until

from strandline.broker.network.routes import CONTROLLER, Route, routes
from strandline.codec.message_codec import encode
from strandline.codec.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from strandline.local.free_ports import free_port

SEED = 5_813
GROWTH_BYTES_MAX = 64 * MIB
SERVED = routes(CONTROLLER)
ROUTES = [pytest.param(route, id=route.name) for route in SERVED.values()]
API_VERSIONS = 18


class ControllerNode:
    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.client_port = free_port()
        settings = {
            "node.id": "1",
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.client_port},CONTROLLER://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "http.listener": "off",
        }
        words = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
        self.errors = directory / "stderr"
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "strandline.broker", "--data", str(directory / "data"), *words],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("ready"), self.errors.read_text()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControllerNode]:
    made = ControllerNode(tmp_path_factory.mktemp("controller"))
    try:
        yield made
        assert made.process.poll() is None, "the node ended"
        text = standard_error(made.process.pid)
        assert "Traceback" not in text, text[text.index("Traceback") - 500 :][:4000]
        until(lambda: creates_a_topic(made), "the node leads its quorum and creates topics")
        made.process.terminate()
        assert made.process.wait(60) == 0
    finally:
        if made.process.poll() is None:
            made.process.kill()
            made.process.wait()
        assert made.process.stdout is not None
        made.process.stdout.close()


def creates_a_topic(node: ControllerNode) -> bool:
    # Odd requests register brokers that do not exist, so the place is named.
    topic: Any = CreatableTopic(name="after-all", num_partitions=1, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=1000)
    with Peer(node.port) as peer:
        content = peer.ask_raw(frame(SERVED[19], 7, encode(request, 7)))
    assert content is not None
    return answer_of(SERVED[19], 7, content).topics[0].error_code in (0, 36)


def frame(route: Route, version: int, body: bytes) -> bytes:
    return framed(header(route.api_key, version, flexible=version >= route.flexible_from) + body)


class Line:
    """A connection that is made anew whenever the node hung up."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._peer: Peer | None = None

    def settle(self, route: Route, version: int, body: bytes) -> bool:
        """Whether it was answered, with a message that is one, rather than hung up on."""
        if self._peer is None:
            self._peer = Peer(self._port)
        content = self._peer.ask_raw(frame(route, version, body))
        if content is None:
            self.close()
            return False
        answer_of(route, version, content)
        return True

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None


@pytest.fixture
def line(node: ControllerNode) -> Iterator[Line]:
    before = resident_bytes(node.process.pid)
    made = Line(node.port)
    yield made
    made.close()
    grown = resident_bytes(node.process.pid) - before
    assert grown < GROWTH_BYTES_MAX, f"memory grew by {grown / MIB:.0f} MiB"


def versions(route: Route) -> range:
    return range(route.version_min, route.version_max + 1)


@pytest.mark.parametrize("route", ROUTES)
def test_an_empty_request_is_answered(line: Line, route: Route) -> None:
    for version in versions(route):
        assert line.settle(route, version, encode(request_class(route)(), version)), version


@pytest.mark.parametrize("route", ROUTES)
def test_odd_values_are_answered(line: Line, route: Route) -> None:
    print(f"seed {SEED}")
    rng = random.Random(f"{SEED} {route.name}")
    answered = 0
    for version in versions(route):
        for _ in range(6):
            message: Any = odd_message(route, version, rng)
            if rng.random() < 0.5 and hasattr(message, "cluster_id"):
                message.cluster_id = None if message.API_KEY in (1, 52, 53, 54, 59) else ""
            body = body_of(message, version, size_bytes_max=20_000)
            if body is not None and not may_wait(route, version, body):
                answered += line.settle(route, version, body)
    assert answered, "not one odd request was answered"


@pytest.mark.parametrize("route", ROUTES)
def test_cut_and_damaged_requests(line: Line, route: Route) -> None:
    print(f"seed {SEED}")
    rng = random.Random(f"{SEED} spoilt {route.name}")
    version = route.version_max
    small = encode(request_class(route)(), version)
    odd = None
    while odd is None:
        odd = body_of(odd_message(route, version, rng), version, size_bytes_max=2000)
    for cut in (*cuts(small, rng, samples=20), *cuts(odd, rng, samples=10)):
        assert not line.settle(route, version, cut), f"{cut.hex()} was taken for a whole request"
    for spoilt in (*damages(small, rng, samples=6), *damages(odd, rng, samples=6)):
        if not may_wait(route, version, spoilt):
            line.settle(route, version, spoilt)
    for size in (0, 1, 7, 30, 200, 3000):
        line.settle(route, version, rng.randbytes(size))


@pytest.mark.parametrize("api_key", [0, 2, 3, 10, 22, 1000, -1])
def test_what_clients_ask_ends_the_connection_here(node: ControllerNode, api_key: int) -> None:
    with Peer(node.port) as peer:
        assert peer.ask_raw(framed(header(api_key, 0, flexible=False) + bytes(20))) is None


@pytest.mark.parametrize("route", [route for route in SERVED.values() if route.listeners == (CONTROLLER,)])
def test_what_nodes_ask_ends_the_connection_of_a_client(node: ControllerNode, route: Route) -> None:
    if route.api_key == 1:
        # Clients have a Fetch of their own.
        return
    body = encode(request_class(route)(), route.version_max)
    with Peer(node.client_port) as peer:
        assert peer.ask_raw(frame(route, route.version_max, body)) is None
