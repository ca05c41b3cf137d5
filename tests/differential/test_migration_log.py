"""A group that moves between the protocols: the same records as in Apache Kafka, and Kafka's can be loaded too.

In what order records of different keys stand within one change is left to the broker; for each key it is compared.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.differential.group_log import SETTINGS, Log
from tests.differential.migration_log import GROUP, PARTITIONS, TOPIC, Told, recorded, tell

import strandline
from strandline.codec.internal_records import decode_coordinator_record
from strandline.codec.messages.consumer_group_partition_metadata_key import ConsumerGroupPartitionMetadataKey
from strandline.codec.messages.group_metadata_value import GroupMetadataValue
from strandline.coordinators.groups.classic.classic_group import ClassicGroup
from strandline.coordinators.groups.consumer.consumer_group import ConsumerGroup
from strandline.coordinators.groups.group_config import GroupConfig
from strandline.coordinators.groups.group_shard import GroupShard
from strandline.coordinators.groups.topics import FixedTopics, TopicFacts

CHOSEN_BY_THE_BROKER = ("metadata_hash", "assignment_timestamp", "current_state_timestamp")


@pytest.fixture(scope="module")
def ours() -> Told:
    with strandline.embedded(properties=SETTINGS | {"group.initial.rebalance.delay.ms": "0"}) as log:
        return tell(log.port)


def by_key(told: Told) -> dict[str, list[str]]:
    """What each key went through, in words, without what a broker may choose."""
    found: dict[str, list[str]] = {}
    for key_bytes, value_bytes in told.log:
        key: Any
        value: Any
        key, value = decode_coordinator_record(key_bytes, value_bytes)
        if isinstance(value, GroupMetadataValue) and not value.generation:
            # Kafka writes a group down when its first member is on its way, we do when it has a generation.
            continue
        if isinstance(key, ConsumerGroupPartitionMetadataKey) and value is None:
            # Kafka clears away what it wrote before 4.1 even if it is not there.
            continue
        for name in CHOSEN_BY_THE_BROKER:
            if hasattr(value, name):
                setattr(value, name, 0)
        if hasattr(value, "leader"):
            # We write a classic group that has yet to agree on a leader without one; Kafka takes any member for it.
            value.leader = None
        words = [repr(each).replace(told.member_id, "old") for each in (key, value)]
        words = [each.replace(repr(told.topic_id), "the topic") for each in words]
        found.setdefault(words[0], []).append(words[1])
    return found


def test_the_same_story_leaves_the_same_records(ours: Told) -> None:
    assert by_key(ours) == by_key(recorded())


def states(told: Told) -> list[str]:
    """What the group is for whoever loads the log up to each record."""
    found: list[str] = []
    for end in range(1, len(told.log) + 1):
        state = state_of(told, told.log[:end])
        if state not in found[-1:]:
            found.append(state)
    return found


def state_of(told: Told, log: Log) -> str:
    shard = GroupShard(GroupConfig(), Random(0), FixedTopics([TopicFacts(TOPIC, told.topic_id, PARTITIONS)]))
    shard.load(log)
    group = shard.groups.get(GROUP)
    match group:
        case ClassicGroup():
            return f"classic, generation {group.generation_id}, {len(group.members)} member"
        case ConsumerGroup():
            kinds = ["classic" if member.classic else "consumer" for member in group.members.values()]
            return f"consumer, epoch {group.group_epoch}, {group.state}, {' and '.join(kinds)}"
        case _:
            return "none"


def test_each_log_is_loaded_as_the_story_went(ours: Told) -> None:
    for told in (ours, recorded()):
        story = [state for state in states(told) if state != "classic, generation 0, 0 member"]
        assert story[0] == "classic, generation 1, 1 member"
        assert "consumer, epoch 2, Stable, classic and consumer" in story
        assert story[-1] == "classic, generation 2, 1 member"
