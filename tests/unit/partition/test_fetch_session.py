"""Incremental fetch sessions, by the rules of KIP-227."""

from __future__ import annotations

import random
import uuid
from pathlib import Path

import pytest
from tests.unit.log.engine import NOON_MS, batch_of, open_log
from tests.unit.log.manual_runtime import ManualRuntime

from strandline.codec.fetch import FetchRequest, PartitionFetch
from strandline.config.topic_config import TopicConfig
from strandline.errors import ErrorCode, RequestError
from strandline.log.flusher import Flusher
from strandline.partition.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, SESSION_IDLE_S, FetchSession, FetchSessions
from strandline.partition.partition import Partition
from strandline.partition.producers import Producers

SEED = 20_241_112


def wants(*partitions: int, offset: int = 0, topic: str | bytes = "orders") -> list[PartitionFetch]:
    return [PartitionFetch(topic, index, -1, offset, -1, -1, 1000) for index in partitions]


def request(
    session_id: int,
    epoch: int,
    partitions: list[PartitionFetch] | None = None,
    forgotten: list[tuple[str | bytes, int]] | None = None,
) -> FetchRequest:
    return FetchRequest(-1, 500, 1, 1 << 20, 0, session_id, epoch, partitions or [], forgotten or [])


@pytest.fixture
def sessions() -> FetchSessions:
    print("seed", SEED)
    return FetchSessions(random.Random(SEED), sessions_max=3)


def ask(
    sessions: FetchSessions, asked: FetchRequest, *, ids: bool = False, now: float = 0.0
) -> tuple[FetchSession, bool]:
    return sessions.session_for(asked, uses_topic_ids=ids, now=now)


def code_of(sessions: FetchSessions, asked: FetchRequest, *, ids: bool = False) -> int:
    with pytest.raises(RequestError) as caught:
        ask(sessions, asked, ids=ids)
    return caught.value.code


def test_a_full_fetch_begins_a_session(sessions: FetchSessions) -> None:
    session, is_full = ask(sessions, request(0, INITIAL_EPOCH, wants(0, 1, 2)))
    assert is_full
    assert session.id > 0
    assert set(session.entries) == {("orders", 0), ("orders", 1), ("orders", 2)}
    assert set(session.news) == set(session.entries), "all of it is news"


def test_the_epoch_counts_the_requests(sessions: FetchSessions) -> None:
    session, _ = ask(sessions, request(0, INITIAL_EPOCH, wants(0)))
    for epoch in (1, 2, 3):
        same, is_full = ask(sessions, request(session.id, epoch))
        assert same is session
        assert not is_full
    for epoch in (3, 2, 5, 1):
        assert code_of(sessions, request(session.id, epoch)) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert ask(sessions, request(session.id, 4))[0] is session, "a wrong epoch moves nothing"


def test_the_epoch_wraps_to_one(sessions: FetchSessions) -> None:
    session, _ = ask(sessions, request(0, INITIAL_EPOCH, wants(0)))
    session.epoch = 2**31 - 1
    ask(sessions, request(session.id, 2**31 - 1))
    assert session.epoch == 1, "0 would begin a new session"
    ask(sessions, request(session.id, 1))


