"""What the share coordinator stores, refuses, fences and removes."""

from __future__ import annotations

import uuid

import pytest
from tests.unit.coordinators.share_story import KEY, KEYS, ORDERS, PAYMENTS, ShareStory, memory_of

from strandline.coordinators.groups.events import TopicDeleted
from strandline.coordinators.groups.shard_terms import CoordinatorRecord
from strandline.coordinators.shares.events import InitializeState, ReadState, StateAnswer, SummarizeState, WriteState
from strandline.coordinators.shares.share_records import (
    ShareSnapshot,
    ShareUpdate,
    decode_share_record,
    snapshot_record,
    update_record,
)
from strandline.coordinators.shares.share_shard import STATE_BATCHES_MAX
from strandline.coordinators.shares.share_state import SharePartitionKey, ShareState, ShareSummary, StateBatch
from strandline.errors import ErrorCode

NOWHERE = SharePartitionKey("workers", uuid.UUID(int=99), 0)


def kinds(story: ShareStory) -> list[str]:
    found = [decode_share_record(key, value)[1] for _, key, value in story.log]
    return ["tombstone" if change is None else type(change).__name__ for change in found]


def test_a_new_share_partition_has_no_start_and_no_batches() -> None:
    story = ShareStory()
    assert story.initialize() is ErrorCode.NONE
    assert story.read() == ShareState(1, -1, ())
    assert story.summary() == ShareSummary(1, 0, -1, -1)
    assert kinds(story) == ["ShareSnapshot"]


def test_an_initial_offset_is_a_start_with_nothing_delivered() -> None:
    story = ShareStory()
    assert story.initialize(start=50) is ErrorCode.NONE
    assert story.summary() == ShareSummary(1, 0, 50, 0)


def test_writes_are_merged_and_cut_at_the_start() -> None:
    story = ShareStory()
    story.initialize(start=10)
    assert story.write(StateBatch(10, 19, 2, 1), StateBatch(25, 29, 0, 1)) is ErrorCode.NONE
    assert story.write(StateBatch(20, 24, 2, 2), start=15) is ErrorCode.NONE
    expected = (StateBatch(15, 19, 2, 1), StateBatch(20, 24, 2, 2), StateBatch(25, 29, 0, 1))
    assert story.read() == ShareState(1, 15, expected)
    assert kinds(story) == ["ShareSnapshot", "ShareUpdate", "ShareUpdate"]


def test_a_late_write_does_not_move_the_start_back() -> None:
    story = ShareStory()
    story.initialize(start=0)
    story.write(start=90)
    assert story.write(StateBatch(50, 59, 0, 1), start=40) is ErrorCode.NONE
    assert story.read() == ShareState(1, 90, ())


def test_after_many_updates_comes_a_snapshot() -> None:
    story = ShareStory(updates_per_snapshot=3)
    story.initialize(start=0)
    for offset in range(8):
        story.write(StateBatch(offset, offset, 2, 1))
    assert kinds(story) == ["ShareSnapshot", *["ShareUpdate"] * 3] * 2 + ["ShareSnapshot"]
    epochs = [change.snapshot_epoch for _, key, value in story.log if (change := decode_share_record(key, value)[1])]
    assert epochs == [0, 0, 0, 0, 1, 1, 1, 1, 2]
    assert story.read() == ShareState(1, 0, (StateBatch(0, 7, 2, 1),))


def test_a_new_leader_fences_the_one_before_by_reading() -> None:
    story = ShareStory()
    story.initialize(start=0)
    assert story.read(leader=4) == ShareState(1, 0, ())
    assert kinds(story)[-1] == "ShareUpdate", "the epoch is stored before the answer"
    count = len(story.log)
    assert story.read(leader=4) == ShareState(1, 0, ())
    assert len(story.log) == count
    for _ in range(2):
        assert story.write(StateBatch(0, 0, 2, 1), leader=3) is ErrorCode.FENCED_LEADER_EPOCH
        assert story.read(leader=3) is ErrorCode.FENCED_LEADER_EPOCH
        assert story.summary() == ShareSummary(1, 4, 0, 0)
        story.restart()
    assert story.write(StateBatch(0, 0, 2, 1), leader=4) is ErrorCode.NONE


def test_a_new_state_epoch_begins_afresh_and_fences_writers_of_the_old_one() -> None:
    story = ShareStory()
    story.initialize(start=0)
    story.read(leader=6)
    story.write(StateBatch(0, 9, 2, 1), leader=6)
    assert story.initialize(epoch=5, start=3) is ErrorCode.NONE
    assert story.read() == ShareState(5, 3, ())
    assert story.initialize(epoch=4, start=0) is ErrorCode.FENCED_STATE_EPOCH
    assert story.write(StateBatch(3, 3, 2, 1), epoch=4, leader=6) is ErrorCode.FENCED_STATE_EPOCH
    assert story.write(StateBatch(3, 3, 2, 1), epoch=5, leader=5) is ErrorCode.FENCED_LEADER_EPOCH
    assert story.initialize(epoch=5, start=1) is ErrorCode.NONE, "an equal epoch is not fenced"
    assert story.read() == ShareState(5, 1, ())


