"""Delay, back-off and key order of share groups through the front door: real nodes in the simulation."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.hostile.batches import produce
from tests.simulation.share_stage import GROUP, Worker, acquired_in, share_stage, stored_stage
from tests.simulation.stage import Play
from tests.simulator.options import TopicOptions

from strandline.codec.columns import Compression, Record, encode_batch
from strandline.codec.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from strandline.codec.messages.fetch_response import FetchResponse
from strandline.codec.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from strandline.codec.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from strandline.codec.messages.produce_response import ProduceResponse
from strandline.coordinators.shares.delivery.acknowledgements import ACCEPT, REJECT, RELEASE
from strandline.errors import ErrorCode

LOCK_S = 30.0
HOUR_S = 3600.0
DELAYED = TopicOptions("tasks", 1, 1, {"strandline.delay.enable": "true"})
REPLICATED = TopicOptions("tasks", 1, 3, {"min.insync.replicas": "2", "strandline.delay.enable": "true"})
GROUP_RESOURCE, TOPIC_RESOURCE = 32, 2
Task = tuple[float, str | None]
"""Seconds until it is due, and a key."""


def write(play: Play, *tasks: Task, compression: int = Compression.NONE) -> ErrorCode:
    """Write one batch."""
    runtime = play.leader("tasks").runtime
    assert runtime is not None
    records = [
        Record(
            timestamp_ms=runtime.now_ms() + int(delay_s * 1000), key=None if key is None else key.encode(), value=b"t"
        )
        for delay_s, key in tasks
    ]
    batch = encode_batch(records, compression=compression)
    answer = play.ask(play.leader("tasks"), produce("tasks", batch), 12, ProduceResponse)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def alter(play: Play, settings: dict[str, str], resource: int = GROUP_RESOURCE) -> ErrorCode:
    changes = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in settings.items()]
    name = GROUP if resource == GROUP_RESOURCE else "tasks"
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=resource, resource_name=name, configs=changes)]
    )
    answer = play.ask(play.leader("tasks"), request, 1, IncrementalAlterConfigsResponse)
    play.rest(1.0)
    return ErrorCode(answer.responses[0].error_code)


def worker(play: Play, member_id: str = "ann") -> Worker:
    return Worker(play, play.leader("tasks"), member_id)


def offsets(acquired: Sequence[tuple[int, int, int]]) -> list[int]:
    return [offset for first, last, _ in acquired for offset in range(first, last + 1)]


# Delay


def test_a_record_is_delivered_when_it_is_due_and_not_before() -> None:
    with share_stage(topic=DELAYED) as (play, _):
        write(play, (20.0, None))
        write(play, (0.0, None))
        write(play, (5.0, None))
        ann = worker(play)
        assert ann.poll() == [(1, 1, 1)], "others do not wait for it"
        began = play.loop.now
        waits = ann.begin_fetch(max_wait_ms=50_000)
        play.until(lambda: waits, "the fetch that waits is woken", 6.0)
        assert acquired_in(waits[0]) == [(2, 2, 1)]
        assert play.loop.now - began > 4.0, "early-delay"
        waits = ann.begin_fetch(max_wait_ms=50_000)
        play.until(lambda: waits, "and the one after it", 16.0)
        assert acquired_in(waits[0]) == [(0, 0, 1)]
        assert 19.0 < play.loop.now - began < 21.0
        assert ann.acknowledge((0, 2, [ACCEPT])) is ErrorCode.NONE


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_records_of_one_batch_are_due_one_by_one(compression: int) -> None:
    with share_stage(topic=DELAYED) as (play, _):
        write(play, (8.0, None), (0.0, None), (2.0, None), (0.0, None), compression=compression)
        ann = worker(play)
        assert ann.poll() == [(1, 1, 1), (3, 3, 1)]
        play.rest(3.0)
        assert ann.poll() == [(2, 2, 1)]
        play.rest(6.0)
        assert ann.poll() == [(0, 0, 1)]


def test_plain_consumers_read_the_log_as_it_is() -> None:
    with share_stage(topic=DELAYED) as (play, _):
        write(play, (HOUR_S, None))
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topic = FetchTopic(topic="tasks", topic_id=play.topic_id("tasks"), partitions=[partition])
        request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[topic])
        answer = play.ask(play.leader("tasks"), request, 13, FetchResponse)
        assert answer.responses[0].partitions[0].records


def test_a_date_too_far_is_refused() -> None:
    topic = TopicOptions("tasks", 1, 1, {"strandline.delay.enable": "true", "strandline.delay.max.ms": "7200000"})
    with share_stage(topic=topic) as (play, _):
        assert write(play, (1.9 * HOUR_S, None)) is ErrorCode.NONE, "above message.timestamp.after.max.ms"
        assert write(play, (2.1 * HOUR_S, None)) is ErrorCode.INVALID_TIMESTAMP
        assert write(play, (100 * 365 * 24 * HOUR_S, None)) is ErrorCode.INVALID_TIMESTAMP


def test_a_far_date_does_not_stop_the_partition() -> None:
    with share_stage(topic=DELAYED, group_share_partition_max_record_locks="100") as (play, persister):
        write(play, (24 * HOUR_S, None))
        ann = worker(play)
        for _ in range(5):
            write(play, *[(0.0, None)] * 60)
        done = 0
        while got := ann.poll():
            assert ann.acknowledge(*((first, last, [ACCEPT]) for first, last, _ in got)) is ErrorCode.NONE
            done += len(offsets(got))
        assert done == 300
        (kept,) = persister.kept.values()
        assert (kept.start_offset, kept.complete_count) == (0, 300)


def test_what_waits_is_delivered_after_another_leader_has_taken_over() -> None:
    with share_stage(3, topic=REPLICATED, nodes=3) as (play, _):
        write(play, (40.0, None), (0.0, None), (60.0, None))
        write(play, (50.0, None))
        ann = worker(play)
        assert ann.poll() == [(1, 1, 1)]
        assert ann.acknowledge((1, 1, [ACCEPT])) is ErrorCode.NONE
        former, began = play.leader("tasks"), play.loop.now
        former.kill()
        play.until(lambda: play.image_of("tasks").leader not in (-1, former.node_id), "another leads")
        bob, got = worker(play, "bob"), []
        while play.loop.now - began < 70.0:
            for offset in offsets(bob.poll(max_wait_ms=1_000)):
                got.append((offset, play.loop.now - began))
                assert bob.acknowledge((offset, offset, [ACCEPT])) is ErrorCode.NONE
        assert [offset for offset, _ in got] == [0, 3, 2]
        for (_, at), due in zip(got, (40.0, 50.0, 60.0), strict=True):
            assert due - 2.0 < at < due + 2.0


def test_a_clock_that_jumps_back_delivers_late_and_forward_at_the_next_fetch() -> None:
    with share_stage(topic=DELAYED) as (play, _):
        write(play, (10.0, None))
        ann, leader = worker(play), play.leader("tasks")
        assert ann.poll() == []
        leader.host.jump_clock(-5_000)
        play.rest(11.0)
        assert ann.poll() == []
        leader.host.jump_clock(5_000)
        assert ann.poll() == [(0, 0, 1)]


def test_where_a_topic_delays_no_more_all_are_due() -> None:
    with share_stage(topic=DELAYED) as (play, _):
        write(play, (HOUR_S, None))
        ann = worker(play)
        assert ann.poll() == []
        assert alter(play, {"strandline.delay.enable": "false"}, TOPIC_RESOURCE) is ErrorCode.NONE
        assert ann.poll() == [(0, 0, 1)]


def test_a_delay_needs_the_time_of_the_producer() -> None:
    with share_stage(topic=DELAYED) as (play, _):
        settings = {"message.timestamp.type": "LogAppendTime"}
        assert alter(play, settings, TOPIC_RESOURCE) is ErrorCode.INVALID_CONFIG


# Back-off


def backed_off(play: Play, ann: Worker) -> float:
    """Return how long it takes until something is delivered."""
    began, waits = play.loop.now, ann.begin_fetch(max_wait_ms=50_000)
    play.until(lambda: waits, "it is delivered again", 60.0)
    assert acquired_in(waits[0])
    return play.loop.now - began


def test_back_off_grows_with_each_attempt_up_to_its_limit() -> None:
    with share_stage() as (play, _):
        settings = {"strandline.share.backoff.ms": "2000", "strandline.share.backoff.max.ms": "5000"}
        assert alter(play, settings) is ErrorCode.NONE
        write(play, (0.0, None))
        ann = worker(play)
        assert ann.poll() == [(0, 0, 1)]
        for wait_s in (2.0, 4.0, 5.0, 5.0):
            assert ann.acknowledge((0, 0, [RELEASE])) is ErrorCode.NONE
            assert wait_s - 0.1 <= backed_off(play, ann) < wait_s + 0.5


def test_a_lock_that_times_out_is_backed_off_and_what_a_member_leaves_is_not() -> None:
    with share_stage() as (play, _):
        assert alter(play, {"strandline.share.backoff.ms": "10000"}) is ErrorCode.NONE
        write(play, (0.0, None))
        ann, bob = worker(play), worker(play, "bob")
        bob.poll(max_wait_ms=0)
        assert ann.poll() == [(0, 0, 1)]
        play.rest(LOCK_S + 1)
        assert bob.poll() == []
        play.rest(10.0)
        assert bob.poll() == [(0, 0, 2)]
        bob.vanish()
        play.rest(0.5)
        assert ann.poll() == [(0, 0, 3)], "it was not at fault"


def test_others_go_on_while_records_are_backed_off() -> None:
    with share_stage(group_share_partition_max_record_locks="100") as (play, _):
        assert alter(play, {"strandline.share.backoff.ms": "60000"}) is ErrorCode.NONE
        for _ in range(4):
            write(play, *[(0.0, None)] * 60)
        ann, done = worker(play), 0
        while got := ann.poll(max_records=60):
            types = [RELEASE if offset == 0 else ACCEPT for offset in offsets(got)]
            assert ann.acknowledge((got[0][0], got[-1][1], types)) is ErrorCode.NONE
            done += types.count(ACCEPT)
        assert done == 239


def test_after_a_change_of_leaders_a_record_may_come_early_and_is_not_lost() -> None:
    topic = TopicOptions("tasks", 1, 3, {"min.insync.replicas": "2"})
    with share_stage(5, topic=topic, nodes=3) as (play, _):
        assert alter(play, {"strandline.share.backoff.ms": "60000"}) is ErrorCode.NONE
        write(play, (0.0, None))
        ann = worker(play)
        assert ann.poll() == [(0, 0, 1)]
        assert ann.acknowledge((0, 0, [RELEASE])) is ErrorCode.NONE
        former = play.leader("tasks")
        former.kill()
        play.until(lambda: play.image_of("tasks").leader not in (-1, former.node_id), "another leads")
        assert worker(play, "bob").poll(max_wait_ms=5_000) == [(0, 0, 2)]


# Key order


def keyed(play: Play) -> None:
    assert alter(play, {"share.order": "key"}) is ErrorCode.NONE


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize("mode", [0, 1])
def test_records_of_one_key_come_one_at_a_time_and_in_order(compression: int, mode: int) -> None:
    with share_stage() as (play, persister):
        keyed(play)
        write(play, *((0.0, key) for key in "aabca"), compression=compression)
        ann, bob = worker(play), worker(play, "bob")
        assert offsets(ann.poll(share_acquire_mode=mode)) == [0, 2, 3]
        assert bob.poll() == []
        waits = bob.begin_fetch(max_wait_ms=20_000)
        assert ann.acknowledge((0, 0, [ACCEPT])) is ErrorCode.NONE
        play.until(lambda: waits, "the next one of the key", 1.0)
        assert offsets(acquired_in(waits[0])) == [1]
        assert ann.poll() == []
        assert bob.acknowledge((1, 1, [ACCEPT])) is ErrorCode.NONE
        assert offsets(ann.poll()) == [4]
        assert ann.acknowledge((2, 4, [ACCEPT])) is ErrorCode.NONE
        (kept,) = persister.kept.values()
        assert kept.start_offset == 5


@pytest.mark.parametrize("how", ["release", "time-out", "reject", "vanish"])
def test_order_is_kept_however_a_delivery_ends(how: str) -> None:
    with share_stage() as (play, _):
        keyed(play)
        write(play, (0.0, "a"), (0.0, "a"), (0.0, "b"))
        ann, bob = worker(play), worker(play, "bob")
        bob.poll(max_wait_ms=0)
        assert offsets(ann.poll(max_records=1, share_acquire_mode=1)) == [0]
        if how == "release":
            assert ann.acknowledge((0, 0, [RELEASE])) is ErrorCode.NONE
        elif how == "reject":
            assert ann.acknowledge((0, 0, [REJECT])) is ErrorCode.NONE
        elif how == "vanish":
            ann.vanish()
            play.rest(0.5)
        else:
            play.rest(LOCK_S + 1)
            assert offsets(bob.poll()) == [0], "ann may have hung at it, so it comes alone"
            assert offsets(bob.poll()) == [2]
            return
        assert offsets(bob.poll()) == ([1, 2] if how == "reject" else [0, 2])


def test_the_next_of_a_key_waits_until_the_one_before_is_stored() -> None:
    with share_stage() as (play, persister):
        keyed(play)
        write(play, (0.0, "a"), (0.0, "a"))
        ann = worker(play)
        assert offsets(ann.poll()) == [0]
        persister.is_held = True
        answers = ann.begin_acknowledge((0, 0, [ACCEPT]))
        bob = worker(play, "bob")
        assert bob.poll(max_wait_ms=2_000) == []
        persister.let()
        play.until(lambda: answers, "it is stored", 1.0)
        assert offsets(bob.poll()) == [1]


def test_records_without_a_key_have_no_order() -> None:
    with share_stage() as (play, _):
        keyed(play)
        write(play, *((0.0, None) for _ in range(4)))
        assert offsets(worker(play).poll()) == [0, 1, 2, 3]


def test_a_new_leader_keeps_the_order() -> None:
    topic = TopicOptions("tasks", 1, 3, {"min.insync.replicas": "2"})
    with share_stage(6, topic=topic, nodes=3) as (play, _):
        keyed(play)
        write(play, *((0.0, key) for key in "abab"))
        write(play, *((0.0, key) for key in "cba"))
        ann = worker(play)
        assert offsets(ann.poll()) == [0, 1, 4]
        assert ann.acknowledge((1, 1, [ACCEPT]), (4, 4, [ACCEPT])) is ErrorCode.NONE
        former = play.leader("tasks")
        former.kill()
        play.until(lambda: play.image_of("tasks").leader not in (-1, former.node_id), "another leads")
        bob, seen = worker(play, "bob"), []
        while len(seen) < 5:
            got = offsets(bob.poll(max_wait_ms=5_000))
            seen += got
            assert bob.acknowledge(*((each, each, [ACCEPT]) for each in got)) is ErrorCode.NONE
        assert [each for each in seen if each in (0, 2, 6)] == [0, 2, 6]
        assert [each for each in seen if each in (3, 5)] == [3, 5]


def test_the_order_of_a_group_changes_when_nothing_is_in_flight() -> None:
    with share_stage() as (play, _):
        write(play, *((0.0, "a") for _ in range(3)))
        ann = worker(play)
        assert offsets(ann.poll(max_records=1, share_acquire_mode=1)) == [0]
        keyed(play)
        assert ann.poll() == [], "it waits for the record in flight"
        assert ann.acknowledge((0, 0, [ACCEPT])) is ErrorCode.NONE
        assert offsets(ann.poll(max_wait_ms=5_000)) == [1]
        assert ann.poll() == []


def test_a_delayed_record_holds_up_its_key_alone() -> None:
    with share_stage(topic=DELAYED) as (play, _):
        keyed(play)
        write(play, (10.0, "a"), (0.0, "a"), (0.0, "b"))
        ann = worker(play)
        assert offsets(ann.poll()) == [2]
        play.rest(11.0)
        assert offsets(ann.poll()) == [0]
        assert ann.acknowledge((0, 0, [ACCEPT])) is ErrorCode.NONE
        assert offsets(ann.poll()) == [1]


BAD_SETTINGS: dict[str, dict[str, str]] = {
    "an unknown order": {"share.order": "value"},
    "a negative back-off": {"strandline.share.backoff.ms": "-1"},
    "a back-off above its limit": {"strandline.share.backoff.ms": "2000", "strandline.share.backoff.max.ms": "1000"},
    "a back-off of days": {"strandline.share.backoff.ms": "1000", "strandline.share.backoff.max.ms": "864000000"},
    "no number": {"strandline.share.backoff.ms": "soon"},
}


@pytest.mark.parametrize("case", BAD_SETTINGS)
def test_settings_that_make_no_sense_are_refused(case: str) -> None:
    with share_stage() as (play, _):
        assert alter(play, BAD_SETTINGS[case]) is ErrorCode.INVALID_CONFIG


def test_the_real_coordinator_stores_a_partition_with_many_holes() -> None:
    """Delayed and prompt records by turns: what is done lies in pieces between what waits."""
    with stored_stage(15) as play:
        assert alter(play, {"strandline.delay.enable": "true"}, TOPIC_RESOURCE) is ErrorCode.NONE
        for number in range(20):
            write(play, *(((30.0 if (number + each) % 2 else 0.0), None) for each in range(10)))
        ann, done = worker(play), 0
        while got := ann.poll(max_wait_ms=2_000):
            assert ann.acknowledge(*((first, last, [ACCEPT]) for first, last, _ in got)) is ErrorCode.NONE
            done += len(offsets(got))
        assert done == 100
        play.rest(30.0)
        while got := ann.poll(max_wait_ms=2_000):
            assert ann.acknowledge(*((first, last, [ACCEPT]) for first, last, _ in got)) is ErrorCode.NONE
            done += len(offsets(got))
        assert done == 200
