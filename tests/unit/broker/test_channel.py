"""A channel between two machines of a simulated network: every request ends once, whatever happens on the way."""

from __future__ import annotations

import random
import struct
from collections import Counter
from typing import Any

import pytest
from tests.unit.broker.answering import PORT, World, answer

from strandline.broker.network.channel import BACKOFF_S_MAX, CONNECT_TIMEOUT_S, REQUESTS_MAX
from strandline.broker.network.transport import Transport
from strandline.codec.message_codec import encode
from strandline.codec.messages.api_versions_request import ApiVersionsRequest
from strandline.codec.messages.api_versions_response import ApiVersionsResponse
from strandline.codec.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from strandline.codec.messages.broker_heartbeat_response import BrokerHeartbeatResponse


def test_requests_are_pipelined_on_one_connection_and_answered_in_order() -> None:
    world = World()
    for name in "abc":
        world.ask(name)
    world.run(1)
    assert world.answered == ["a", "b", "c"]
    assert world.server is not None
    assert len(world.server.transports) == 1
    # Length, API key, version, correlation id, client id, no tagged fields, body.
    assert world.server.requests[1] == struct.pack(">hhih", 1, 12, 1, 4) + b"test" + b"\0" + b"<b>"
    assert world.told[1][1] == world.server.requests[1], "the body, without the header of the answer"


@pytest.mark.parametrize("seed", range(5))
def test_answers_are_put_together_from_pieces(seed: int) -> None:
    world = World(seed)
    world.network.fragment_share = 1.0
    for name in ("a" * 1000, "b", "c" * 70_000, "d"):
        world.ask(name)
    world.run(2)
    assert [len(name) for name in world.answered] == [1000, 1, 70_000, 1]
    assert all(body is not None and name.encode() in body for name, body, _ in world.told)


def test_a_long_answer_and_the_beginning_of_the_next_are_told_apart() -> None:
    world = World()
    assert world.server is not None
    bodies = [bytes([index]) * size for index, size in enumerate((3_000_000, 10, 0, 500_000))]
    world.server.on_request = lambda transport, number, _: transport.send(answer(number, bodies[number]))
    for name in "abcd":
        world.ask(name)
    world.run(30)
    assert [body for _, body, _ in world.told] == bodies


def test_typed_requests_and_answers() -> None:
    world = World()
    told: list[Any] = []
    response = BrokerHeartbeatResponse(is_fenced=False, is_caught_up=True)
    assert world.server is not None
    world.server.on_request = lambda transport, number, _: transport.send(answer(number, encode(response, 1)))
    world.channel.ask(BrokerHeartbeatRequest(broker_id=7), 1, lambda *args: told.append(args), timeout_s=5)
    world.run(1)
    assert told == [(response, None)]


def test_an_answer_that_is_no_message_is_told_as_such() -> None:
    world = World()
    told: list[Any] = []
    assert world.server is not None
    world.server.on_request = lambda transport, number, _: transport.send(answer(number, b"\0\0"))
    world.channel.ask(BrokerHeartbeatRequest(), 1, lambda *args: told.append(args), timeout_s=5)
    world.run(1)
    ((response, error),) = told
    assert response is None
    assert type(error).__name__ == "MalformedMessage"


def test_the_answer_to_api_versions_has_no_tagged_fields_in_its_header() -> None:
    world = World()
    told: list[Any] = []
    assert world.server is not None
    body = encode(ApiVersionsResponse(throttle_time_ms=5), 3)
    world.server.on_request = lambda transport, number, _: transport.send(answer(number, body, flexible=False))
    world.channel.ask(ApiVersionsRequest(), 3, lambda *args: told.append(args), timeout_s=5)
    world.run(1)
    assert told[0][0].throttle_time_ms == 5


def test_a_server_that_goes_mid_answer() -> None:
    world = World()
    server = world.server
    assert server is not None

    def half(transport: Transport, number: int, frame: bytes) -> None:
        transport.send(answer(number, frame)[:9])
        transport.close()
        server.on_request = server.echo

    server.on_request = half
    world.ask("a")
    world.ask("b")
    world.run(0.02)
    assert world.failed == [("a", "Disconnected"), ("b", "Disconnected")]
    world.ask("c")
    world.run(1)
    assert world.answered == ["c"], "a new connection"


