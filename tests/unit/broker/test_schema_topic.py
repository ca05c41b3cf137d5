"""The reader of `_schemas`: who asks what is registered is answered when all of it is read, and in time."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.coordinators.world import TurnedClock

from strandline.broker.network import broker_channels
from strandline.broker.validation.schema_topic import CATCH_UP_S_MAX, POLL_MS, SchemaTopic
from strandline.codec.columns import Record, encode_batch
from strandline.codec.message import Message
from strandline.codec.messages.fetch_request import FetchRequest
from strandline.codec.messages.fetch_response import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from strandline.codec.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from strandline.codec.transaction_marker import encode_marker
from strandline.errors import Disconnected, ErrorCode


class Line:
    """A connection to the leader that the test answers."""

    made: list[Line]

    def __init__(self, runtime: object, network: object, host: str, port: int, **_: object) -> None:
        self.address = host, port
        self.is_closed = False
        Line.made.append(self)

    def ask(self, request: Message, version: int, on_answer: Any, *, timeout_s: float) -> None:
        asked.append((request, on_answer))

    def close(self) -> None:
        self.is_closed = True


asked: list[tuple[Any, Any]] = []


class World:
    def __init__(self) -> None:
        self.clock = TurnedClock()
        self.topic: Any = None
        self.values: list[bytes | None] = []
        self.resets = 0
        self.is_needed = True
        self.said: list[tuple[str, bool]] = []
        environment: Any = SimpleNamespace(
            runtime=self.clock,
            network=None,
            node_id=1,
            broker_login=None,
            image=lambda: SimpleNamespace(topic_by_name=lambda name: self.topic),
            address_of=lambda broker: ("127.0.0.1", 9000 + broker) if broker >= 0 else None,
        )
        self.reader = SchemaTopic(
            environment, lambda record: self.values.append(record.value), self.reset, lambda: self.is_needed
        )

    def reset(self) -> None:
        self.resets += 1
        self.values.clear()

    def make_topic(self, leader: int = 2) -> None:
        self.topic = SimpleNamespace(id=uuid.uuid4(), partitions=[SimpleNamespace(leader=leader)])

    def catch_up(self, name: str) -> None:
        self.reader.catch_up(lambda is_current: self.said.append((name, is_current)))
        assert (name, True) not in self.said, "never before the call returned"

    def questions(self, kind: type) -> list[Any]:
        """What was asked and not answered."""
        self.clock.run()
        return [each for each in asked if (type(each[0]) is FetchRequest) == (kind is FetchRequest)]

    def end_is(self, offset: int, *, code: int = 0) -> None:
        """Answer the one question for the end of the topic."""
        (question,) = self.questions(ListOffsetsResponse)
        asked.remove(question)
        found = ListOffsetsPartitionResponse(offset=offset, error_code=code)
        question[1](ListOffsetsResponse(topics=[ListOffsetsTopicResponse(partitions=[found])]), None)

    def fetched(self, *batches: bytes, end: int = 0, code: int = 0, **more: Any) -> int:
        """Answer the one Fetch; return the offset that it asked for."""
        (question,) = self.questions(FetchRequest)
        asked.remove(question)
        data = PartitionData(error_code=code, last_stable_offset=end, records=b"".join(batches), **more)
        question[1](FetchResponse(responses=[FetchableTopicResponse(partitions=[data])]), None)
        found: int = question[0].topics[0].partitions[0].fetch_offset
        return found


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(broker_channels, "Channel", Line)
    Line.made = []
    asked.clear()
    made = World()
    made.make_topic()
    made.reader.start()
    return made


def batch(offset: int, *values: bytes, **more: Any) -> bytes:
    return encode_batch(
        [Record(offset=offset + at, value=value) for at, value in enumerate(values)], base_offset=offset, **more
    )


def test_it_reads_on_from_where_it_is(world: World) -> None:
    assert world.fetched(batch(0, b"a", b"b"), batch(2, b"c")) == 0
    assert world.fetched(batch(3, b"d")) == 3
    assert world.values == [b"a", b"b", b"c", b"d"]
    assert world.fetched() == 4


def test_all_that_was_registered_before_is_read_first(world: World) -> None:
    world.catch_up("first")
    world.end_is(2)
    assert world.said == []
    world.fetched(batch(0, b"a"))
    assert world.said == []
    world.fetched(batch(1, b"b"))
    assert world.said == [("first", True)]
    world.catch_up("second")
    world.end_is(2)
    assert world.said[1:] == [("second", True)], "nothing is new"


def test_one_question_is_not_for_those_who_come_after_it(world: World) -> None:
    """What was registered since then would not be below the end that it brings."""
    world.catch_up("early")
    (_,) = world.questions(ListOffsetsResponse)
    world.catch_up("late")
    world.catch_up("later")
    world.end_is(0)
    assert world.said == [("early", True)]
    world.end_is(1)
    assert world.said == [("early", True)]
    world.fetched(batch(0, b"new"))
    assert world.said[1:] == [("late", True), ("later", True)]
    assert world.questions(ListOffsetsResponse) == []


def test_an_answer_that_comes_late_is_not_for_the_next(world: World) -> None:
    world.catch_up("early")
    (_,) = world.questions(ListOffsetsResponse)
    world.clock.run(CATCH_UP_S_MAX)
    assert world.said == [("early", False)]
    world.catch_up("late")
    world.end_is(0)
    assert world.said == [("early", False)], "it was asked before the late one came"
    world.end_is(0)
    assert world.said[1:] == [("late", True)]


def test_it_takes_no_longer_than_it_may(world: World) -> None:
    world.catch_up("a")
    world.end_is(1)
    world.clock.run(CATCH_UP_S_MAX / 2)
    world.catch_up("b")
    world.clock.run(CATCH_UP_S_MAX / 2)
    assert world.said == [("a", False)]
    world.clock.run(CATCH_UP_S_MAX / 2)
    assert world.said == [("a", False), ("b", False)]


def test_a_leader_that_cannot_say_is_asked_again(world: World) -> None:
    world.catch_up("a")
    world.end_is(-1, code=int(ErrorCode.OFFSET_NOT_AVAILABLE))
    assert world.said == []
    world.clock.run(0.1)
    world.end_is(0)
    assert world.said == [("a", True)]


def test_without_a_topic_nothing_is_registered(world: World) -> None:
    world.topic = None
    world.catch_up("a")
    world.clock.run(CATCH_UP_S_MAX / 2)
    assert world.said == []
    world.clock.run(CATCH_UP_S_MAX / 2)
    assert world.said == [("a", True)]


def test_a_topic_that_comes_in_time_is_read(world: World) -> None:
    world.topic = None
    world.catch_up("a")
    world.clock.run(CATCH_UP_S_MAX / 2)
    world.make_topic()
    world.clock.run(0.1)
    world.end_is(1)
    world.fetched(batch(0, b"a"))
    assert (world.said, world.values) == ([("a", True)], [b"a"])


def test_another_topic_of_the_name_is_read_from_its_beginning(world: World) -> None:
    world.fetched(batch(0, b"old", b"older"))
    world.catch_up("a")
    (_,) = world.questions(ListOffsetsResponse)
    world.make_topic()
    resets = world.resets
    world.fetched(code=int(ErrorCode.UNKNOWN_TOPIC_ID))
    world.clock.run(0.1)
    assert (world.resets, world.values) == (resets + 1, [])
    # The old question is void, and another one is under way.
    asked.pop(0)
    world.end_is(1)
    assert world.said == []
    assert world.fetched(batch(0, b"new")) == 0
    assert (world.said, world.values) == ([("a", True)], [b"new"])


def test_offsets_that_are_gone(world: World) -> None:
    world.fetched(batch(0, b"a"))
    world.fetched(code=int(ErrorCode.OFFSET_OUT_OF_RANGE))
    world.end_is(7)
    world.clock.run(0.1)
    assert world.fetched(batch(7, b"h")) == 7
    assert world.values == [b"h"]


def test_only_committed_records_count(world: World) -> None:
    transaction = {"producer_epoch": 0, "transactional": True, "base_sequence": 0}
    markers = []
    for offset, producer_id in ((3, 8), (4, 9)):
        marker = encode_marker(producer_id, 0, is_commit=producer_id == 9, coordinator_epoch=0, timestamp_ms=0)
        marker[:8] = offset.to_bytes(8, "big")
        markers.append(bytes(marker))
    world.fetched(
        batch(0, b"aborted", producer_id=8, **transaction),
        batch(1, b"plain"),
        batch(2, b"committed", producer_id=9, **transaction),
        *markers,
        batch(5, b"after", producer_id=8, **transaction),
        aborted_transactions=[AbortedTransaction(producer_id=8, first_offset=0)],
    )
    assert world.values == [b"plain", b"committed", b"after"]
    assert world.fetched() == 6


def test_the_end_is_reached_although_its_last_records_were_compacted(world: World) -> None:
    world.fetched(batch(0, b"a"))
    world.catch_up("a")
    world.end_is(5)
    world.fetched(end=5)
    assert world.said == [], "an empty answer that comes at once says nothing"
    (_,) = world.questions(FetchRequest)
    world.said.clear()
    world.clock.run(POLL_MS / 1000)
    assert world.fetched(end=5) == 1
    assert world.fetched() == 5


def test_damage_is_not_passed_over(world: World) -> None:
    damaged = bytearray(batch(0, b"a"))
    damaged[-1] ^= 1
    world.fetched(bytes(damaged))
    world.clock.run(0.1)
    assert world.fetched(batch(0, b"a")) == 0
    assert world.values == [b"a"]


def test_a_lost_leader_is_asked_again(world: World) -> None:
    ((_, on_answer),) = world.questions(FetchRequest)
    asked.clear()
    on_answer(None, Disconnected("gone"))
    world.topic.partitions[0].leader = 3
    world.clock.run(0.1)
    assert world.fetched(batch(0, b"a")) == 0
    assert [line.address[1] for line in Line.made] == [9002, 9003]
    assert Line.made[0].is_closed


def test_it_ends_when_no_topic_needs_it(world: World) -> None:
    world.fetched(batch(0, b"a"))
    world.is_needed = False
    world.fetched(batch(1, b"b"))
    assert world.questions(FetchRequest) == []
    assert world.values == []
    assert all(line.is_closed for line in Line.made)
    world.is_needed = True
    world.reader.start()
    assert world.fetched(batch(0, b"a")) == 0


def test_a_node_that_stops_keeps_no_one_waiting(world: World) -> None:
    world.catch_up("a")
    (_,) = world.questions(ListOffsetsResponse)
    world.catch_up("b")
    world.reader.close()
    world.catch_up("c")
    world.clock.run(CATCH_UP_S_MAX)
    assert world.said == [("a", False), ("b", False), ("c", False)]
