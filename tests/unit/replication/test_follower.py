"""A follower's fetch session: what it tells its leader, and which answers it takes."""

from __future__ import annotations

import pytest

from strandline.codec.fetch import FetchAnswer, FetchedPartition
from strandline.errors import ErrorCode
from strandline.replication import follower as module
from strandline.replication.follower import FollowerFetches, FollowerRequest, Key, Position

TOPIC = b"t" * 16


def key(index: int) -> Key:
    return TOPIC, index


def at(offset: int, epoch: int = 1, high_watermark: int = 0) -> Position:
    return Position(epoch, offset, epoch, 0, high_watermark)


def answer(*partitions: int, session_id: int = 7, error_code: int = 0) -> FetchAnswer:
    return FetchAnswer(
        error_code,
        session_id,
        [FetchedPartition(TOPIC, index, 0, 10, 0, None, memoryview(b"records")) for index in partitions],
    )


def asked(request: FollowerRequest | None) -> dict[int, int]:
    assert request is not None
    return {each.partition: each.fetch_offset for each in request.partitions}


def following(*indexes: int) -> FollowerFetches:
    follower = FollowerFetches()
    for index in indexes:
        follower.follow(key(index), at(0), size_bytes_max=1000)
    return follower


def test_only_what_moved_is_named_again() -> None:
    follower = following(0, 1, 2)
    request = follower.next_request()
    assert request is not None
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert asked(request) == {0: 0, 1: 0, 2: 0}
    assert follower.next_request() is None, "one at a time"
    assert [each for each, _ in follower.on_answer(answer(1))] == [key(1)]
    follower.move(key(1), at(5))
    request = follower.next_request()
    assert request is not None
    assert (request.session_id, request.session_epoch) == (7, 1)
    assert asked(request) == {1: 5}
    follower.on_answer(answer())
    request = follower.next_request()
    assert request is not None
    assert (request.session_epoch, request.partitions, request.forgotten) == (2, [], []), "a session is asked as it is"


def test_a_new_high_watermark_alone_is_not_told() -> None:
    """The leader knows what it said; what it says next of the partition still counts."""
    follower = following(0)
    follower.next_request()
    follower.on_answer(answer(0))
    follower.move(key(0), at(0, high_watermark=9))
    assert asked(follower.next_request()) == {}
    assert [each for each, _ in follower.on_answer(answer(0))] == [key(0)]


@pytest.mark.parametrize("how", ["epoch", "cut", "unfollowed", "held", "again"])
def test_an_answer_counts_only_where_the_log_stands_as_it_stood(how: str) -> None:
    follower = following(0, 1)
    follower.next_request()
    if how == "epoch":
        follower.follow(key(0), at(0, epoch=2), size_bytes_max=1000)
    elif how == "cut":
        follower.move(key(0), at(3))
    elif how == "unfollowed":
        follower.unfollow(key(0))
    elif how == "held":
        follower.hold(key(0))
    else:
        follower.unfollow(key(0))
        follower.follow(key(0), at(0, epoch=3), size_bytes_max=1000)
    assert [each for each, _ in follower.on_answer(answer(0, 1))] == [key(1)]


def test_what_is_held_or_left_is_forgotten_by_the_session() -> None:
    follower = following(0, 1, 2)
    follower.next_request()
    follower.on_answer(answer())
    follower.hold(key(0))
    follower.unfollow(key(1))
    request = follower.next_request()
    assert request is not None
    assert sorted(request.forgotten) == [key(0), key(1)]
    follower.on_answer(answer(0, 1))
    follower.move(key(0), at(2))
    request = follower.next_request()
    assert asked(request) == {0: 2}


def test_what_comes_back_before_it_was_forgotten_is_told_anew() -> None:
    follower = following(0, 1)
    follower.next_request()
    follower.on_answer(answer())
    follower.hold(key(0))
    follower.move(key(0), at(0))
    request = follower.next_request()
    assert request is not None
    assert (asked(request), request.forgotten) == ({0: 0}, [])


@pytest.mark.parametrize("what", ["lost", "refused", "no room"])
def test_a_session_begins_anew(what: str) -> None:
    follower = following(0, 1)
    follower.next_request()
    follower.on_answer(answer())
    follower.move(key(0), at(4))
    follower.next_request()
    if what == "lost":
        follower.on_failure()
    elif what == "refused":
        assert follower.on_answer(answer(0, error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)) == []
    else:
        follower.on_answer(answer(session_id=0))
    request = follower.next_request()
    assert request is not None
    assert request.session_epoch == 0
    assert asked(request) == {0: 4, 1: 0}


def test_nothing_to_follow_nothing_to_ask() -> None:
    follower = FollowerFetches()
    assert follower.next_request() is None
    follower.follow(key(0), at(0), size_bytes_max=10)
    follower.hold(key(0))
    assert follower.next_request() is None


def test_many_partitions_are_named_a_share_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PARTITIONS_PER_REQUEST_MAX", 3)
    follower = following(*range(8))
    named: dict[int, int] = {}
    for _ in range(3):
        named |= asked(follower.next_request())
        follower.on_answer(answer())
    assert sorted(named) == list(range(8))
    assert asked(follower.next_request()) == {}
