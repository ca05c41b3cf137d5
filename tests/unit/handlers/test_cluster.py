"""DescribeCluster, DescribeTopicPartitions and UpdateFeatures over every version of their formats."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.handlers.node_of_one import Context, NodeOfOne, SlowRuntime, ask

from strandline.codec.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from strandline.codec.messages.describe_cluster_request import DescribeClusterRequest
from strandline.codec.messages.describe_cluster_response import DescribeClusterResponse
from strandline.codec.messages.describe_topic_partitions_request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from strandline.codec.messages.describe_topic_partitions_response import DescribeTopicPartitionsResponse
from strandline.codec.messages.feature_level_record import FeatureLevelRecord
from strandline.codec.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from strandline.codec.messages.update_features_response import UpdateFeaturesResponse
from strandline.errors import DiskFailed, ErrorCode
from strandline.handlers import k57_update_features, k60_describe_cluster, k75_describe_topic_partitions
from strandline.quorum.controller.brokers.heartbeats import FENCE
from strandline.quorum.controller.new_topics import NewTopic

# The cluster


def describe(node: NodeOfOne, version: int = 2, **fields: Any) -> DescribeClusterResponse:
    answer = ask(k60_describe_cluster, node, DescribeClusterRequest(**fields), version, DescribeClusterResponse)
    assert isinstance(answer, DescribeClusterResponse)
    return answer


@pytest.mark.parametrize("version", range(3))
def test_the_brokers_and_where_they_are(version: int) -> None:
    node = NodeOfOne()
    node.start_broker(2, rack="cellar")
    node.flush()
    answer = describe(node, version)
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, "a-cluster", 1)
    assert [(each.broker_id, each.host, each.port, each.rack) for each in answer.brokers] == [
        (1, "127.0.0.1", 19092, None),
        (2, "host-2", 9002, "cellar"),
    ]
    assert answer.cluster_authorized_operations == -(2**31)
    assert describe(node, version, include_cluster_authorized_operations=True).cluster_authorized_operations > 0


def test_fenced_brokers_are_named_only_to_who_asks_for_them() -> None:
    node = NodeOfOne()
    node.start_broker(2)
    node.flush()
    epoch = node.image.brokers[2].epoch
    node.image.apply(BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=epoch, fenced=FENCE))
    assert [each.broker_id for each in describe(node).brokers] == [1]
    told = describe(node, include_fenced_brokers=True).brokers
    assert [(each.broker_id, each.port, each.is_fenced) for each in told] == [(1, 19092, False), (2, 9002, True)]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (-1, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_only_brokers_are_described_here(version: int, endpoint_type: int, code: ErrorCode) -> None:
    answer = describe(NodeOfOne(), version, endpoint_type=endpoint_type)
    assert (answer.error_code, answer.brokers) == (code, [])
    assert answer.error_message


# Topics, page by page


def node_with(*topics: NewTopic, **settings: str) -> NodeOfOne:
    node = NodeOfOne(runtime=SlowRuntime(), **settings)
    records, _ = node.controller.create_topics(topics)
    node.controller_write(records, lambda error: None)
    node.flush()
    return node


def page(
    node: NodeOfOne, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    answer = ask(k75_describe_topic_partitions, node, request, 0, DescribeTopicPartitionsResponse)
    assert isinstance(answer, DescribeTopicPartitionsResponse)
    return answer


def content(answer: DescribeTopicPartitionsResponse) -> list[tuple[str | None, int, list[int]]]:
    return [(each.name, each.error_code, [p.partition_index for p in each.partitions]) for each in answer.topics]


def following(answer: DescribeTopicPartitionsResponse) -> tuple[str, int] | None:
    cursor = answer.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


def test_a_topic_is_described() -> None:
    node = node_with(NewTopic("orders", 2))
    (topic,) = page(node, "orders").topics
    assert (topic.topic_id, topic.is_internal) == (node.image.topics["orders"].id, False)
    assert topic.topic_authorized_operations > 0
    described = topic.partitions[1]
    assert (described.leader_id, described.leader_epoch) == (1, 0)
    assert (described.replica_nodes, described.isr_nodes, described.offline_replicas) == ([1], [1], [])
    assert (described.eligible_leader_replicas, described.last_known_elr) == ([], [])


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 7, 8, 2000])
@pytest.mark.parametrize("asked", [(), ("c", "a", "b", "missing", "a")])
def test_pages_follow_each_other_until_all_is_told_once(limit: int, asked: tuple[str, ...]) -> None:
    node = node_with(NewTopic("c", 2), NewTopic("a", 3), NewTopic("b", 3))
    seen: list[tuple[str, int]] = []
    errors: list[str] = []
    cursor: tuple[str, int] | None = None
    for _ in range(20):
        answer = page(node, *asked, limit=limit, cursor=cursor)
        rows = content(answer)
        assert sum(len(indexes) for _, _, indexes in rows) <= limit
        seen += [(name or "", index) for name, _, indexes in rows for index in indexes]
        errors += [name or "" for name, code, _ in rows if code]
        cursor = following(answer)
        if cursor is None:
            break
    assert cursor is None
    assert seen == [(name, index) for name, count in (("a", 3), ("b", 3), ("c", 2)) for index in range(count)]
    assert errors == (["missing"] if asked else [])


def test_the_node_limits_a_page_too_and_no_page_is_empty() -> None:
    node = node_with(NewTopic("a", 5), max_request_partition_size_limit="2")
    assert content(page(node, "a")) == [("a", 0, [0, 1])]
    for senseless in (0, -1):
        assert content(page(node, "a", limit=senseless)) == [("a", 0, [0])]
    assert following(page(node, "a", cursor=("a", 4))) is None


def test_names_that_are_no_topics() -> None:
    node = node_with(NewTopic("a"))
    assert content(page(node, "a", "missing", "b/d")) == [
        ("a", 0, [0]),
        ("b/d", ErrorCode.INVALID_TOPIC_EXCEPTION, []),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
    ]


def test_a_cursor_behind_the_last_partition_is_the_end_of_its_topic() -> None:
    node = node_with(NewTopic("a", 2), NewTopic("b"))
    assert content(page(node, "a", "b", cursor=("a", 9))) == [("a", 0, []), ("b", 0, [0])]


@pytest.mark.parametrize("cursor", [("zz", 0), ("A", 0), ("a", -1)])
def test_a_cursor_that_makes_no_sense_is_refused(cursor: tuple[str, int]) -> None:
    node = node_with(NewTopic("a"))
    assert content(page(node, "a", cursor=cursor)) == [("a", ErrorCode.INVALID_REQUEST, [])]


def test_a_cursor_may_name_a_topic_that_is_gone_when_all_are_asked_for() -> None:
    node = node_with(NewTopic("a"), NewTopic("c"))
    assert content(page(node, cursor=("b", 3))) == [("c", 0, [0])]


# Features


def update(node: NodeOfOne, version: int, *updates: FeatureUpdateKey, **fields: Any) -> UpdateFeaturesResponse:
    request = UpdateFeaturesRequest(feature_updates=list(updates), **fields)
    answer = ask(k57_update_features, node, request, version, UpdateFeaturesResponse)
    assert isinstance(answer, UpdateFeaturesResponse)
    return answer


def node_at(level: int) -> NodeOfOne:
    """A node on the directory of an older Kafka."""
    node = NodeOfOne()
    node.image.apply(FeatureLevelRecord(name="metadata.version", feature_level=level))
    node.controller.revert(node.image)
    return node


@pytest.mark.parametrize("version", range(3))
def test_a_level_is_raised(version: int) -> None:
    node = node_at(20)
    answer = update(node, version, FeatureUpdateKey(feature="metadata.version", max_version_level=30))
    assert (answer.error_code, answer.error_message) == (0, None)
    assert [(each.feature, each.error_code) for each in answer.results] == (
        [("metadata.version", 0)] if version < 2 else []
    )
    assert node.image.features["metadata.version"] == 30


@pytest.mark.parametrize("version", range(3))
def test_one_bad_feature_spoils_all(version: int) -> None:
    node = node_at(20)
    bad = FeatureUpdateKey(feature="streams.version", max_version_level=1)
    good = FeatureUpdateKey(feature="metadata.version", max_version_level=30)
    answer = update(node, version, good, bad)
    assert (answer.error_code, answer.results) == (ErrorCode.INVALID_UPDATE_VERSION, [])
    assert "streams.version" in (answer.error_message or "")
    assert node.image.features["metadata.version"] == 20


def test_validate_only_raises_nothing() -> None:
    node = node_at(20)
    key = FeatureUpdateKey(feature="metadata.version", max_version_level=30)
    assert update(node, 1, key, validate_only=True).error_code == 0
    assert node.image.features["metadata.version"] == 20


def test_version_0_says_in_its_own_way_that_a_level_may_go_down() -> None:
    node = node_at(20)
    down = FeatureUpdateKey(feature="metadata.version", max_version_level=19, allow_downgrade=True)
    assert "cannot be taken back" in (update(node, 0, down).error_message or "")


def test_a_level_that_the_disk_refused() -> None:
    node = node_at(20)
    context = Context(node, 1)
    key = FeatureUpdateKey(feature="metadata.version", max_version_level=30)
    k57_update_features.handle(context, UpdateFeaturesRequest(feature_updates=[key]))
    node.fail(DiskFailed("no space"))
    assert context.answer(UpdateFeaturesResponse).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert node.image.features["metadata.version"] == 20
