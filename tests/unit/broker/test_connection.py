"""Bytes in, requests started in order, answers out in order: a connection without its socket."""

from __future__ import annotations

import logging
import random
import struct
from pathlib import Path

import pytest
from tests.unit.broker.peer import FETCH, FRAME_MAX, HEARTBEAT, PRODUCE, Broker, feed, request
from tests.unit.log.engine import fill, open_log

from strandline.broker.network.connection import PRODUCES_WAITING_MAX

SEED = 20_241_115


def some_requests(count: int) -> list[bytes]:
    seed = random.Random(SEED)
    print("seed", SEED)
    return [
        request(
            number,
            key=seed.choice([PRODUCE, FETCH, HEARTBEAT]),
            version=seed.choice([0, 1, 3]),
            body=seed.randbytes(seed.choice([0, 1, 5, 200])),
            client_id=seed.choice([None, b"", b"librdkafka", b"\xc3\xa9" * 50]),
        )
        for number in range(count)
    ]


# Bytes in


@pytest.mark.parametrize("step", [1, 2, 3, 7, 13, 14, 15, 64, 100_000])
def test_the_same_requests_start_however_the_bytes_come(step: int) -> None:
    expected = Broker()
    for key in (PRODUCE, FETCH, HEARTBEAT):
        expected.at_once.add(key)
    frames = some_requests(40)
    whole, _ = expected.connect()
    for frame in frames:
        feed(whole, frame)
    assert expected.started_ids == list(range(40))
    broker = Broker()
    broker.at_once |= {PRODUCE, FETCH, HEARTBEAT}
    connection, transport = broker.connect()
    feed(connection, b"".join(frames), step=step)
    assert broker.started == expected.started
    assert transport.answered == list(range(40))
    assert broker.dispatcher.limits.inbox_bytes == 0
    assert connection.inbox is None, "nothing is kept of what was dealt with"


@pytest.mark.parametrize("step", [1, 3, 14, 64, 500])
def test_a_view_that_is_held_does_not_keep_the_next_bytes_out(step: int) -> None:
    """An error that is kept until a controller answers holds the frames it came through, and these the request."""
    broker = Broker()
    broker.at_once |= {PRODUCE, FETCH, HEARTBEAT}
    connection, _ = broker.connect()
    held: list[memoryview] = []
    broker.on_started = held.append
    frames = some_requests(40)
    feed(connection, b"".join(frames), step=step)
    assert broker.started_ids == list(range(40))
    assert len(held) == 40
    assert connection.inbox is None


def test_random_steps() -> None:
    seed = random.Random(SEED)
    print("seed", SEED)
    for _ in range(50):
        broker = Broker()
        broker.at_once |= {PRODUCE, FETCH, HEARTBEAT}
        connection, _ = broker.connect()
        data = b"".join(some_requests(30))
        while data:
            size = seed.choice([1, 3, 14, 50, 400])
            feed(connection, data[:size])
            data = data[size:]
        assert broker.started_ids == list(range(30))
        assert broker.dispatcher.limits.inbox_bytes == 0


def test_the_body_begins_behind_the_client_id_and_the_headers_tags() -> None:
    broker = Broker()
    broker.at_once |= {PRODUCE}
    connection, _ = broker.connect()
    feed(connection, request(1, version=3, body=b"plain"))
    feed(connection, request(2, version=9, body=b"\x00flexible"))
    feed(connection, request(3, version=9, body=b"\x01\x07\x02xyflexible", client_id=None))
    assert [body for _, _, _, body in broker.started] == [b"plain", b"flexible", b"flexible"]


def test_an_incomplete_frame_costs_what_came_not_what_it_claims() -> None:
    broker = Broker(frame_size_max=100_000_000)
    connection, _ = broker.connect()
    feed(connection, struct.pack(">ihhih", 99_999_999, PRODUCE, 3, 1, 2) + b"me" + bytes(100))
    assert connection.inbox is not None
    assert len(connection.inbox) == broker.dispatcher.limits.inbox_bytes == 116
    assert not broker.started


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 1, 9, FRAME_MAX + 1, 2**31 - 1])
@pytest.mark.parametrize("step", [1, 4, 100])
def test_a_lying_length_ends_the_connection_and_no_other(size: int, step: int) -> None:
    broker = Broker()
    neighbour, untouched = broker.connect()
    feed(neighbour, request(1)[:20])
    connection, transport = broker.connect()
    feed(connection, struct.pack(">i", size), step=step)
    assert transport.closed, "at once, not when more of it has come"
    assert connection.closed
    assert broker.dispatcher.limits.refused == 1
    feed(neighbour, request(1)[20:])
    assert broker.started_ids == [1]
    assert not untouched.closed
    assert broker.dispatcher.limits.inbox_bytes == 0