def test_a_repeated_initialization_forgets_no_acknowledgement() -> None:
    story = ShareStory()
    story.initialize()
    story.write(StateBatch(7, 7, 2, 1), start=7)
    assert story.initialize() is ErrorCode.NONE
    assert story.read() == ShareState(1, 7, (StateBatch(7, 7, 2, 1),))


def test_what_was_never_initialized_is_neither_read_nor_written() -> None:
    story = ShareStory()
    assert story.read() is ErrorCode.INVALID_REQUEST
    assert story.write(StateBatch(0, 0, 2, 1)) is ErrorCode.INVALID_REQUEST
    assert story.summary() == ShareSummary(0, 0, -1, -1)
    assert story.delete() is ErrorCode.NONE
    assert story.log == []


def test_unknown_topics_and_partitions_are_refused() -> None:
    story = ShareStory()
    beyond = SharePartitionKey("workers", ORDERS.id, ORDERS.partitions)
    for key in (NOWHERE, beyond):
        assert story.initialize(key) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert story.summary(key) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert story.delete(key) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    negative = KEY._replace(partition=-1)
    for event_class, more in (
        (InitializeState, (1, -1)),
        (ReadState, (0,)),
        (WriteState, (1, 0, 0, 0, ())),
        (SummarizeState, ()),
    ):
        expected = StateAnswer(ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number.")
        assert story.ask(event_class, negative, *more) == expected


@pytest.mark.parametrize(
    "batch",
    [
        StateBatch(5, 4, 2, 1),
        StateBatch(-1, 4, 2, 1),
        StateBatch(0, 4, 1, 1),
        StateBatch(0, 4, 5, 1),
        StateBatch(0, 4, -1, 1),
        StateBatch(0, 4, 2, -1),
    ],
)
def test_nonsense_is_refused_whole(batch: StateBatch) -> None:
    story = ShareStory()
    story.initialize(start=0)
    before = list(story.log)
    assert story.write(StateBatch(0, 0, 2, 1), batch, start=1) is ErrorCode.INVALID_REQUEST
    assert story.write(start=-2) is ErrorCode.INVALID_REQUEST
    assert story.ask(WriteState, KEY, 1, 0, 0, -2, ()).code is ErrorCode.INVALID_REQUEST
    assert story.initialize(epoch=2, start=-2) is ErrorCode.INVALID_REQUEST
    assert story.log == before


def test_batches_are_limited() -> None:
    story = ShareStory(updates_per_snapshot=0)
    story.initialize(start=0)
    most = [StateBatch(2 * at, 2 * at, 2, 1) for at in range(STATE_BATCHES_MAX)]
    assert story.write(*most) is ErrorCode.NONE
    assert CoordinatorRecord(*story.log[-1][1:]).size_bytes < 1_000_000
    assert story.write(StateBatch(STATE_BATCHES_MAX * 2, STATE_BATCHES_MAX * 2, 2, 1)) is ErrorCode.INVALID_REQUEST
    assert story.write(start=100) is ErrorCode.NONE
    assert story.write(StateBatch(STATE_BATCHES_MAX * 2, STATE_BATCHES_MAX * 2, 2, 1)) is ErrorCode.NONE


def test_a_deleted_share_partition_is_forgotten_by_the_log_too() -> None:
    story = ShareStory()
    story.initialize()
    story.initialize(KEYS[1])
    assert story.delete() is ErrorCode.NONE
    story.restart()
    assert set(story.shard.shares) == {KEYS[1]}
    assert story.initialize(epoch=0) is ErrorCode.NONE, "no epoch of it is known any more"


def test_share_partitions_go_with_their_topic() -> None:
    story = ShareStory()
    for key in KEYS:
        story.initialize(key)
    story.topics = [ORDERS]
    story.step(TopicDeleted("payments", PAYMENTS.id))
    expected = {key for key in KEYS if key.topic_id == ORDERS.id}
    assert set(story.shard.shares) == expected
    assert set(story.loaded_shard(story.log).shares) == expected


def test_share_partitions_of_a_topic_that_was_deleted_meanwhile_go_when_they_are_loaded() -> None:
    story = ShareStory()
    for key in KEYS:
        story.initialize(key)
    story.topics = [PAYMENTS]
    story.restart()
    expected = {key for key in KEYS if key.topic_id == PAYMENTS.id}
    assert set(story.shard.shares) == expected
    assert set(story.loaded_shard(story.log).shares) == expected


def test_old_records_are_pruned_up_to_the_oldest_snapshot_that_is_needed() -> None:
    story = ShareStory(updates_per_snapshot=2, prune_interval_ms=1_000, cold_interval_ms=10**9)
    story.initialize(KEYS[0], start=0)
    story.initialize(KEYS[1], start=0)
    for offset in range(20):
        story.write(StateBatch(offset, offset, 2, 1), key=KEYS[0])
    story.pass_ms(1_000)
    assert story.log[0].offset == 1, "the snapshot of the second one, which nothing was written for"
    for offset in range(20):
        story.write(StateBatch(offset, offset, 2, 1), key=KEYS[1])
    before = memory_of(story.shard)
    story.pass_ms(1_000)
    assert story.log[0].offset == 19, "the last snapshot of the first one"
    assert memory_of(story.loaded_shard(story.log)) == before


def test_cold_share_partitions_get_a_snapshot_and_hold_back_no_pruning() -> None:
    story = ShareStory(updates_per_snapshot=2, prune_interval_ms=1_000, cold_interval_ms=10_000)
    for key in KEYS:
        story.initialize(key, start=0)
    for offset in range(200):
        story.write(StateBatch(offset, offset, 2, 1), key=KEYS[0])
    story.pass_ms(12_000)
    assert len(story.log) <= 2 * len(KEYS)
    end = story.next_offset
    story.pass_ms(100_000)
    assert story.next_offset == end, "nothing is redundant, so nothing is written again"
    story.restart()
    assert story.read(KEYS[0]) == ShareState(1, 0, (StateBatch(0, 199, 2, 1),))
    assert story.read(KEYS[1]) == ShareState(1, 0, ())


def test_a_log_without_share_partitions_is_pruned_whole() -> None:
    story = ShareStory(prune_interval_ms=1_000)
    story.initialize()
    story.delete()
    story.pass_ms(1_000)
    assert story.log == []


def test_records_of_a_newer_broker_are_kept() -> None:
    story = ShareStory(prune_interval_ms=1_000, updates_per_snapshot=0)
    story.initialize(start=0)
    story.append(CoordinatorRecord(b"\x00\x07newer", b"\x00\x00"))
    story.restart()
    for offset in range(5):
        story.write(StateBatch(offset, offset, 2, 1))
    story.pass_ms(1_000)
    assert story.log[0].key == b"\x00\x07newer"


def test_an_update_without_its_snapshot_is_passed_over() -> None:
    story = ShareStory()
    story.initialize(start=0)
    story.write(StateBatch(0, 0, 2, 1))
    assert story.loaded_shard(story.log[1:]).shares == {}


def test_a_log_of_kafka_that_initialized_a_state_again_still_fences() -> None:
    story = ShareStory()
    story.append(snapshot_record(KEY, ShareSnapshot(0, 1, 0, 0, 0, 1, 1)))
    story.append(update_record(KEY, ShareUpdate(0, 5, 0, 0)))
    story.append(snapshot_record(KEY, ShareSnapshot(1, 2, 0, 9, 0, 2, 2)))
    story.append(update_record(KEY, ShareUpdate(1, 0, 10, 0)))
    story.restart()
    assert story.read(leader=4) is ErrorCode.FENCED_LEADER_EPOCH
    assert story.read(leader=5) == ShareState(2, 10, ())


def test_records_are_those_of_kafka() -> None:
    story = ShareStory()
    story.initialize(start=7)
    story.read(leader=3)
    story.write(StateBatch(7, 9, 4, 2), leader=3)
    changes = [decode_share_record(key, value) for _, key, value in story.log]
    assert changes == [
        (KEY, ShareSnapshot(0, 1, 0, 7, 0, story.now_ms, story.now_ms)),
        (KEY, ShareUpdate(0, 3, 7, 0)),
        (KEY, ShareUpdate(0, 3, -1, 1, (StateBatch(7, 9, 4, 2),))),
    ]
    key, value = story.log[2][1:]
    assert key == b"\x00\x01\x00\x07workers" + ORDERS.id.bytes + b"\x00\x00\x00\x00"
    assert value is not None
    assert value == (
        b"\x00\x00"  # version
        b"\x00\x00\x00\x00\x00\x00\x00\x03"
        + b"\xff" * 8  # snapshot epoch, leader epoch, start offset
        + b"\x02"
        + (7).to_bytes(8, "big")
        + (9).to_bytes(8, "big")
        + b"\x04\x00\x02\x00"  # one batch
        + b"\x01\x00\x04\x00\x00\x00\x01"  # tagged: the delivery-complete count
    )