def test_nobody_there_is_told_and_not_asked_too_often() -> None:
    world = World(serves=False)
    asked = 0
    while world.loop.now < 20:
        if len(world.told) == asked:
            # Again at once, as the rashest would.
            asked += 1
            world.ask(str(asked))
        world.run(0.001)
    assert set(world.failed) == {(str(number + 1), "Disconnected") for number in range(len(world.told))}
    assert 20 / (BACKOFF_S_MAX * 1.3) < len(world.told) < 20 / (BACKOFF_S_MAX * 0.7) + 10
    world.serve()
    world.run(2)
    assert world.answered == [str(asked)], "what waits for the next attempt is answered by it"


def test_a_request_that_waits_for_a_connection_has_its_own_time() -> None:
    world = World()
    world.network.split(["client"], ["server"])
    world.ask("short", timeout_s=0.5)
    world.ask("long", timeout_s=CONNECT_TIMEOUT_S * 4)
    world.run(1)
    assert world.failed == [("short", "TimedOut")]
    world.run(CONNECT_TIMEOUT_S)
    assert world.failed[1:] == [("long", "Disconnected")], "an attempt takes so long and no longer"


def test_a_late_answer_is_dropped_and_the_next_request_takes_a_new_connection() -> None:
    world = World()
    server = world.server
    assert server is not None
    world.ask("a")
    world.run(0.1)
    held: list[tuple[Transport, int, bytes]] = []
    server.on_request = lambda *args: held.append(args)
    world.ask("b", timeout_s=1)
    world.ask("c", timeout_s=60)
    world.run(2)
    assert world.failed == [("b", "TimedOut"), ("c", "Disconnected")]
    for transport, number, frame in held:
        transport.send(answer(number, frame))
    server.on_request = server.echo
    world.ask("d")
    world.run(1)
    assert world.answered == ["a", "d"]
    assert len(server.transports) == 2


def test_a_peer_that_was_cut_off_is_found_again_soon_after() -> None:
    world = World()
    world.ask("a")
    world.run(0.1)
    world.network.split(["client"], ["server"])
    world.ask("b", timeout_s=2)
    world.run(60)
    assert world.failed == [("b", "TimedOut")]
    world.network.heal()
    world.ask("c", timeout_s=10)
    world.run(0.5)
    assert world.answered == ["a", "c"]


def test_each_reason_is_logged_once_until_the_peer_answers(caplog: pytest.LogCaptureFixture) -> None:
    """An administrator who mends one reason has to see the next one."""
    world = World()
    server = world.server
    assert server is not None
    nonsense = struct.pack(">ii", -1, 0), struct.pack(">iib", 5, 0, -1)
    for name, sent in zip("abcd", nonsense * 2, strict=True):
        server.on_request = lambda transport, number, _, sent=sent: transport.send(sent)
        world.ask(name)
        world.run(5)
    assert len([each for each in caplog.messages if "cannot reach" in each]) == 2
    server.on_request = server.echo
    world.ask("e")
    world.run(5)
    assert world.answered == ["e"]
    server.on_request = lambda transport, number, _: transport.send(nonsense[0])
    world.ask("f")
    world.run(5)
    assert len([each for each in caplog.messages if "cannot reach" in each]) == 3


@pytest.mark.parametrize(
    "nonsense",
    [
        answer(77, b"to nothing"),
        struct.pack(">ii", -1, 0),
        struct.pack(">ii", 3, 0),
        struct.pack(">ii", 1_000_001, 0),
        struct.pack(">ii", 4, 0),
        struct.pack(">iib", 5, 0, -1),
    ],
    ids=["not asked", "negative", "too short", "too long", "no tags", "tags without end"],
)
def test_what_is_no_answer_ends_the_connection(nonsense: bytes) -> None:
    world = World(frame_bytes_max=1_000_000)
    server = world.server
    assert server is not None
    server.on_request = lambda transport, number, _: transport.send(nonsense)
    world.ask("a")
    world.run(0.1)
    assert world.failed == [("a", "Disconnected")]
    server.on_request = server.echo
    world.ask("b")
    world.run(1)
    assert world.answered == ["b"]


