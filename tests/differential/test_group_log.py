"""Consumer groups in the log: the same story makes the same records as in Apache Kafka, and Kafka's can be loaded."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

from tests.differential.group_log import GROUP, PARTITIONS, PATTERNS, TOPIC, Log, recorded, story

from strandline.codec.internal_records import (
    decode_coordinator_record,
    encode_coordinator_key,
    encode_coordinator_value,
)
from strandline.codec.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from strandline.codec.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from strandline.coordinators.groups.consumer.consumer_group import ConsumerGroup
from strandline.coordinators.groups.events import Append, ConsumerHeartbeat, Loaded, Reply
from strandline.coordinators.groups.group_config import ConsumerSettings, GroupConfig
from strandline.coordinators.groups.group_shard import GroupShard
from strandline.coordinators.groups.topics import FixedTopics, TopicFacts

CHOSEN_BY_THE_BROKER = ("metadata_hash", "assignment_timestamp", "timestamp", "version")


def shard_of(topic_id: uuid.UUID) -> GroupShard:
    config = GroupConfig(consumer=ConsumerSettings(assignment_interval_ms=0))
    return GroupShard(config, Random(1), FixedTopics([TopicFacts(TOPIC, topic_id, PARTITIONS)]))


def our_log(topic_id: uuid.UUID) -> Log:
    shard = shard_of(topic_id)
    shard.step(Loaded(), 1)
    log: Log = []

    def say(
        member_id: str,
        epoch: int,
        *,
        owns: Sequence[int] | None = None,
        names: list[str] | None = None,
        instance_id: str | None = None,
        rack: str | None = None,
        assignor: str | None = None,
    ) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=instance_id,
            rack_id=rack,
            rebalance_timeout_ms=60_000 if epoch == 0 else -1,
            subscribed_topic_names=names,
            server_assignor=assignor,
            topic_partitions=None
            if owns is None
            else [TopicPartitions(topic_id=topic_id, partitions=list(owns))]
            if owns
            else [],
        )
        for effect in shard.step(ConsumerHeartbeat(None, request, 1, "hostile", "/127.0.0.1"), 2):
            if isinstance(effect, Append):
                log.extend(effect.records)
            elif isinstance(effect, Reply):
                assert isinstance(effect.response, ConsumerGroupHeartbeatResponse)
                assert effect.response.error_code == 0, (member_id, epoch, effect.response)

    story(say)
    return log


def plain(log: Iterable[tuple[bytes, bytes | None]], group_id: str) -> list[tuple[str, str]]:
    """The records of a group, in words, without what a broker may choose."""
    found = []
    for key_bytes, value_bytes in log:
        key: Any
        key, value = decode_coordinator_record(key_bytes, value_bytes)
        if key.group_id != group_id:
            continue
        for name in CHOSEN_BY_THE_BROKER:
            if hasattr(value, name):
                setattr(value, name, 0)
        found.append((repr(key), repr(value)))
    return found


def test_the_same_story_makes_the_same_records() -> None:
    topic_id, theirs = recorded()
    assert plain(our_log(topic_id), GROUP) == plain(theirs, GROUP)


def test_groups_that_kafka_wrote_can_be_loaded() -> None:
    topic_id, theirs = recorded()
    shard = shard_of(topic_id)
    shard.load(theirs)
    orders, patterns = shard.groups[GROUP], shard.groups[PATTERNS]
    assert isinstance(orders, ConsumerGroup)
    assert isinstance(patterns, ConsumerGroup)
    assert (orders.state, orders.group_epoch, orders.assignment_epoch) == ("Stable", 5, 5)
    (member,) = orders.members.values()
    assert (member.member_id, member.instance_id, member.member_epoch) == ("c", "i", 5)
    assert member.assigned == {topic_id: {0: 5, 1: 5, 2: 0, 3: 0}}
    assert orders.owners == {topic_id: dict.fromkeys(range(PARTITIONS), "c")}
    assert (patterns.state, patterns.regexes["t.*"].topics) == ("Stable", (TOPIC,))
    assert patterns.subscribed_topic_names == {TOPIC}


def test_what_kafka_wrote_is_written_again_byte_for_byte() -> None:
    for key_bytes, value_bytes in recorded()[1]:
        key, value = decode_coordinator_record(key_bytes, value_bytes)
        assert encode_coordinator_key(key) == key_bytes
        if value is not None and value_bytes is not None:
            version = int.from_bytes(value_bytes[:2], "big")
            assert encode_coordinator_value(value, version) == value_bytes
