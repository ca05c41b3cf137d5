"""What a leader tells of the delivery to a share group: states, locks, members, and what happened lately."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.simulation.share_stage import GROUP, MemoryPersister, Worker, share_stage, write
from tests.simulation.stage import Play

from strandline.codec.messages.share_delivery_request import (
    DeliveredPartition,
    DeliveredTopic,
    ShareDeliveryRequest,
)
from strandline.codec.messages.share_delivery_response import ShareDeliveryResponse
from strandline.coordinators.shares.delivery.acknowledgements import ACCEPT, REJECT, RELEASE
from strandline.errors import ErrorCode

LOCK_S = 30.0


@pytest.fixture
def ground() -> Iterator[tuple[Play, MemoryPersister]]:
    with share_stage() as ground:
        yield ground


def ask(play: Play, first: int = 0, last: int = 1000, *, topic: str = "tasks", group: str = GROUP) -> Any:
    asked = DeliveredPartition(partition=0, first_offset=first, last_offset=last)
    request = ShareDeliveryRequest(group_id=group, topics=[DeliveredTopic(name=topic, partitions=[asked])])
    return play.ask(play.leader("tasks"), request, 0, ShareDeliveryResponse)


def described(play: Play, first: int = 0, last: int = 1000) -> Any:
    answer = ask(play, first, last)
    assert not answer.error_code
    (partition,) = answer.topics[0].partitions
    assert not partition.error_code
    return partition


def ranges(partition: Any) -> list[tuple[int, int, int, int, str | None]]:
    return [
        (each.first_offset, each.last_offset, each.state, each.delivery_count, each.member_id)
        for each in partition.ranges
    ]


def events(partition: Any) -> list[tuple[str, int, int, int, str]]:
    return [
        (each.what, each.first_offset, each.last_offset, each.delivery_count, each.member_id)
        for each in partition.events
    ]


def test_states_and_locks(ground: tuple[Play, MemoryPersister]) -> None:
    play, _persister = ground
    write(play, 6)
    assert described(play).start_offset == -1, "no member reads it"
    ann = Worker(play, play.leader("tasks"), "ann")
    assert ann.poll() == [(0, 5, 1)]
    play.rest(10)
    assert ann.acknowledge((1, 3, [ACCEPT, RELEASE, REJECT])) is ErrorCode.NONE
    found = described(play)
    assert (found.start_offset, found.end_offset, found.high_watermark) == (0, 6, 6)
    assert (found.available, found.acquired, found.redelivering) == (1, 3, 0)
    assert ranges(found) == [
        (0, 0, 1, 1, "ann"),
        (1, 1, 2, 1, None),
        (2, 2, 0, 1, None),
        (3, 3, 4, 1, None),
        (4, 5, 1, 1, "ann"),
    ]
    assert 19_000 <= found.ranges[0].lock_ms <= 20_000
    assert found.oldest_ms >= 10_000
    assert ranges(described(play, 2, 3)) == [(2, 2, 0, 1, None), (3, 3, 4, 1, None)], "as far as it was asked for"
    assert ann.acknowledge((0, 0, [ACCEPT])) is ErrorCode.NONE
    assert described(play).oldest_ms < 1_000, "another one is the first now"
    assert ask(play).delivery_count_limit == 5


def test_what_happened_is_reported_in_order(ground: tuple[Play, MemoryPersister]) -> None:
    play, _persister = ground
    write(play, 3)
    ann = Worker(play, play.leader("tasks"), "ann")
    assert ann.poll() == [(0, 2, 1)]
    play.rest(1)
    assert ann.acknowledge((0, 2, [RELEASE, ACCEPT, REJECT])) is ErrorCode.NONE
    play.rest(1)
    assert ann.poll() == [(0, 0, 2)]
    play.rest(LOCK_S + 1)
    bob = Worker(play, play.leader("tasks"), "bob")
    assert bob.poll() == [(0, 0, 3)]
    play.rest(1)
    bob.vanish()
    play.until(lambda: len(described(play, 0, 0).events) == 6, "the end of a session is noted")
    assert events(described(play, 0, 0)) == [
        ("acquired", 0, 2, 1, "ann"),
        ("released", 0, 0, 0, "ann"),
        ("acquired", 0, 0, 2, "ann"),
        ("timed out", 0, 0, 2, "ann"),
        ("acquired", 0, 0, 3, "bob"),
        ("session ended", 0, 0, 3, "bob"),
    ]
    assert events(described(play, 1, 1)) == [("acquired", 0, 2, 1, "ann"), ("accepted", 1, 1, 0, "ann")]
    assert events(described(play, 2, 2))[-1] == ("rejected", 2, 2, 0, "ann")
    assert described(play).redeliveries == 2
    assert not events(described(play, 7, 9))


def test_a_task_without_a_delivery_left_is_reported_as_archived(ground: tuple[Play, MemoryPersister]) -> None:
    play, _persister = ground
    write(play, 1)
    ann = Worker(play, play.leader("tasks"), "ann")
    for number in range(1, 5):
        assert ann.poll() == [(0, 0, number)]
        assert ann.acknowledge((0, 0, [RELEASE])) is ErrorCode.NONE
    assert ann.poll() == [(0, 0, 5)]
    play.rest(LOCK_S + 1)
    assert events(described(play))[-2:] == [("timed out", 0, 0, 5, "ann"), ("archived", 0, 0, 5, "")]
    assert described(play).start_offset == 1


def test_an_acknowledgement_that_was_not_stored_is_not_reported(ground: tuple[Play, MemoryPersister]) -> None:
    play, persister = ground
    write(play, 1)
    ann = Worker(play, play.leader("tasks"), "ann")
    assert ann.poll() == [(0, 0, 1)]
    persister.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert ann.acknowledge((0, 0, [ACCEPT])) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert [each[0] for each in events(described(play))] == ["acquired"]


def test_a_history_outlives_its_members_and_is_bounded(ground: tuple[Play, MemoryPersister]) -> None:
    play, _persister = ground
    write(play, *[1] * 400)
    ann = Worker(play, play.leader("tasks"), "ann")
    for number in range(400):
        assert ann.poll(max_records=1, batch_size=1, share_acquire_mode=1) == [(number, number, 1)]
        kind = REJECT if number == 3 else ACCEPT
        assert ann.acknowledge((number, number, [kind])) is ErrorCode.NONE
    ann.vanish()
    play.until(lambda: described(play).start_offset == -1, "no member reads it")
    assert len(described(play).events) == 256 + 1
    assert events(described(play, 3, 3)) == [("rejected", 3, 3, 0, "ann")], "trouble is remembered for longer"


def test_what_is_not_led_or_not_known_is_an_error_of_its_own(ground: tuple[Play, MemoryPersister]) -> None:
    play, _persister = ground
    answer = ask(play, topic="nothing")
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(play, group="").error_code == ErrorCode.INVALID_GROUP_ID
    assert not ask(play, group="unknown").topics[0].partitions[0].events