def test_the_largest_frame_is_taken() -> None:
    broker = Broker(frame_size_max=500)
    broker.at_once |= {PRODUCE}
    connection, transport = broker.connect()
    largest = request(1, body=bytes(500 - len(request(1)) + 4))
    assert struct.unpack_from(">i", largest) == (500,)
    feed(connection, largest, step=33)
    assert broker.started_ids == [1]
    feed(connection, request(2, body=bytes(len(largest) - len(request(1)) + 1)))
    assert transport.closed


def test_what_follows_a_refused_frame_is_never_started() -> None:
    broker = Broker()
    connection, transport = broker.connect()
    feed(connection, struct.pack(">ihhih", 12, 999, 0, 1, 2) + b"me" + request(2))
    assert transport.closed
    assert not broker.started


@pytest.mark.parametrize("version", [-1, 21, 2**15 - 1])
def test_an_unknown_version_ends_the_connection(version: int) -> None:
    broker = Broker()
    connection, transport = broker.connect()
    feed(connection, request(1, version=version))
    assert transport.closed
    assert not broker.started


@pytest.mark.parametrize("client_id_size", [3, 200, 2**15 - 1])
def test_a_client_id_beyond_its_frame_is_survived(client_id_size: int) -> None:
    broker = Broker()
    broker.at_once |= {PRODUCE}
    connection, transport = broker.connect()
    body = struct.pack(">hhih", PRODUCE, 9, 1, client_id_size) + b"me"
    feed(connection, struct.pack(">i", len(body)) + body + request(2))
    assert transport.closed
    assert not broker.started


