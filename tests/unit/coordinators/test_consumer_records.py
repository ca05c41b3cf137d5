"""Whatever a consumer group is like, the records of it make the same group, and their tombstones make none."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.coordinators.consumer_story import whole

from strandline.codec.internal_records import encode_coordinator_key, encode_coordinator_value
from strandline.codec.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from strandline.codec.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from strandline.codec.messages.consumer_group_partition_metadata_key import ConsumerGroupPartitionMetadataKey
from strandline.codec.messages.consumer_group_partition_metadata_value import ConsumerGroupPartitionMetadataValue
from strandline.coordinators.groups.classic.classic_group import Protocol
from strandline.coordinators.groups.consumer.consumer_group import (
    ClassicMember,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Partitions,
)
from strandline.coordinators.groups.consumer.records import (
    consumer_group_records,
    consumer_group_tombstones,
    member_tombstones,
)
from strandline.coordinators.groups.consumer.regex_subscriptions import ResolvedRegex
from strandline.coordinators.groups.group_config import GroupConfig
from strandline.coordinators.groups.group_shard import GroupShard

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=6)
EPOCHS = st.integers(0, 9)
TOPIC_IDS = st.uuids()


@st.composite
def groups(draw: st.DrawFn) -> ConsumerGroup:
    group = ConsumerGroup("g")
    group.group_epoch = draw(INT32)
    group.metadata_hash = draw(INT64)
    group.assignment_epoch = draw(INT32)
    group.assignment_timestamp_ms = draw(INT64)
    topic_ids = draw(st.lists(TOPIC_IDS, min_size=1, max_size=3, unique=True))
    free = [(topic_id, index) for topic_id in topic_ids for index in range(6)]
    for number, member_id in enumerate(draw(st.lists(TEXT, max_size=4, unique=True))):
        owned = free[number * 4 : number * 4 + 4]
        member = ConsumerMember(
            member_id,
            instance_id=draw(st.sampled_from((None, f"i{number}"))),
            rack_id=draw(st.none() | TEXT),
            client_id=draw(TEXT),
            client_host=draw(TEXT),
            subscribed_topic_names=draw(st.frozensets(TEXT, max_size=3)),
            subscribed_topic_regex=draw(st.sampled_from(("", "t.*"))),
            rebalance_timeout_ms=draw(INT32),
            server_assignor=draw(st.none() | TEXT),
            classic=draw(st.none() | classic_members()),
            member_epoch=draw(INT32),
            previous_member_epoch=draw(INT32),
            state=draw(st.sampled_from(MemberState)),
            assigned=partitions(owned[:2], draw(EPOCHS)),
            pending_revocation=partitions(owned[2:], draw(EPOCHS)),
        )
        group.add(member)
        group.target[member_id] = {topic_id: [1, 2] for topic_id in topic_ids[: draw(st.integers(0, 2))]}
    if draw(st.booleans()):
        group.regexes["t.*"] = ResolvedRegex(tuple(sorted(draw(st.lists(TEXT, max_size=3)))), draw(INT64), draw(INT64))
    return group


def classic_members() -> st.SearchStrategy[ClassicMember]:
    protocols = st.lists(st.builds(Protocol, TEXT, st.binary(max_size=5)), max_size=2).map(tuple)
    return st.builds(ClassicMember, INT32, protocols)


def partitions(owned: list[tuple[object, int]], epoch: int) -> Partitions:
    found: Partitions = {}
    for topic_id, index in owned:
        found.setdefault(topic_id, {})[index] = epoch  # type: ignore[arg-type]
    return found


def empty_shard() -> GroupShard:
    return GroupShard(GroupConfig(), Random(1))


@pytest.mark.lengthy("many examples, each of them costly")
@settings(max_examples=40, deadline=None)
@given(groups())
def test_records_and_back(group: ConsumerGroup) -> None:
    shard = empty_shard()
    shard.load(consumer_group_records(group))
    loaded = shard.groups["g"]
    assert isinstance(loaded, ConsumerGroup)
    assert whole(loaded) == whole(group)
    assert list(loaded.members) == list(group.members), "effects come in the order of members"
    shard.load(consumer_group_tombstones(group))
    assert not shard.groups


@settings(max_examples=40, deadline=None)
@given(groups())
def test_tombstones_alone_are_nothing(group: ConsumerGroup) -> None:
    """Compaction keeps them longer than what they took away."""
    shard = empty_shard()
    shard.load(consumer_group_tombstones(group))
    for member_id in group.members:
        shard.load(member_tombstones("g", member_id))
    assert not shard.groups


TOPIC_ID = UUID(int=5)


def test_a_coordinator_before_kafka_4_3_wrote_no_assignment_epochs() -> None:
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m")
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=7, assigned_partitions=[TopicPartitions(topic_id=TOPIC_ID, partitions=[3], assignment_epochs=None)]
    )
    shard = empty_shard()
    shard.load([(encode_coordinator_key(key), encode_coordinator_value(value))])
    loaded = shard.groups["g"]
    assert isinstance(loaded, ConsumerGroup)
    assert loaded.members["m"].assigned == {TOPIC_ID: {3: 7}}


def test_a_state_of_a_newer_broker_is_unknown() -> None:
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m")
    shard = empty_shard()
    value = ConsumerGroupCurrentMemberAssignmentValue(member_epoch=7, state=9)
    shard.load([(encode_coordinator_key(key), encode_coordinator_value(value))])
    loaded = shard.groups["g"]
    assert isinstance(loaded, ConsumerGroup)
    assert loaded.members["m"].state is MemberState.UNKNOWN


def test_the_partition_metadata_of_a_coordinator_before_kafka_4_1_goes_with_the_group() -> None:
    key = ConsumerGroupPartitionMetadataKey(group_id="g")
    shard = empty_shard()
    shard.load([(encode_coordinator_key(key), encode_coordinator_value(ConsumerGroupPartitionMetadataValue()))])
    group = shard.groups["g"]
    assert isinstance(group, ConsumerGroup)
    assert encode_coordinator_key(key) in [record.key for record in consumer_group_tombstones(group)]
