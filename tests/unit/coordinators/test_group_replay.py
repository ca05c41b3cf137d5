"""Whatever happens to groups, their records alone bring them back: random histories, replayed at every step."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from tests.unit.coordinators.story import Story

from strandline.codec.columns import Record as BatchRecord
from strandline.codec.columns import decode_batch, encode_batch
from strandline.codec.internal_records import encode_coordinator_key, encode_coordinator_value
from strandline.codec.messages.group_metadata_key import GroupMetadataKey
from strandline.codec.messages.offset_commit_value import OffsetCommitValue
from strandline.codec.messages.streams_group_metadata_key import StreamsGroupMetadataKey
from strandline.codec.messages.streams_group_metadata_value import StreamsGroupMetadataValue
from strandline.coordinators.groups.events import Loaded, TopicDeleted
from strandline.coordinators.groups.group_config import GroupConfig
from strandline.coordinators.groups.group_records import (
    group_metadata_record,
    group_metadata_value,
    offset_commit_record,
)
from strandline.coordinators.groups.group_shard import GroupShard
from strandline.coordinators.groups.replay import replay
from strandline.coordinators.groups.shard_terms import CoordinatorRecord

CLIENTS = ("A", "B", "C", "S1", "S2")


def settled(shard: GroupShard) -> dict[str, object]:
    """What must survive: every offset, and every group that is not between two generations."""
    return {
        "offsets": {
            (group_id, topic): dict(partitions)
            for group_id in shard.offsets.group_ids()
            for topic, partitions in shard.offsets.of_group(group_id)
        },
        "groups": {
            group.group_id: group_metadata_value(group)
            for group in shard.groups.values()
            if group.state in ("Empty", "Stable") and group.generation_id > 0
        },
    }


def replayed(records: list[CoordinatorRecord]) -> GroupShard:
    shard = GroupShard(GroupConfig(), random.Random(0))
    shard.load(records)
    shard.step(Loaded(), 0)
    return shard


def act(story: Story, choice: random.Random) -> None:
    """One thing that a client or the world may do, sensible or not."""
    name = choice.choice(CLIENTS)
    client = story.client(name, instance_id=name if name.startswith("S") else None)
    metadata = choice.choice((b"topics", b"topics", b"more topics"))
    match choice.randrange(13):
        case 0 | 1 | 2:
            story.join(name, protocols=(("range", metadata), ("sticky", b"")), api_version=choice.choice((3, 8, 9)))
        case 3 | 4 | 5:
            if client.protocol_name is not None:
                story.sync(name, {other: f"{other}-{choice.randrange(9)}".encode() for other in story.clients})
        case 6:
            story.heartbeat(name)
        case 7:
            story.commit(name, choice.randrange(1000), partition=choice.randrange(3), topic=choice.choice("tu"))
        case 8:
            story.commit(
                name, choice.randrange(1000), generation_id=-1, member_id="", retention_ms=choice.choice((-1, 5))
            )
        case 9:
            story.pass_ms(choice.choice((10, 1_000, 3_000, 12_000, 70_000)))
        case 10:
            if choice.random() < 0.5:
                story.leave(name)
            else:
                client.member_id = ""  # The process starts again.
        case 11 | 12:
            if choice.random() < 0.2:
                story.step(TopicDeleted(choice.choice("tu"), UUID(int=1)))
            else:
                cooperate(story, choice)


def cooperate(story: Story, choice: random.Random) -> None:
    """Everybody does what a sound client does, until there is an assignment."""
    for name in CLIENTS:
        client = story.client(name, instance_id=name if name.startswith("S") else None)
        if client.member_id not in getattr(story.shard.groups.get(story.group), "members", ()):
            client.member_id = ""  # It was told that it is unknown, and starts again.
        if choice.random() < 0.8:
            story.enter(name, protocols=(("range", b"topics"), ("sticky", b"")))
    story.pass_ms(9_500)
    for name in CLIENTS:
        if story.clients[name].protocol_name is not None:
            story.sync(name, {other: f"{other}-{choice.randrange(9)}".encode() for other in story.clients})


@pytest.mark.parametrize(
    "seed",
    [
        *range(2),
        *(pytest.param(seed, marks=pytest.mark.lengthy("random walks beside a model")) for seed in range(2, 15)),
    ],
)
def test_replay_gives_the_state_that_was(seed: int) -> None:
    print(f"seed {seed}")
    choice = random.Random(seed)
    story = Story(seed=seed)
    crowds = 0
    for _ in range(150):
        act(story, choice)
        now = settled(story.shard)
        again = settled(replayed(story.records))
        assert again["offsets"] == now["offsets"]
        groups_again = again["groups"]
        assert isinstance(groups_again, dict)
        assert isinstance(now["groups"], dict)
        for group_id, value in now["groups"].items():
            assert groups_again[group_id] == value
        crowds += any(len(value.members) > 1 for value in now["groups"].values())
    assert crowds > 3, "the history was too quiet to prove anything"


@pytest.mark.parametrize("seed", range(10))
def test_a_restart_anywhere_leaves_a_group_that_works(seed: int) -> None:
    print(f"seed {seed}")
    choice = random.Random(seed)
    story = Story(seed=seed)
    for _ in range(choice.randrange(100)):
        act(story, choice)
    offsets = settled(story.shard)["offsets"]
    generation = max([0, *(value.generation for value in settled(story.shard)["groups"].values())])  # type: ignore[attr-defined]
    story.restart()
    assert settled(story.shard)["offsets"] == offsets
    for client in story.clients.values():
        client.member_id = ""
    story.enter("new")
    seconds = 0
    while story.clients["new"].generation_id == -1:
        story.pass_ms(1_000)
        seconds += 1
        assert seconds < 100, "the members of old are gone, nothing can hold the group up"
    story.sync("new", {"new": b"all"})
    assert story.clients["new"].assignment == b"all"
    assert story.clients["new"].generation_id > generation


def test_the_same_history_gives_the_same_records() -> None:
    def run() -> list[CoordinatorRecord]:
        story = Story(seed=5)
        choice = random.Random(5)
        for _ in range(200):
            act(story, choice)
        return story.records

    assert run() == run()


def test_a_compacted_log_gives_the_same_state() -> None:
    story = Story(seed=3)
    choice = random.Random(3)
    for _ in range(300):
        act(story, choice)
    last = {record.key: index for index, record in enumerate(story.records)}
    compacted = [record for index, record in enumerate(story.records) if last[record.key] == index]
    assert len(compacted) < len(story.records) / 3
    assert settled(replayed(compacted)) == settled(replayed(story.records))


def test_a_group_tombstone_takes_the_group_and_leaves_the_offsets() -> None:
    story = Story()
    story.enter("A")
    story.pass_ms(3_000)
    story.sync("A", {"A": b"p0"})
    story.commit("A", 8)
    shard = replayed(
        [*story.records, CoordinatorRecord(encode_coordinator_key(GroupMetadataKey(group="orders")), None)]
    )
    assert shard.groups["orders"].protocol_type is None
    assert shard.offsets.get("orders", "t", 0) is not None


def test_records_of_other_kinds_are_stepped_over() -> None:
    key = encode_coordinator_key(StreamsGroupMetadataKey(group_id="streams"))
    value = encode_coordinator_value(StreamsGroupMetadataValue(epoch=3))
    shard = replayed([CoordinatorRecord(key, value), CoordinatorRecord(b"\x7f\xff later kind", b"\x00\x00")])
    assert shard.groups == {}


def test_offsets_of_a_transaction_count_from_its_commit_marker_on() -> None:
    def batch(producer_id: int, offset: int) -> bytes:
        key, value = offset_commit_record("g", "t", producer_id, OffsetCommitValue(offset=offset))
        return encode_batch([BatchRecord(key=key, value=value)], producer_id=producer_id, transactional=True)

    def marker(producer_id: int, kind: int) -> bytes:
        key = bytes([0, 0, 0, kind])
        record = BatchRecord(key=key, value=bytes(6))
        return encode_batch([record], producer_id=producer_id, transactional=True, control=True)

    shard = GroupShard(GroupConfig(), random.Random(0))
    for raw in (batch(1, 10), batch(2, 20), batch(3, 30), marker(1, 1), marker(2, 0)):
        shard.load(replay(decode_batch(raw)))
    assert [shard.offsets.get("g", "t", producer_id) for producer_id in (2, 3)] == [None, None]
    committed = shard.offsets.get("g", "t", 1)
    assert committed is not None
    assert committed.offset == 10


def test_the_bytes_are_kafkas() -> None:
    """Keys and values as Kafka 4.3 writes them: type 1 with value version 4, type 2 with value version 3."""
    story = Story(group="g")
    story.enter("A", protocols=(("range", b"\x00\x01"),))
    story.pass_ms(3_000)
    story.sync("A", {"A": b"\x07"})
    story.commit("A", 5, metadata="m")
    member_id = story.clients["A"].member_id.encode()
    now = story.shard.offsets.get("g", "t", 0)
    assert now is not None
    group, offset = story.records[-2:]
    assert offset.key == bytes.fromhex("0001 0001 67 0001 74 00000000")
    assert offset.value == (
        bytes.fromhex("0004 0000000000000005 00000004 02 6d") + now.commit_timestamp.to_bytes(8, "big") + b"\x00"
    )
    stable_at = story.shard.groups["g"].state_timestamp_ms
    assert group.key == bytes.fromhex("0002 0001 67")
    assert group.value == b"".join(
        (
            bytes.fromhex("0003 0008") + b"consumer",
            bytes.fromhex("00000001 0005") + b"range",
            len(member_id).to_bytes(2, "big") + member_id,
            stable_at.to_bytes(8, "big"),
            bytes.fromhex("00000001"),
            len(member_id).to_bytes(2, "big") + member_id,
            bytes.fromhex("ffff 0001 41 000a") + b"/127.0.0.1",
            bytes.fromhex("0000ea60 00002710 00000002 0001 00000001 07"),
        )
    )
    assert group == group_metadata_record(story.shard.groups["g"])
