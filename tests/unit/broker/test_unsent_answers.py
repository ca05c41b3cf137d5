"""Answers that peers do not take stay within one budget: the connection that took nothing for longest is closed."""

from __future__ import annotations

from typing import Any

from tests.unit.broker.peer import HEARTBEAT, Broker, FakeTransport, feed, request

from strandline.broker.network.connection import Connection

BUDGET = 1000


class Stage:
    def __init__(self, connections: int) -> None:
        self.broker = Broker()
        self.broker.dispatcher.limits.unsent.bytes_max = BUDGET
        self.peers = [self.broker.connect() for _ in range(connections)]

    def congest(self, number: int, size_bytes: int) -> tuple[Connection, FakeTransport]:
        """The peer took some of its answers, and this much is left."""
        connection, transport = self.peers[number]
        transport.is_congested = True
        transport.unsent_bytes = size_bytes
        connection.on_congested()
        return connection, transport

    def drain(self, number: int) -> None:
        connection, transport = self.peers[number]
        transport.is_congested = False
        transport.unsent_bytes = 0
        connection.on_drained()

    def closed(self) -> list[int]:
        turns: Any = self.broker.dispatcher.node
        turns.run()
        return [number for number, (connection, _) in enumerate(self.peers) if connection.closed]


def test_the_one_that_took_nothing_for_longest_is_closed() -> None:
    stage = Stage(4)
    for number in range(3):
        stage.congest(number, 300)
    assert stage.closed() == []
    stage.congest(0, 200)
    stage.congest(3, 400)
    assert stage.closed() == [1], "number 0 took something since"
    assert stage.broker.dispatcher.limits.unsent.size_bytes == 200 + 300 + 400
    assert stage.broker.dispatcher.limits.refusals["memory"] == 1


def test_it_is_closed_on_a_later_turn() -> None:
    """A handler that sends many answers must not see connections close in the middle."""
    stage = Stage(1)
    connection, _ = stage.congest(0, BUDGET + 1)
    assert not connection.closed
    assert stage.closed() == [0]
    assert stage.broker.dispatcher.limits.unsent.size_bytes == 0


def test_what_was_taken_or_closed_is_not_counted() -> None:
    stage = Stage(3)
    for number in range(3):
        stage.congest(number, 300)
    stage.drain(0)
    stage.peers[1][0].close()
    assert stage.broker.dispatcher.limits.unsent.size_bytes == 300
    assert stage.closed() == [1]


def test_answers_that_queue_behind_are_counted() -> None:
    """Produces that were started before the peer stopped taking answers are answered all the same."""
    stage = Stage(2)
    connection, transport = stage.peers[0]
    feed(connection, b"".join(request(number) for number in range(3)))
    stage.congest(0, 100)
    stage.congest(1, 100)
    transport.on_send = lambda: setattr(transport, "unsent_bytes", transport.unsent_bytes + 500)
    stage.broker.answer(0, 1, 2)
    assert stage.closed() == [0]


def test_views_of_a_cache_are_copied_when_much_waits() -> None:
    stage = Stage(2)
    connection, transport = stage.peers[0]
    block = memoryview(b"a block of a cache")
    feed(connection, request(1) + request(2))
    stage.broker.open.pop(1).reply_pieces([b"", block[:7]], 7)
    stage.congest(1, BUDGET // 4 + 1)
    stage.broker.open.pop(2).reply_pieces([b"", block[:7]], 7)
    sent = [pieces[1] for pieces in transport.sent]
    assert sent == [b"a block", b"a block"]
    assert [type(each) for each in sent] == [memoryview, bytes]


def test_nothing_is_started_until_they_are_taken() -> None:
    stage = Stage(1)
    connection, transport = stage.congest(0, 100)
    stage.broker.at_once.add(HEARTBEAT)
    feed(connection, b"".join(request(number, key=HEARTBEAT) for number in range(3)))
    assert stage.broker.started_ids == []
    assert not transport.reading
    stage.drain(0)
    assert stage.broker.started_ids == [0, 1, 2]
