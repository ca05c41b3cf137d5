"""More partitions for a topic: what is refused, and that the records give the image that was meant."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.unit.quorum.test_controller import Cluster

from strandline.errors import ErrorCode, RequestError
from strandline.quorum.controller.controller import PARTITIONS_PER_REQUEST_MAX
from strandline.quorum.controller.new_partitions import MorePartitions
from strandline.quorum.controller.new_topics import NewTopic
from strandline.quorum.image.cluster_image import fold


def a_cluster(brokers: int = 3) -> Cluster:
    cluster = Cluster(brokers)
    cluster.create(NewTopic("orders", 2, 2), NewTopic("payments", 1, 1))
    cluster.create_offsets_topic()
    return cluster


def add(cluster: Cluster, *asked: MorePartitions, validate_only: bool = False) -> list[ErrorCode]:
    records, outcomes = cluster.controller.create_partitions(asked, validate_only=validate_only)
    cluster.write(records)
    return [ErrorCode(outcome.code) if isinstance(outcome, RequestError) else ErrorCode.NONE for outcome in outcomes]


def test_new_partitions_have_as_many_replicas_as_the_old_ones() -> None:
    cluster = a_cluster()
    version = cluster.image.topics["orders"].version
    cluster.image.topics["orders"].answers["kept"] = b"an answer of two partitions"
    assert add(cluster, MorePartitions("orders", 7)) == [ErrorCode.NONE]
    topic = cluster.image.topics["orders"]
    assert len(topic.partitions) == 7
    for partition in topic.partitions[2:]:
        assert len(set(partition.replicas)) == 2
        assert (partition.leader, partition.isr) == (partition.replicas[0], partition.replicas)
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
    assert topic.version > version
    assert not topic.answers, "answers that were kept would hide the new partitions"
    assert fold(cluster.log) == cluster.image


def test_an_explicit_assignment_is_followed() -> None:
    cluster = a_cluster()
    assert add(cluster, MorePartitions("orders", 4, [[3, 1], [2, 3]])) == [ErrorCode.NONE]
    assert [partition.replicas for partition in cluster.image.topics["orders"].partitions[2:]] == [[3, 1], [2, 3]]


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code"),
    [
        ("orders", 2, None, ErrorCode.INVALID_PARTITIONS),
        ("orders", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("orders", -1, None, ErrorCode.INVALID_PARTITIONS),
        ("missing", 5, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a/b", 5, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("__consumer_offsets", 60, None, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("orders", 4, [[1, 2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 3, [[1, 2], [1, 2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 3, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 3, [[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 3, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 3, [[1, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 3, [[1, 9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", PARTITIONS_PER_REQUEST_MAX + 3, None, ErrorCode.POLICY_VIOLATION),
    ],
)
def test_what_is_refused_changes_nothing(
    name: str, count: int, assignments: Sequence[Sequence[int]] | None, code: ErrorCode
) -> None:
    cluster = a_cluster()
    written = len(cluster.log)
    assert add(cluster, MorePartitions(name, count, assignments)) == [code]
    assert len(cluster.log) == written


def test_one_bad_topic_spoils_no_other_and_one_that_stands_twice_is_refused() -> None:
    cluster = a_cluster()
    asked = [MorePartitions("orders", 3), MorePartitions("payments", 1), MorePartitions("orders", 4)]
    assert add(cluster, *asked) == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REQUEST,
    ]
    assert add(cluster, MorePartitions("missing", 3), MorePartitions("payments", 2)) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
    ]


def test_validate_only_writes_nothing_and_decides_nothing() -> None:
    cluster = a_cluster()
    for _ in range(2):
        assert add(cluster, MorePartitions("orders", 5), validate_only=True) == [ErrorCode.NONE]
    assert len(cluster.image.topics["orders"].partitions) == 2
    assert add(cluster, MorePartitions("orders", 5)) == [ErrorCode.NONE]


def test_two_requests_one_behind_the_other_are_told_apart_before_the_first_is_on_disk() -> None:
    cluster = a_cluster()
    first, _ = cluster.controller.create_partitions([MorePartitions("orders", 3)])
    second, (outcome,) = cluster.controller.create_partitions([MorePartitions("orders", 3)])
    assert (len(first), second) == (1, [])
    assert outcome is not None
    assert outcome.code == ErrorCode.INVALID_PARTITIONS
    # The write fails: the controller is what the log says, and the next request may have its partitions.
    cluster.controller.revert(cluster.image)
    assert add(cluster, MorePartitions("orders", 3)) == [ErrorCode.NONE]