def test_an_idle_connection_that_the_server_closes_is_no_failure() -> None:
    world = World()
    assert world.server is not None
    world.ask("a")
    world.run(0.1)
    world.server.transports[0].close()
    world.run(0.1)
    world.ask("b")
    world.run(0.01)
    assert world.answered == ["a", "b"], "at once, without a pause"


def test_closing_tells_whoever_waits_once_and_later() -> None:
    world = World()
    assert world.server is not None
    world.server.on_request = lambda *_: None
    world.ask("a")
    world.run(0.1)
    world.ask("b")
    world.channel.close()
    world.ask("c")
    assert not world.told
    world.run(10)
    assert sorted(world.failed) == [(name, "Disconnected") for name in "abc"]
    assert world.server.gone == 1


def test_closing_from_within_an_answer() -> None:
    world = World()
    told: list[Any] = []
    for name in "abc":
        world.channel.ask_raw(
            1,
            12,
            [name.encode()],
            lambda body, error: (told.append(error), world.channel.close()),
            timeout_s=5,
        )
    world.run(10)
    assert [type(error).__name__ for error in told] == ["NoneType", "Disconnected", "Disconnected"]


def test_a_fault_of_ours_costs_one_connection(caplog: pytest.LogCaptureFixture) -> None:
    world = World()

    def fail(body: memoryview | None, error: BaseException | None) -> None:
        raise RuntimeError("a fault")

    world.channel.ask_raw(1, 12, [b"x"], fail, timeout_s=5)
    world.ask("b")
    world.run(0.1)
    assert world.failed == [("b", "Disconnected")]
    assert "a fault" in caplog.text
    world.ask("c")
    world.run(1)
    assert world.answered == ["c"]


def test_requests_that_wait_have_a_limit() -> None:
    world = World(serves=False)
    for number in range(REQUESTS_MAX + 1):
        world.channel.ask_raw(
            1,
            12,
            [],
            lambda body, error, number=number: world.told.append((str(number), None, error)),  # type: ignore[misc]
            timeout_s=5,
        )
    world.loop.run_while(lambda: not world.told, within_s=1)
    assert world.told[0][0] == str(REQUESTS_MAX), "the last is refused, the others wait"
    world.run(10)
    assert len(world.told) == REQUESTS_MAX + 1


@pytest.mark.parametrize(
    "seed",
    [*range(4), *(pytest.param(seed, marks=pytest.mark.lengthy("random walks under faults")) for seed in range(4, 40))],
)
def test_every_request_ends_once_whatever_happens(seed: int) -> None:
    """Cuts, resets, a server that dies, is slow or silent; in the end all is well and the last request is answered."""
    rng = random.Random(seed)
    world = World(seed)
    world.network.fragment_share = rng.random()
    world.network.spike_share = 0.1
    asked = 0
    life = 1

    def sometimes(transport: Transport, number: int, frame: bytes) -> None:
        if rng.random() < 0.9:
            transport.send(answer(number, frame))

    for _ in range(300):
        server = world.server
        if server is not None:
            server.on_request = sometimes
        for _ in range(rng.randrange(4)):
            asked += 1
            world.ask(str(asked), timeout_s=rng.choice((0.05, 1.0, 5.0)))
        fault = rng.random()
        if fault < 0.05:
            world.network.block(*rng.choice((("client", "server"), ("server", "client"))))
        elif fault < 0.10:
            world.network.heal()
        elif fault < 0.13:
            for transport in world.network.between("client", "server"):
                world.network.reset(transport)
        elif fault < 0.16:
            for address in list(world.network.listening):
                world.network.process_died(world.network.listening[address].runtime)
            life += 1
            if rng.random() < 0.7:
                world.serve(life)
        world.run(rng.expovariate(5))
    world.network.heal()
    if ("server", PORT) not in world.network.listening:
        world.serve(life + 1)
    assert world.server is not None
    world.server.on_request = world.server.echo
    world.run(10)
    world.ask("last")
    world.run(10)
    assert world.answered[-1] == "last", f"seed {seed}"
    times = Counter(name for name, _, _ in world.told)
    assert len(times) == asked + 1
    assert set(times.values()) == {1}
    for name, body, _ in world.told:
        assert body is None or body.endswith(b"<%s>" % name.encode()), "its own answer"
