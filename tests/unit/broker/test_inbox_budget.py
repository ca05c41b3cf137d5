"""The bytes of incomplete requests, over all connections, stay within one budget, and somebody can always finish."""

from __future__ import annotations

import random

from tests.unit.broker.peer import FETCH, PRODUCE, Broker, FakeTransport, feed, request

from strandline.broker.network.connection import Connection

SEED = 20_241_116
BUDGET = 1000


def half(number: int, size: int = 800) -> tuple[bytes, bytes]:
    """A request in two parts, the first of `size` bytes."""
    frame = request(number, body=bytes(2 * size))
    return frame[:size], frame[size:]


def test_beyond_the_budget_only_one_goes_on() -> None:
    broker = Broker(inbox_bytes_max=BUDGET)
    broker.at_once.add(PRODUCE)
    peers = [broker.connect() for _ in range(4)]
    for number, (connection, _) in enumerate(peers):
        feed(connection, half(number)[0])
    assert [transport.reading for _, transport in peers] == [True, True, False, False]
    # The first one above the budget is the one that may go on; the one below it was never stopped.
    feed(peers[1][0], half(1)[1])
    assert broker.started_ids == [1]
    assert [transport.reading for _, transport in peers] == [True, True, True, False], "the next one may finish"
    feed(peers[2][0], half(2)[1])
    assert [transport.reading for _, transport in peers] == [True, True, True, True]
    feed(peers[3][0], half(3)[1])
    feed(peers[0][0], half(0)[1])
    assert sorted(broker.started_ids) == [0, 1, 2, 3]
    assert broker.dispatcher.limits.inbox_bytes == 0


def test_whole_requests_pass_however_full_it_is() -> None:
    broker = Broker(inbox_bytes_max=BUDGET)
    broker.at_once.add(PRODUCE)
    stuck, _ = broker.connect()
    feed(stuck, half(0, 2000)[0])
    assert broker.dispatcher.limits.inbox_bytes > BUDGET
    other, transport = broker.connect()
    feed(other, b"".join(request(number) for number in range(1, 5)))
    assert broker.started_ids == [1, 2, 3, 4]
    assert transport.reading


def test_a_peer_that_leaves_makes_room() -> None:
    broker = Broker(inbox_bytes_max=BUDGET)
    broker.at_once.add(PRODUCE)
    (first, _), (second, waiting) = broker.connect(), broker.connect()
    feed(first, half(1, 1200)[0])
    feed(second, half(2)[0])
    assert not waiting.reading
    first.close()
    assert waiting.reading
    feed(second, half(2)[1])
    assert broker.started_ids == [2]
    assert broker.dispatcher.limits.inbox_bytes == 0


def test_a_starved_peer_that_leaves_is_not_waited_for() -> None:
    broker = Broker(inbox_bytes_max=BUDGET)
    broker.at_once.add(PRODUCE)
    peers = [broker.connect() for _ in range(3)]
    feed(peers[0][0], half(0, 1200)[0])
    feed(peers[1][0], half(1)[0])
    feed(peers[2][0], half(2)[0])
    peers[1][0].close()
    feed(peers[0][0], half(0, 1200)[1])
    assert peers[2][1].reading
    feed(peers[2][0], half(2)[1])
    assert broker.started_ids == [0, 2]
    assert broker.dispatcher.limits.inbox_bytes == 0


def test_what_waits_behind_a_fetch_counts_too() -> None:
    broker = Broker(inbox_bytes_max=BUDGET)
    connection, transport = broker.connect()
    feed(connection, request(1, key=FETCH) + request(2, body=bytes(300)))
    assert broker.dispatcher.limits.inbox_bytes == len(request(2, body=bytes(300)))
    broker.answer(1)
    assert broker.dispatcher.limits.inbox_bytes == 0
    assert transport.reading
    assert broker.started_ids == [1, 2]


def test_a_peer_held_up_by_its_own_fetch_is_not_woken_by_room() -> None:
    broker = Broker(inbox_bytes_max=BUDGET)
    broker.at_once.add(PRODUCE)
    large, _ = broker.connect()
    feed(large, half(1, 1200)[0])
    connection, transport = broker.connect()
    feed(connection, request(2, key=FETCH) + request(3, body=bytes(100)))
    assert not transport.reading
    feed(large, half(1, 1200)[1])
    assert broker.dispatcher.limits.inbox_bytes < BUDGET
    assert not transport.reading, "its Fetch still waits"
    broker.answer(2)
    assert transport.reading
    assert broker.started_ids == [2, 1, 3]


def test_a_silent_peer_that_has_finished_is_not_waited_for() -> None:
    broker = Broker(inbox_bytes_max=BUDGET)
    broker.at_once.add(PRODUCE)
    (favoured, _), (finished, _), (starved, waiting) = (broker.connect() for _ in range(3))
    feed(finished, half(1, 400)[0])
    feed(favoured, half(0, 1200)[0])
    # Its last bytes are above the budget, so it is stopped in the very call that finishes its request.
    feed(finished, half(1, 400)[1])
    feed(starved, half(2, 1100)[0])
    assert broker.started_ids == [1]
    assert not waiting.reading
    feed(favoured, half(0, 1200)[1])
    assert waiting.reading
    feed(starved, half(2, 1100)[1])
    assert broker.started_ids == [1, 0, 2]


def test_whoever_comes_and_goes_everybody_finishes() -> None:
    seed = random.Random(SEED)
    print("seed", SEED)
    for _ in range(30):
        broker = Broker(inbox_bytes_max=BUDGET)
        broker.at_once.add(PRODUCE)
        left: dict[Connection, tuple[FakeTransport, bytes]] = {}
        expected = 0
        for number in range(12):
            connection, transport = broker.connect()
            left[connection] = (transport, request(number, body=bytes(seed.choice([50, 500, 3000]))))
        finished = 0
        while left:
            able = [each for each, (transport, _) in left.items() if transport.reading]
            assert able, "somebody may always read"
            connection = seed.choice(able)
            transport, data = left[connection]
            if seed.random() < 0.05:
                connection.close()
                del left[connection]
                continue
            size = min(len(data), seed.choice([10, 100, 1000]))
            feed(connection, data[:size])
            if size == len(data):
                finished += 1
                del left[connection]
            else:
                left[connection] = (transport, data[size:])
            expected = max(expected, broker.dispatcher.limits.inbox_bytes)
        assert len(broker.started) == finished
        assert broker.dispatcher.limits.inbox_bytes == 0
        # Two may be within the budget when it is passed: the one that passes it, and the one that is let finish.
        assert expected <= BUDGET + 12 * 1000
