"""Delivery to share groups through the front door: real nodes in the simulation, requests by hand."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from tests.simulation.by_hand import ByHand
from tests.simulation.share_stage import (
    GROUP,
    Kept,
    MemoryPersister,
    Worker,
    acquired_in,
    outcome_in,
    share_stage,
    write,
)
from tests.simulation.stage import Play
from tests.simulator.options import TopicOptions

from strandline.codec.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from strandline.codec.messages.delete_records_response import DeleteRecordsResponse
from strandline.codec.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from strandline.codec.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from strandline.codec.messages.share_fetch_request import FetchPartition, FetchTopic
from strandline.codec.messages.share_fetch_response import ShareFetchResponse
from strandline.coordinators.shares.delivery.acknowledgements import ACCEPT, REJECT, RELEASE, RENEW
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


def test_a_record_at_which_workers_hang_delays_its_neighbours_by_one_lock(ground: tuple[Play, MemoryPersister]) -> None:
    play, _ = ground
    write(play, 6)
    ann, bob = worker(play), worker(play, "bob")
    assert ann.poll() == [(0, 5, 1)]
    assert ann.acknowledge((0, 1, [ACCEPT])) is ErrorCode.NONE
    play.rest(LOCK_S + 1)  # ann hangs at the third.
    assert ann.poll() == [(2, 2, 2)]
    assert bob.poll() == [(3, 5, 2)]
    assert bob.acknowledge((3, 5, [ACCEPT])) is ErrorCode.NONE
    write(play, 2)
    play.rest(LOCK_S + 1)
    assert ann.poll() == [(2, 2, 3)], "nor does it come with new ones"
    assert bob.poll() == [(6, 7, 1)]


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


def test_a_fetch_of_a_former_session_acquires_nothing(ground: tuple[Play, MemoryPersister]) -> None:
    play, _ = ground
    former = worker(play)
    waits = former.begin_fetch(max_wait_ms=5_000)
    play.rest(0.5)
    again = worker(play)
    assert again.fetch().error_code == 0
    write(play, 2)
    play.until(lambda: waits, "the former fetch is answered", 6.0)
    assert acquired_in(waits[0]) == []
    assert again.poll() == [(0, 1, 1)]


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


def test_a_new_leader_delivers_what_was_not_acknowledged() -> None:
    with share_stage(3, topic=TopicOptions("tasks", 1, 3, {"min.insync.replicas": "2"}), nodes=3) as (play, persister):
        write(play, 3, 3)
        ann = worker(play)
        assert ann.poll() == [(0, 5, 1)]
        assert ann.acknowledge((1, 2, [ACCEPT]), (3, 3, [RELEASE])) is ErrorCode.NONE
        former = play.leader("tasks")
        former.kill()
        play.until(lambda: play.image_of("tasks").leader not in (-1, former.node_id), "another leads")
        bob = worker(play, "bob")
        assert bob.poll(max_wait_ms=5_000) == [(0, 0, 1), (3, 3, 2), (4, 5, 1)]
        assert bob.acknowledge((0, 0, [ACCEPT]), (3, 5, [ACCEPT])) is ErrorCode.NONE
        (kept,) = persister.kept.values()
        assert kept.start_offset == 6


def test_a_leader_that_was_replaced_is_fenced() -> None:
    with share_stage(4, topic=TopicOptions("tasks", 1, 3, {"min.insync.replicas": "2"}), nodes=3) as (play, persister):
        write(play, 4)
        ann = worker(play)
        assert ann.poll() == [(0, 3, 1)]
        former = play.leader("tasks")
        # As if the process had stood still past an election: another leader has read the state.
        (kept,) = persister.kept.values()
        kept.leader_epoch += 1
        assert ann.acknowledge((0, 3, [ACCEPT])) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert kept.records == {}
        assert former.node is not None


def test_another_broker_names_the_leader() -> None:
    with share_stage(5, topic=TopicOptions("tasks", 1, 3, {}), nodes=3) as (play, _):
        ann = Worker(play, play.followers("tasks")[0], "ann")
        answer = ann.fetch(max_wait_ms=2_000)
        (refused,) = answer.responses[0].partitions
        assert ErrorCode(refused.error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert refused.current_leader.leader_id == play.leader("tasks").node_id
        assert [each.node_id for each in answer.node_endpoints] == [play.leader("tasks").node_id]


def test_deleted_records_are_neither_delivered_nor_waited_for(ground: tuple[Play, MemoryPersister]) -> None:
    play, persister = ground
    write(play, 3, 3, 3)
    ann, bob = worker(play), worker(play, "bob")
    assert ann.poll(max_records=3) == [(0, 2, 1)]
    assert bob.poll(max_records=3) == [(3, 5, 1)]
    play.loop.after_event = None  # The invariants know nothing of this request.
    partition = DeleteRecordsPartition(partition_index=0, offset=5)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="tasks", partitions=[partition])], timeout_ms=5_000)
    play.ask(play.leader("tasks"), request, 2, DeleteRecordsResponse)
    assert ann.poll(max_records=3) == [(6, 8, 1)]
    assert ann.acknowledge((0, 2, [ACCEPT])) is ErrorCode.NONE, "passed over"
    assert bob.acknowledge((3, 5, [ACCEPT])) is ErrorCode.NONE
    assert ann.acknowledge((6, 8, [ACCEPT])) is ErrorCode.NONE
    (kept,) = persister.kept.values()
    assert (kept.start_offset, kept.complete_count) == (9, 0)


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_aborted_records_are_left_out_if_the_group_reads_committed_ones(level: str) -> None:
    with share_stage(6) as (play, persister):
        alter_group(play, {"share.isolation.level": level})
        payments = ByHand(play)
        assert payments.begin() is ErrorCode.NONE
        payments.write("tasks", 3)
        ann = worker(play)
        if level == "read_committed":
            assert ann.poll() == [], "the transaction is open"
        assert payments.end(commits=False) is ErrorCode.NONE
        payments.write("tasks", 2)
        assert payments.end(commits=True) is ErrorCode.NONE
        play.until(payments.is_stable, "the markers are written")
        got = ann.poll()
        # Offset 3 and 6 are the markers: they are delivered, and the client acknowledges them as gaps.
        assert got == ([(3, 6, 1)] if level == "read_committed" else [(0, 6, 1)])
        assert ann.acknowledge((got[0][0], 6, [ACCEPT])) is ErrorCode.NONE
        (kept,) = persister.kept.values()
        assert kept.start_offset + kept.complete_count == 7


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reset", "offset"), [("earliest", 0), ("latest", 4), ("by_duration:PT1H", 2), ("by_duration:P1DT2H3M4.5S", 0)]
)
def test_a_new_group_begins_where_its_setting_says(reset: str, offset: int) -> None:
    with share_stage(7, reset=reset) as (play, _):
        write(play, 2)
        play.rest(7200.0)
        write(play, 2)
        ann = worker(play)
        assert ann.poll() == ([] if offset == 4 else [(offset, 3, 1)])
        write(play, 1)
        assert ann.poll()[-1][:2] == (4, 4)


def alter_group(play: Play, settings: dict[str, str]) -> None:
    changes = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in settings.items()]
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=32, resource_name=GROUP, configs=changes)]
    )
    answer = play.ask(play.leader("tasks"), request, 1, IncrementalAlterConfigsResponse)
    assert answer.responses[0].error_code == 0, answer.responses[0].error_message
    play.rest(1.0)


def test_settings_of_a_group_change_while_it_runs(ground: tuple[Play, MemoryPersister]) -> None:
    play, _ = ground
    write(play, 1)
    alter_group(play, {"share.record.lock.duration.ms": "15000", "share.delivery.count.limit": "2"})
    ann = worker(play)
    assert ann.fetch().acquisition_lock_timeout_ms == 15_000
    assert ann.poll() == [(0, 0, 1)]
    play.rest(16.0)
    assert ann.poll() == [(0, 0, 2)]
    alter_group(play, {"share.record.lock.duration.ms": "40000", "share.renew.acknowledge.enable": "false"})
    assert ann.acknowledge((0, 0, [RENEW]), is_renew_ack=True) is ErrorCode.INVALID_RECORD_STATE
    play.rest(16.0)
    assert ann.poll() == [], "archived at the limit"


def test_state_that_cannot_be_read_is_an_error_and_is_tried_again(ground: tuple[Play, MemoryPersister]) -> None:
    play, persister = ground
    write(play, 2)
    ann = worker(play)
    persister.kept[GROUP, ann.topic_id, 0] = Kept(leader_epoch=100)
    (refused,) = ann.fetch(max_wait_ms=5_000).responses[0].partitions
    assert ErrorCode(refused.error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    persister.kept[GROUP, ann.topic_id, 0] = Kept()
    assert ann.poll() == [(0, 1, 1)]


def test_an_empty_group_forgets_its_share_partitions(ground: tuple[Play, MemoryPersister]) -> None:
    """An administrator may alter the offsets of an empty group: only what is loaded afterwards knows of it."""
    play, persister = ground
    write(play, 4)
    ann = worker(play)
    assert ann.poll() == [(0, 3, 1)]
    assert ann.acknowledge((0, 3, [ACCEPT]), share_session_epoch=-1) is ErrorCode.NONE
    play.rest(0.5)
    (kept,) = persister.kept.values()
    kept.start_offset = 1
    kept.records.clear()
    ann.epoch = 0
    assert ann.poll() == [(1, 3, 1)]


def test_unknown_topics_and_partitions_are_refused_by_themselves(ground: tuple[Play, MemoryPersister]) -> None:
    play, _ = ground
    write(play, 1)
    ann = worker(play)
    unknown = uuid.UUID(int=7)
    topics = [
        FetchTopic(topic_id=unknown, partitions=[FetchPartition(0)]),
        FetchTopic(topic_id=ann.topic_id, partitions=[FetchPartition(0), FetchPartition(9)]),
    ]
    ann.poll()
    answer = ann.fetch(topics=topics, max_wait_ms=1_000)
    codes = {
        (topic.topic_id, each.partition_index): ErrorCode(each.error_code)
        for topic in answer.responses
        for each in topic.partitions
    }
    assert codes[unknown, 0] is ErrorCode.UNKNOWN_TOPIC_ID
    assert codes[ann.topic_id, 9] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
