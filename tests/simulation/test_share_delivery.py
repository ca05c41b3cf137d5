"""Delivery to share groups through the front door: real nodes in the simulation, requests by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.simulation.share_stage import MemoryPersister, Worker, outcome_in, share_stage, write
from tests.simulation.stage import Play

from strandline.codec.messages.share_fetch_response import ShareFetchResponse
from strandline.coordinators.shares.delivery.share_partition import ACCEPT, REJECT, RELEASE, RENEW
from strandline.errors import ErrorCode

LOCK_S = 30.0


@pytest.fixture
def ground() -> Iterator[tuple[Play, MemoryPersister]]:
    with share_stage() as ground:
        yield ground


def worker(play: Play, member_id: str = "ann", **options: Any) -> Worker:
    return Worker(play, play.leader("tasks"), member_id, **options)


def test_each_record_goes_to_one_member_and_never_again_once_accepted(ground: tuple[Play, MemoryPersister]) -> None:
    play, persister = ground
    write(play, 4, 4, 4)
    ann, bob = worker(play), worker(play, "bob")
    assert ann.poll(max_records=5) == [(0, 7, 1)]
    assert bob.poll(max_records=5) == [(8, 11, 1)]
    assert bob.poll() == []
    assert ann.acknowledge((0, 7, [ACCEPT])) is ErrorCode.NONE
    assert bob.poll([(8, 11, [ACCEPT, RELEASE, REJECT, ACCEPT])]) == [(9, 9, 2)]
    assert bob.acknowledge((9, 9, [ACCEPT])) is ErrorCode.NONE
    (kept,) = persister.kept.values()
    assert (kept.start_offset, kept.complete_count) == (12, 0)
    play.rest(LOCK_S * 2)
    assert ann.poll() == []


def test_a_waiting_fetch_is_answered_when_records_come(ground: tuple[Play, MemoryPersister]) -> None:
    play, _ = ground
    ann, bob = worker(play), worker(play, "bob")
    first, second = ann.begin_fetch(max_wait_ms=20_000), bob.begin_fetch(max_wait_ms=20_000)
    play.rest(1.0)
    assert not first
    assert not second
    write(play, 3)
    play.until(lambda: first, "the first that waits gets the records", 1.0)
    play.rest(1.0)
    assert not second
    write(play, 1)
    play.until(lambda: second, "the second gets the next ones", 1.0)


def test_a_wait_ends_with_an_empty_answer(ground: tuple[Play, MemoryPersister]) -> None:
    play, _ = ground
    began = play.loop.now
    answer = worker(play).fetch(max_wait_ms=700)
    assert answer.responses == []
    assert play.loop.now - began > 0.6


def test_a_lock_that_times_out_frees_its_records_until_the_limit(ground: tuple[Play, MemoryPersister]) -> None:
    play, persister = ground
    write(play, 1)
    ann, bob = worker(play), worker(play, "bob")
    assert ann.poll() == [(0, 0, 1)]
    waits = bob.begin_fetch(max_wait_ms=50_000)
    play.until(lambda: waits, "the lock times out", LOCK_S + 1)
    assert ann.acknowledge((0, 0, [ACCEPT])) is ErrorCode.INVALID_RECORD_STATE
    for count in (3, 4, 5):
        play.rest(LOCK_S + 1)
        assert bob.poll() == [(0, 0, count)]
    play.rest(LOCK_S + 1)
    assert bob.poll() == []
    (kept,) = persister.kept.values()
    assert kept.start_offset == 1, "archived, because it was delivered five times"


def test_a_renewed_lock_lasts(ground: tuple[Play, MemoryPersister]) -> None:
    play, persister = ground
    write(play, 2)
    ann, bob = worker(play), worker(play, "bob")
    assert ann.poll() == [(0, 1, 1)]
    play.rest(20.0)
    written = len(persister.writes)
    assert ann.acknowledge((0, 0, [RENEW])) is ErrorCode.INVALID_REQUEST
    assert ann.acknowledge((0, 0, [RENEW]), is_renew_ack=True) is ErrorCode.NONE
    assert len(persister.writes) == written
    play.rest(20.0)
    assert bob.poll() == [(1, 1, 2)]
    assert ann.acknowledge((0, 0, [ACCEPT])) is ErrorCode.NONE


@pytest.mark.parametrize("ending", ["close", "vanish", "begin again"])
def test_what_a_member_leaves_is_available_at_once(ground: tuple[Play, MemoryPersister], ending: str) -> None:
    play, _ = ground
    write(play, 4)
    ann, bob = worker(play), worker(play, "bob")
    assert bob.poll(max_wait_ms=0) == []  # The share partition is being loaded.
    assert ann.poll() == [(0, 3, 1)]
    if ending == "close":
        assert ann.acknowledge((0, 1, [ACCEPT]), share_session_epoch=-1) is ErrorCode.NONE
    elif ending == "vanish":
        assert ann.acknowledge((0, 1, [ACCEPT])) is ErrorCode.NONE
        ann.vanish()
    else:
        assert ann.acknowledge((0, 1, [ACCEPT])) is ErrorCode.NONE
        ann.epoch = 0
        ann.fetch(topics=[])
    play.rest(0.5)
    assert bob.poll() == [(2, 3, 2)]


def test_an_acknowledgement_is_answered_when_it_is_stored(ground: tuple[Play, MemoryPersister]) -> None:
    play, persister = ground
    write(play, 2)
    ann = worker(play)
    assert ann.poll() == [(0, 1, 1)]
    persister.is_held = True
    answers = ann.begin_acknowledge((0, 1, [ACCEPT]))
    play.rest(2.0)
    assert not answers
    persister.let()
    play.until(lambda: answers, "the answer", 1.0)
    assert outcome_in(answers[0]) is ErrorCode.NONE


def test_a_refused_write_leaves_the_records_acquired(ground: tuple[Play, MemoryPersister]) -> None:
    play, persister = ground
    write(play, 2)
    ann, bob = worker(play), worker(play, "bob")
    assert ann.poll() == [(0, 1, 1)]
    persister.refuses = ErrorCode.NOT_COORDINATOR
    assert ann.acknowledge((0, 1, [ACCEPT])) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    persister.refuses = ErrorCode.NONE
    assert bob.poll() == []
    assert ann.acknowledge((0, 1, [ACCEPT])) is ErrorCode.NONE


def test_a_fenced_leader_drops_the_share_partition(ground: tuple[Play, MemoryPersister]) -> None:
    play, persister = ground
    write(play, 2)
    ann = worker(play)
    assert ann.poll() == [(0, 1, 1)]
    persister.refuses = ErrorCode.FENCED_STATE_EPOCH
    answers = ann.begin_acknowledge((0, 1, [ACCEPT]))
    play.until(lambda: answers, "an answer")
    refused = answers[0].responses[0].partitions[0]
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refused.current_leader.leader_id == play.leader("tasks").node_id
    persister.refuses = ErrorCode.NONE
    assert ann.poll() == [(0, 1, 1)], "loaded again, without locks"


def test_strict_mode_gives_no_record_too_many(ground: tuple[Play, MemoryPersister]) -> None:
    play, _ = ground
    write(play, 10, 10)
    ann = worker(play)
    assert ann.poll(max_records=7, share_acquire_mode=1) == [(0, 6, 1)]
    assert ann.poll(max_records=7, share_acquire_mode=1) == [(7, 13, 1)]
    assert ann.poll(max_records=1, batch_size=1) == [(14, 19, 1)], "the whole batch otherwise"


def test_acquired_ranges_have_the_size_asked_for(ground: tuple[Play, MemoryPersister]) -> None:
    play, _ = ground
    write(play, 2, 2, 2, 2, 2)
    assert worker(play).poll(batch_size=3) == [(0, 3, 1), (4, 7, 1), (8, 9, 1)]


def test_no_more_records_are_in_flight_than_allowed() -> None:
    with share_stage(group_share_partition_max_record_locks="100") as (play, _):
        write(play, 60, 60, 60)
        ann = worker(play)
        assert ann.poll(max_records=1000) == [(0, 119, 1)]
        waits = ann.begin_fetch(max_wait_ms=20_000)
        play.rest(1.0)
        assert not waits
        bob = worker(play, "bob")
        assert bob.acknowledge() is ErrorCode.INVALID_SHARE_SESSION_EPOCH
        persisted = worker(play, "ann")
        persisted.epoch = ann.epoch
        assert persisted.acknowledge((0, 59, [ACCEPT])) is ErrorCode.NONE
        play.until(lambda: waits, "there is room again", 1.0)


def test_poison_does_not_archive_its_neighbours(ground: tuple[Play, MemoryPersister]) -> None:
    play, _ = ground
    write(play, 8)
    ann = worker(play)
    sizes = []
    while (got := ann.poll()) and len(sizes) < 100:
        sizes.append((sum(last - first + 1 for first, last, _ in got), {count for _, _, count in got}))
        # Whoever has record 5 dies and releases all; who has not accepts.
        poisoned = any(first <= 5 <= last for first, last, _ in got)
        for first, last, _ in got:
            assert ann.acknowledge((first, last, [RELEASE if poisoned else ACCEPT])) is ErrorCode.NONE
    assert sizes[:3] == [(8, {1}), (8, {2}), (8, {3})]
    assert sizes[3][0] == 4
    assert (1, {5}) in sizes


BAD = {
    "no group": ({"group_id": None}, ErrorCode.INVALID_REQUEST),
    "no member": ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
    "a long member id": ({"member_id": "m" * 37}, ErrorCode.INVALID_REQUEST),
    "an unknown session": ({"member_id": "zoe", "share_session_epoch": 5}, ErrorCode.SHARE_SESSION_NOT_FOUND),
    "a wrong epoch": ({"share_session_epoch": 7}, ErrorCode.INVALID_SHARE_SESSION_EPOCH),
    "a renewal that fetches": ({"is_renew_ack": True}, ErrorCode.INVALID_REQUEST),
}


@pytest.mark.parametrize("case", BAD)
def test_requests_that_are_wrong_as_a_whole(ground: tuple[Play, MemoryPersister], case: str) -> None:
    play, _ = ground
    ann = worker(play)
    assert ann.fetch().error_code == 0
    fields, code = BAD[case]
    request = ann.request()
    for name, value in fields.items():
        setattr(request, name, value)
    epoch, answers = ann.epoch, ann.send(request, ShareFetchResponse)
    play.until(lambda: answers, "an answer")
    assert ErrorCode(answers[0].error_code) is code
    ann.epoch = epoch
    assert ann.fetch().error_code == 0, "the session goes on"


BAD_ACKNOWLEDGEMENTS = {
    "not in order": ([(2, 3, [1]), (0, 1, [1])], ErrorCode.INVALID_REQUEST),
    "overlapping": ([(0, 2, [1]), (2, 3, [1])], ErrorCode.INVALID_REQUEST),
    "reversed": ([(3, 2, [1])], ErrorCode.INVALID_REQUEST),
    "no types": ([(0, 1, [])], ErrorCode.INVALID_REQUEST),
    "too few types": ([(0, 2, [1, 1])], ErrorCode.INVALID_REQUEST),
    "an unknown type": ([(0, 0, [9])], ErrorCode.INVALID_REQUEST),
    "a negative type": ([(0, 0, [-1])], ErrorCode.INVALID_REQUEST),
    "beyond the end": ([(3, 4, [1])], ErrorCode.INVALID_REQUEST),
    "another member's": ([(2, 3, [1])], ErrorCode.INVALID_RECORD_STATE),
    "one's own and another's": ([(0, 2, [1])], ErrorCode.INVALID_RECORD_STATE),
}


@pytest.mark.parametrize("case", BAD_ACKNOWLEDGEMENTS)
def test_bad_acknowledgements_change_nothing(ground: tuple[Play, MemoryPersister], case: str) -> None:
    play, persister = ground
    write(play, 2, 2)
    ann, bob = worker(play), worker(play, "bob")
    assert ann.poll(max_records=2) == [(0, 1, 1)]
    assert bob.poll(max_records=2) == [(2, 3, 1)]
    acknowledged, code = BAD_ACKNOWLEDGEMENTS[case]
    assert ann.acknowledge(*acknowledged) is code
    assert persister.writes == []
    assert ann.acknowledge((0, 1, [ACCEPT])) is ErrorCode.NONE
    assert ann.acknowledge((0, 1, [ACCEPT])) is ErrorCode.NONE, "what is below the start offset is passed over"


def test_a_session_begins_with_a_fetch_without_acknowledgements(ground: tuple[Play, MemoryPersister]) -> None:
    play, _ = ground
    ann = worker(play)
    assert ann.acknowledge((0, 0, [ACCEPT])) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    ann.epoch = 0
    assert ErrorCode(ann.fetch([(0, 0, [ACCEPT])]).error_code) is ErrorCode.INVALID_REQUEST


def test_too_many_sessions_are_held_back() -> None:
    with share_stage(group_share_max_share_sessions="1", group_share_max_size="1") as (play, _):
        assert worker(play).fetch().error_code == 0
        began = play.loop.now
        refused = worker(play, "bob").fetch(max_wait_ms=400)
        assert ErrorCode(refused.error_code) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert play.loop.now - began >= 0.4


def test_two_groups_do_not_disturb_each_other(ground: tuple[Play, MemoryPersister]) -> None:
    play, _ = ground
    write(play, 3)
    assert worker(play).poll() == [(0, 2, 1)]
    assert worker(play, group_id="others").poll() == [(0, 2, 1)]