def test_an_unknown_session_is_told(sessions: FetchSessions) -> None:
    assert code_of(sessions, request(4711, 1)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert code_of(sessions, request(0, 1)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_only_what_changed_is_named(sessions: FetchSessions) -> None:
    session, _ = ask(sessions, request(0, INITIAL_EPOCH, wants(0, 1)))
    session.news.clear()
    ask(sessions, request(session.id, 1, wants(1, offset=7)))
    assert set(session.news) == {("orders", 1)}
    assert [session.entries[("orders", index)].fetch_offset for index in (0, 1)] == [0, 7]
    ask(sessions, request(session.id, 2, wants(5)))
    assert set(session.entries) == {("orders", 0), ("orders", 1), ("orders", 5)}


def test_a_wrong_epoch_changes_no_position(sessions: FetchSessions) -> None:
    session, _ = ask(sessions, request(0, INITIAL_EPOCH, wants(0)))
    code_of(sessions, request(session.id, 9, wants(0, offset=50), [("orders", 0)]))
    assert session.entries[("orders", 0)].fetch_offset == 0


def test_forgotten_partitions_leave(sessions: FetchSessions) -> None:
    session, _ = ask(sessions, request(0, INITIAL_EPOCH, wants(0, 1, 2)))
    ask(sessions, request(session.id, 1, forgotten=[("orders", 1), ("orders", 9), ("payments", 0)]))
    assert set(session.entries) == {("orders", 0), ("orders", 2)}
    assert ("orders", 1) not in session.news


def test_a_session_that_forgets_everything_ends(sessions: FetchSessions) -> None:
    session, _ = ask(sessions, request(0, INITIAL_EPOCH, wants(0)))
    session_id = session.id
    emptied, _ = ask(sessions, request(session_id, 1, forgotten=[("orders", 0)]))
    assert emptied.id == 0
    assert len(sessions) == 0
    assert code_of(sessions, request(session_id, 2)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_the_final_epoch_ends_a_session_and_begins_none(sessions: FetchSessions) -> None:
    session, _ = ask(sessions, request(0, INITIAL_EPOCH, wants(0)))
    answered, is_full = ask(sessions, request(session.id, FINAL_EPOCH, wants(1)))
    assert (answered.id, is_full) == (0, True)
    assert set(answered.entries) == {("orders", 1)}
    assert len(sessions) == 0


def test_a_fetch_without_a_session_leaves_the_others_alone(sessions: FetchSessions) -> None:
    session, _ = ask(sessions, request(0, INITIAL_EPOCH, wants(0)))
    ask(sessions, request(0, FINAL_EPOCH, wants(0)))
    assert ask(sessions, request(session.id, 1))[0] is session


def test_beginning_anew_ends_the_session_before(sessions: FetchSessions) -> None:
    session, _ = ask(sessions, request(0, INITIAL_EPOCH, wants(0)))
    fresh, _ = ask(sessions, request(session.id, INITIAL_EPOCH, wants(3)))
    assert fresh.id != session.id
    assert len(sessions) == 1
    assert session.entries == {}


def test_a_full_fetch_of_nothing_begins_none(sessions: FetchSessions) -> None:
    session, is_full = ask(sessions, request(0, INITIAL_EPOCH))
    assert (session.id, is_full) == (0, True)
    assert len(sessions) == 0


@pytest.mark.parametrize("began_with_ids", [False, True])
def test_a_session_names_its_topics_one_way(sessions: FetchSessions, began_with_ids: bool) -> None:
    topic = bytes(16) if began_with_ids else "orders"
    session, _ = ask(sessions, request(0, INITIAL_EPOCH, wants(0, topic=topic)), ids=began_with_ids)
    assert code_of(sessions, request(session.id, 1), ids=not began_with_ids) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert ask(sessions, request(session.id, 1), ids=began_with_ids)[0] is session


def test_a_full_house_gives_no_session_until_one_is_idle(sessions: FetchSessions) -> None:
    kept = [ask(sessions, request(0, INITIAL_EPOCH, wants(0)), now=float(at))[0] for at in range(3)]
    late, is_full = ask(sessions, request(0, INITIAL_EPOCH, wants(0)), now=SESSION_IDLE_S - 1)
    assert (late.id, is_full) == (0, True), "served all the same, in full each time"
    assert len(sessions) == 3
    # The oldest is used, so another one has rested longest.
    ask(sessions, request(kept[0].id, 1), now=SESSION_IDLE_S)
    evicting, _ = ask(sessions, request(0, INITIAL_EPOCH, wants(0)), now=SESSION_IDLE_S + 1)
    assert evicting.id > 0
    assert len(sessions) == 3
    assert code_of(sessions, request(kept[1].id, 1)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert kept[1].entries == {}
    ask(sessions, request(kept[0].id, 2), now=SESSION_IDLE_S + 2)


def test_sessions_share_a_budget_of_partitions() -> None:
    few = FetchSessions(random.Random(SEED), sessions_max=100, partitions_max=10)
    first, _ = ask(few, request(0, INITIAL_EPOCH, wants(*range(6))))
    assert ask(few, request(0, INITIAL_EPOCH, wants(*range(5))))[0].id == 0
    second, _ = ask(few, request(0, INITIAL_EPOCH, wants(*range(4))))
    assert (second.id > 0, few.partitions) == (True, 10)
    assert code_of(few, request(first.id, 1, wants(7))) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "it grew too large"
    assert few.partitions == 4
    ask(few, request(second.id, 1, wants(8, 9), [("orders", 0)]))
    assert few.partitions == 5
    ask(few, request(second.id, FINAL_EPOCH))
    assert (few.partitions, len(few)) == (0, 0)


def test_no_sessions_at_all() -> None:
    none = FetchSessions(random.Random(SEED), sessions_max=0)
    assert ask(none, request(0, INITIAL_EPOCH, wants(0)))[0].id == 0


def test_ids_are_never_given_twice_at_once() -> None:
    class Stubborn(random.Random):
        given = 0

        def randrange(self, *_: object) -> int:
            self.given += 1
            return 1 + self.given // 3

    many = FetchSessions(Stubborn(), sessions_max=50)
    ids = [ask(many, request(0, INITIAL_EPOCH, wants(0)))[0].id for _ in range(20)]
    assert len(set(ids)) == 20


# News


class Waiter:
    def __init__(self) -> None:
        self.heard: list[int] = []

    def on_data(self, size_bytes: int) -> None:
        self.heard.append(size_bytes)


class Topic:
    """Real partitions with flush.mode=async, so that an append is news at once."""

    def __init__(self, path: Path, count: int) -> None:
        runtime = ManualRuntime()
        config = TopicConfig(flush_mode="async")
        self.partitions = [
            Partition(
                "orders",
                index,
                uuid.UUID(int=1),
                log=open_log(path / f"orders-{index}", flush_mode="async"),
                producers=Producers(),
                flusher=Flusher(runtime),
                config=config,
                leader_epoch=0,
            )
            for index in range(count)
        ]

    def append(self, index: int) -> int:
        batch = batch_of([b"v"])
        self.partitions[index].append(memoryview(batch), NOON_MS)
        return len(batch)


def test_idle_partitions_are_not_visited(sessions: FetchSessions, tmp_path: Path) -> None:
    topic = Topic(tmp_path, 50)
    session, _ = ask(sessions, request(0, INITIAL_EPOCH, wants(*range(50))))
    for (_, index), entry in session.entries.items():
        entry.follow(topic.partitions[index])
    session.news.clear()
    topic.append(17)
    topic.append(17)
    topic.append(33)
    assert set(session.news) == {("orders", 17), ("orders", 33)}


def test_who_waits_hears_of_the_bytes(sessions: FetchSessions, tmp_path: Path) -> None:
    topic = Topic(tmp_path, 2)
    session, _ = ask(sessions, request(0, INITIAL_EPOCH, wants(0, 1)))
    for (_, index), entry in session.entries.items():
        entry.follow(topic.partitions[index])
    topic.append(0)
    session.waiter = waiter = Waiter()
    sizes = [topic.append(1), topic.append(0)]
    assert waiter.heard == sizes


def test_what_is_forgotten_or_closed_is_not_listened_to(sessions: FetchSessions, tmp_path: Path) -> None:
    topic = Topic(tmp_path, 3)
    session, _ = ask(sessions, request(0, INITIAL_EPOCH, wants(0, 1, 2)))
    for (_, index), entry in session.entries.items():
        entry.follow(topic.partitions[index])
    ask(sessions, request(session.id, 1, forgotten=[("orders", 1)]))
    session.news.clear()
    topic.append(1)
    assert session.news == {}
    assert [len(each.advance_listeners) for each in topic.partitions] == [1, 0, 1]
    ask(sessions, request(session.id, FINAL_EPOCH))
    assert [len(each.advance_listeners) for each in topic.partitions] == [0, 0, 0], "a dead session costs nothing"


def test_a_partition_that_goes_wakes_who_waits(sessions: FetchSessions, tmp_path: Path) -> None:
    topic = Topic(tmp_path, 1)
    session, _ = ask(sessions, request(0, INITIAL_EPOCH, wants(0)))
    session.entries[("orders", 0)].follow(topic.partitions[0])
    session.news.clear()
    session.waiter = waiter = Waiter()
    topic.partitions[0].abandon(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert waiter.heard[0] > 1 << 60, "enough for any min.bytes: the error must be told now"
    assert set(session.news) == {("orders", 0)}
    assert session.entries[("orders", 0)].partition is None
    assert len(topic.partitions[0].advance_listeners) == 0
