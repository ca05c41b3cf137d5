"""Random commits, in transactions and out of them: the state is always what the log alone says, compacted or not."""

from __future__ import annotations

import random
from functools import cache

import pytest
from tests.unit.coordinators.story import Story
from tests.unit.coordinators.test_transactional_offsets import delete_group, delete_offset, delete_topic

from strandline.codec.internal_records import decode_coordinator_record
from strandline.codec.messages.offset_commit_key import OffsetCommitKey
from strandline.coordinators.groups.events import Loaded, TransactionEnded
from strandline.coordinators.groups.group_shard import GroupShard
from strandline.coordinators.groups.replay import PendingRecord, Replayed

GROUPS = ("orders", "returns")
PRODUCERS = (1, 2, 3)
PARTITIONS = range(3)
RETENTION_MS = 100_000
CHECK_MS = 10_000

Key = tuple[str, str, int]


@cache
def offset_of(record: Replayed) -> tuple[Key, int | None] | None:
    assert not isinstance(record, TransactionEnded)
    key, value = decode_coordinator_record(record.key, record.value)
    if not isinstance(key, OffsetCommitKey):
        return None
    return (key.group, key.topic, key.partition), None if value is None else value.offset  # type: ignore[attr-defined]


def fates(records: list[Replayed]) -> list[bool | None]:
    """For each record whether its transaction was committed, or None if it is open; plain ones are committed."""
    found: list[bool | None] = []
    ended: dict[int, bool] = {}
    for record in reversed(records):
        if isinstance(record, TransactionEnded):
            ended[record.producer_id] = record.is_commit
            found.append(True)
        elif isinstance(record, PendingRecord):
            found.append(ended.get(record.producer_id))
        else:
            found.append(True)
    return found[::-1]


def told_by_the_log(records: list[Replayed]) -> tuple[dict[Key, int], set[Key]]:
    """What is committed: of each key the last record that is not of an open or aborted transaction. What is pending."""
    committed: dict[Key, int] = {}
    pending: set[Key] = set()
    for record, fate in zip(records, fates(records), strict=True):
        if isinstance(record, TransactionEnded) or fate is False or (told := offset_of(record)) is None:
            continue
        key, offset = told
        if offset is None:
            committed.pop(key, None)
            pending.discard(key)
        elif fate is None:
            pending.add(key)
        else:
            committed[key] = offset
    return committed, pending


def holders(told: tuple[dict[Key, int], set[Key]]) -> set[str]:
    return {group_id for keys in told for group_id, _, _ in keys}


def state(shard: GroupShard) -> tuple[dict[Key, int], set[Key]]:
    committed = {
        (group_id, topic, partition): value.offset
        for group_id in shard.offsets.group_ids()
        for topic, partitions in shard.offsets.of_group(group_id)
        for partition, value in partitions.items()
    }
    waiting = shard.offsets.pending
    return committed, {(group_id, *place) for group_id in waiting.group_ids() for place in waiting.of_group(group_id)}


def loaded(story: Story, records: list[Replayed]) -> GroupShard:
    shard = GroupShard(story.config, random.Random(0))
    shard.load(records)
    shard.step(Loaded(), story.now_ms)
    return shard


def act(story: Story, choice: random.Random) -> None:
    story.group = choice.choice(GROUPS)
    partition, offset, topic = choice.choice(PARTITIONS), choice.randrange(1_000), choice.choice("tu")
    match choice.choices(("plain", "transactional", "end", "delete", "time", "restart"), (5, 10, 5, 1, 1, 1))[0]:
        case "plain":
            story.commit("job", offset, topic=topic, partition=partition, generation_id=-1)
        case "transactional":
            story.commit_in_transaction(choice.choice(PRODUCERS), offset, topic=topic, partition=partition)
        case "end":
            story.end_transaction(choice.choice(PRODUCERS), is_commit=choice.random() < 0.6)
        case "delete":
            choice.choice((delete_group, delete_offset, delete_topic))(story)
        case "time":
            story.pass_ms(choice.choice((1_000, RETENTION_MS)))
        case "restart":
            story.restart()


@pytest.mark.parametrize("seed", range(20))
def test_the_log_alone_tells_what_is_committed_and_what_is_pending(seed: int) -> None:
    choice = random.Random(seed)
    story = Story(seed=seed, offsets_retention_ms=RETENTION_MS, offsets_retention_check_interval_ms=CHECK_MS)
    ends = 0
    for _ in range(150):
        act(story, choice)
        expected = told_by_the_log(story.records)
        assert state(story.shard) == expected, f"seed {seed}"
        assert set(story.shard.groups) >= holders(expected), f"seed {seed}"
        ends += isinstance(story.records[-1], TransactionEnded) if story.records else 0
    assert ends
    story.pass_ms(CHECK_MS)
    assert set(story.shard.groups) == holders(told_by_the_log(story.records)), f"seed {seed}: none but these"
    again = loaded(story, story.records)
    assert state(again) == state(story.shard)
    assert set(again.groups) == set(story.shard.groups)


@pytest.mark.parametrize("seed", range(10))
def test_a_compacted_log_tells_the_same(seed: int) -> None:
    """Below the first record of an open transaction, compaction leaves the last record of a key that is not aborted."""
    choice = random.Random(seed)
    story = Story(seed=seed)
    for _ in range(200):
        act(story, choice)
    fate = fates(story.records)
    stable_end = fate.index(None) if None in fate else len(fate)
    last: dict[Key, int] = {}
    for at, record in enumerate(story.records[:stable_end]):
        if not isinstance(record, TransactionEnded) and fate[at] and (told := offset_of(record)) is not None:
            last[told[0]] = at
    compacted = [
        record
        for at, record in enumerate(story.records)
        if at >= stable_end
        or isinstance(record, TransactionEnded)
        or (told := offset_of(record)) is None
        or last.get(told[0]) == at
    ]
    print(len(story.records), stable_end, len(compacted))
    assert state(loaded(story, compacted)) == state(story.shard), f"seed {seed}"