def test_a_handler_with_a_fault_costs_one_connection(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()
    broker.fails.add(HEARTBEAT)
    connection, transport = broker.connect()
    neighbour, _ = broker.connect()
    with caplog.at_level(logging.CRITICAL, logger="strandline.broker"):
        feed(connection, request(1, key=HEARTBEAT)[:10])
        feed(connection, request(1, key=HEARTBEAT)[10:] + request(2))
    assert transport.closed
    assert broker.started_ids == [1]
    feed(neighbour, request(3))
    assert broker.started_ids == [1, 3]
    assert broker.dispatcher.limits.inbox_bytes == 0


# Order


def test_answers_leave_in_the_order_of_the_requests() -> None:
    broker = Broker()
    connection, transport = broker.connect()
    feed(connection, b"".join(request(number) for number in range(6)))
    assert broker.started_ids == list(range(6)), "a waiting Produce holds no later Produce up"
    broker.answer(3, 1, 5)
    assert transport.answered == []
    broker.answer(0)
    assert transport.answered == [0, 1]
    broker.answer(4)
    assert transport.answered == [0, 1]
    broker.answer(2)
    assert transport.answered == [0, 1, 2, 3, 4, 5]
    assert transport.sent[2] == struct.pack(">ii", 10, 2) + b"body 2"
    assert connection.started is None, "a connection at rest keeps nothing"


def test_an_answer_that_is_ready_at_once_waits_for_those_before_it() -> None:
    broker = Broker()
    connection, transport = broker.connect()
    feed(connection, request(1) + request(2))
    broker.at_once.add(PRODUCE)
    feed(connection, request(3))
    assert transport.answered == []
    broker.answer(2, 1)
    assert transport.answered == [1, 2, 3]


def test_a_request_without_an_answer_keeps_the_order() -> None:
    broker = Broker()
    connection, transport = broker.connect()
    feed(connection, b"".join(request(number) for number in (1, 2, 3)))
    broker.open.pop(2).reply_nothing()
    broker.answer(3, 1)
    assert transport.answered == [1, 3]


@pytest.mark.parametrize("step", [1, 100_000])
def test_a_waiting_fetch_holds_up_what_comes_after_it(step: int) -> None:
    broker = Broker()
    connection, transport = broker.connect()
    feed(connection, request(1, key=FETCH) + request(2) + request(3, key=HEARTBEAT), step=step)
    assert broker.started_ids == [1]
    assert not transport.reading, "the peer is held back, not buffered without end"
    broker.answer(1)
    assert broker.started_ids == [1, 2], "and the heartbeat waits for the Produce"
    assert not transport.reading
    broker.answer(2)
    assert broker.started_ids == [1, 2, 3]
    broker.answer(3)
    assert transport.reading
    assert transport.answered == [1, 2, 3]
    assert broker.dispatcher.limits.inbox_bytes == 0


def test_bytes_that_come_while_held_up_are_kept_in_order() -> None:
    """A socket may deliver once more what it had taken before it heard of the pause."""
    broker = Broker()
    connection, transport = broker.connect()
    feed(connection, request(1, key=FETCH) + request(2)[:9])
    feed(connection, request(2)[9:] + request(3)[:20])
    feed(connection, request(3)[20:])
    assert broker.started_ids == [1]
    broker.answer(1)
    assert broker.started_ids == [1, 2, 3]
    broker.answer(3, 2)
    assert transport.answered == [1, 2, 3]
    assert broker.dispatcher.limits.inbox_bytes == 0


def test_produces_in_flight_are_limited() -> None:
    broker = Broker()
    connection, transport = broker.connect()
    count = PRODUCES_WAITING_MAX + 10
    feed(connection, b"".join(request(number) for number in range(count)))
    assert len(broker.started) == PRODUCES_WAITING_MAX
    assert not transport.reading
    broker.answer(0)
    assert len(broker.started) == PRODUCES_WAITING_MAX + 1, "one leaves, one starts"
    broker.answer(5, 3)
    assert len(broker.started) == PRODUCES_WAITING_MAX + 1, "what is answered out of turn still waits"
    broker.answer(1, 2)
    assert len(broker.started) == PRODUCES_WAITING_MAX + 4
    while broker.open:
        broker.answer(*broker.open)
    assert transport.answered == list(range(count))
    assert transport.reading


def test_nothing_starts_while_the_peer_does_not_take_its_answers() -> None:
    broker = Broker()
    connection, transport = broker.connect()
    broker.at_once.add(HEARTBEAT)
    transport.on_send = lambda: setattr(transport, "is_congested", True)
    feed(connection, b"".join(request(number, key=HEARTBEAT) for number in range(5)))
    assert broker.started_ids == [0], "its answers would pile up here"
    assert not transport.reading
    for number in range(1, 5):
        transport.is_congested = False
        connection.on_drained()
        assert broker.started_ids == list(range(number + 1))
    transport.is_congested = False
    connection.on_drained()
    assert transport.reading
    assert transport.answered == list(range(5))


def test_an_answer_that_congests_does_not_start_what_it_held_up() -> None:
    broker = Broker()
    connection, transport = broker.connect()
    feed(connection, request(1, key=FETCH) + request(2, key=FETCH))
    transport.on_send = lambda: setattr(transport, "is_congested", True)
    broker.answer(1)
    assert broker.started_ids == [1]
    transport.is_congested = False
    connection.on_drained()
    assert broker.started_ids == [1, 2]


# The end


def test_closing_lets_go_of_everything(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0")
    fill(log, 5)
    broker = Broker()
    connection, transport = broker.connect()
    feed(connection, request(1) + request(2) + request(3, key=FETCH) + request(4)[:20])
    piece = log.read(0, size_bytes_max=1000)
    assert piece is not None
    broker.open[2].reply_pieces([b"head", piece], 4 + piece.size_bytes)
    abandoned: list[int] = []
    broker.open[1].on_abandoned = lambda: abandoned.append(1)
    assert log.active.references == 1
    connection.close()
    assert transport.closed
    assert log.active.references == 0, "a queued slice must not hold its file for ever"
    assert abandoned == [1]
    assert broker.dispatcher.limits.inbox_bytes == 0
    assert connection not in broker.dispatcher.limits.connections
    # An answer that comes now is for nobody; its slice is let go of too.
    late = log.read(0, size_bytes_max=1000)
    assert late is not None
    broker.open[1].reply_pieces([b"head", late], 4 + late.size_bytes)
    assert log.active.references == 0
    log.close()


def test_pieces_leave_behind_their_frame(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0")
    fill(log, 5)
    piece = log.read(0, size_bytes_max=1000)
    assert piece is not None
    broker = Broker()
    connection, transport = broker.connect()
    feed(connection, request(77, key=FETCH))
    size = 4 + piece.size_bytes + 4
    broker.open[77].reply_pieces([b"head", piece, b"tail"], size)
    assert transport.sent == [[struct.pack(">ii", size + 4, 77) + b"head", piece, b"tail"]]
    piece.release()
    log.close()


def test_a_flexible_answer_has_a_byte_for_tags_in_its_head() -> None:
    broker = Broker()
    connection, transport = broker.connect()
    connection.reply_now(5, True, b"body")
    assert transport.sent == [struct.pack(">iib", 9, 5, 0) + b"body"]
    exchange = connection.begin(6, flexible_header=True)
    exchange.reply(b"later")
    assert transport.sent[1] == struct.pack(">iib", 10, 6, 0) + b"later"


def test_idle_connections_are_closed_but_not_waiting_ones() -> None:
    broker = Broker()
    broker.at_once.add(PRODUCE)
    idle, idle_transport = broker.connect()
    busy, busy_transport = broker.connect()
    waiting, waiting_transport = broker.connect()
    feed(idle, request(1))
    feed(waiting, request(2, key=FETCH))
    broker.dispatcher.limits.ticks = 100
    feed(busy, request(3))
    broker.dispatcher.limits.ticks = 150
    broker.dispatcher.limits.close_idle(idle_s=100)
    assert idle_transport.closed
    assert not busy_transport.closed
    assert not waiting_transport.closed
    assert set(broker.dispatcher.limits.connections) == {busy, waiting}
    assert broker.dispatcher.limits.connections_by_host == {"198.51.100.7": 2}
