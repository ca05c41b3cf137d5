"""Groups as librdkafka's admin client sees them, and subscriptions of unusual size."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.hostile.peer import Peer

import strandline
from strandline.codec.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from strandline.codec.messages.describe_groups_request import DescribeGroupsRequest
from strandline.codec.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from strandline.codec.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from strandline.codec.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from strandline.codec.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from strandline.coordinators.groups.classic.consumer_protocol import encode_subscription
from strandline.errors import ErrorCode
from strandline.local.embedded_broker import EmbeddedBroker

TOPICS_MANY = 10_000
PATIENCE_S = 90.0


@pytest.fixture(scope="module")
def log() -> Iterator[EmbeddedBroker]:
    properties = {
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "3",
        "offsets.retention.check.interval.ms": "100",
    }
    with strandline.embedded(properties=properties) as log:
        log.create_topic("orders", 2)
        yield log


@pytest.fixture
def admin(log: EmbeddedBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": log.bootstrap})


def commit(bootstrap: str, group: str, offset: int = 4) -> None:
    """Somebody keeps a position without being a member."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
    consumer.close()


def found(admin: AdminClient, *, strict: bool = True, **filters: Any) -> dict[str, tuple[str, str]]:
    listing = admin.list_consumer_groups(request_timeout=30, **filters).result()
    assert not strict or not listing.errors
    return {each.group_id: (each.state.name, each.type.name) for each in listing.valid}


def describe(admin: AdminClient, group: str) -> Any:
    return admin.describe_consumer_groups([group], request_timeout=30)[group].result()


def delete(admin: AdminClient, group: str) -> ErrorCode:
    try:
        admin.delete_consumer_groups([group], request_timeout=30)[group].result()
    except KafkaException as error:
        return ErrorCode(error.args[0].code())
    return ErrorCode.NONE


def test_groups_are_listed_described_and_deleted(log: EmbeddedBroker, admin: AdminClient) -> None:
    commit(log.bootstrap, "job")
    assert found(admin)["job"] == ("EMPTY", "CLASSIC")
    assert "job" in found(admin, states={ConsumerGroupState.EMPTY}, types={ConsumerGroupType.CLASSIC})
    assert "job" not in found(admin, states={ConsumerGroupState.STABLE})
    assert "job" not in found(admin, types={ConsumerGroupType.CONSUMER})
    described = describe(admin, "job")
    assert (described.state, described.members) == (ConsumerGroupState.EMPTY, [])
    assert delete(admin, "job") is ErrorCode.NONE
    assert "job" not in found(admin)
    assert delete(admin, "job") is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_a_member_is_described_and_kept(log: EmbeddedBroker, admin: AdminClient, protocol: str) -> None:
    group = f"members-{protocol}"
    settings = {"bootstrap.servers": log.bootstrap, "group.id": group, "client.id": "reader"}
    consumer = Consumer({**settings, "group.protocol": protocol})
    try:
        consumer.subscribe(["orders"])
        while not consumer.assignment():
            consumer.poll(0.05)
        consumer.commit(offsets=[TopicPartition("orders", 1, 7)], asynchronous=False)
        described = describe(admin, group)
        assert described.state is ConsumerGroupState.STABLE
        assert described.type.name == protocol.upper()
        (member,) = described.members
        assert member.client_id == "reader"
        assert {(each.topic, each.partition) for each in member.assignment.topic_partitions} == {
            ("orders", 0),
            ("orders", 1),
        }
        assert found(admin)[group] == ("STABLE", protocol.upper())
        assert delete(admin, group) is ErrorCode.NON_EMPTY_GROUP
    finally:
        consumer.close()
    assert delete(admin, group) is ErrorCode.NONE


def test_ten_thousand_topics_may_be_subscribed(log: EmbeddedBroker) -> None:
    """Of topics that need not exist: a client names what it wants to read."""
    names = [f"a-topic-with-quite-a-long-name-{number}" for number in range(TOPICS_MANY)]
    metadata = encode_subscription(ConsumerProtocolSubscription(topics=[*names, "orders"]), 3)
    join = JoinGroupRequest(
        group_id="many",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )
    with Peer(log.port) as peer:
        joined = peer.ask(join, 3)
        assert joined.error_code == ErrorCode.NONE
        assignments = [
            SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine"),
            # A leader may name whom it likes; who is no member gets nothing.
            *(SyncGroupRequestAssignment(member_id=f"stranger-{n}", assignment=b"theirs") for n in range(100)),
        ]
        sync = SyncGroupRequest(
            group_id="many", generation_id=joined.generation_id, member_id=joined.member_id, assignments=assignments
        )
        assert peer.ask(sync, 3).assignment == b"mine"
        (group,) = peer.ask(DescribeGroupsRequest(groups=["many"]), 5).groups
        (member,) = group.members
        assert (member.member_metadata, member.member_assignment) == (metadata, b"mine")
        topic = OffsetDeleteRequestTopic(name="orders", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
        (answered,) = peer.ask(OffsetDeleteRequest(group_id="many", topics=[topic]), 0).topics
        assert answered.partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_an_offset_that_was_given_a_time_is_forgotten_with_its_group(log: EmbeddedBroker, admin: AdminClient) -> None:
    """As clients of long ago do (OffsetCommit 2-4); nobody else can make one expire within a test."""
    commit(log.bootstrap, "kept")
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=4)
    topics = [OffsetCommitRequestTopic(name="orders", partitions=[partition])]
    with Peer(log.port) as peer:
        answer = peer.ask(OffsetCommitRequest(group_id="brief", retention_time_ms=300, topics=topics), 2)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    deadline = time.monotonic() + PATIENCE_S
    while "brief" in found(admin):
        assert time.monotonic() < deadline, "the offset did not expire"
    assert "kept" in found(admin)


@pytest.mark.slow
def test_groups_of_a_cluster_are_listed_wherever_they_live() -> None:
    """Each broker lists its own; those of a broker that died, another."""
    groups = {f"job-{number}" for number in range(20)}
    with strandline.embedded(nodes=3, properties={"offsets.topic.num.partitions": "6"}) as cluster:
        cluster.create_topic("orders", 2)
        for group in sorted(groups):
            commit(cluster.bootstrap_servers, group)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        assert found(admin).keys() >= groups
        cluster.wait_in_sync("__consumer_offsets")
        cluster.kill(cluster.leader_of("__consumer_offsets"))
        deadline = time.monotonic() + PATIENCE_S
        while not found(AdminClient({"bootstrap.servers": cluster.bootstrap_servers}), strict=False).keys() >= groups:
            assert time.monotonic() < deadline, "groups of a dead broker are listed nowhere"
        for group in sorted(groups):
            assert delete(admin, group) is ErrorCode.NONE
