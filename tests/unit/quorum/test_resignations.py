"""A leader that resigns makes way for the next in-sync replica; the in-sync set stays."""

from __future__ import annotations

import pytest
from tests.unit.quorum.test_controller import Cluster

from strandline.codec.messages.alter_partition_request import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from strandline.codec.messages.resign_leadership_request import (
    ResignedPartition,
    ResignedTopic,
    ResignLeadershipRequest,
)
from strandline.codec.messages.resign_leadership_response import ResignedPartitionResult
from strandline.errors import ErrorCode, RequestError
from strandline.quorum.controller.new_topics import NewTopic
from strandline.quorum.image.cluster_image import PartitionImage


def a_cluster(brokers: int, replicas: int) -> tuple[Cluster, PartitionImage]:
    cluster = Cluster(brokers)
    cluster.create(NewTopic("orders", 1, replicas))
    return cluster, now(cluster)


def now(cluster: Cluster) -> PartitionImage:
    return cluster.image.topics["orders"].partitions[0]


def resign(
    cluster: Cluster, broker_id: int, leader_epoch: int, *, index: int = 0, broker_epoch: int | None = None
) -> ResignedPartitionResult:
    epoch = cluster.image.brokers[broker_id].epoch if broker_epoch is None else broker_epoch
    topic = ResignedTopic(cluster.image.topics["orders"].id, [ResignedPartition(index, leader_epoch)])
    request = ResignLeadershipRequest(broker_id, epoch, [topic])
    [(records, (_, result))] = cluster.controller.decide_resignations(request)
    cluster.write(records)
    assert bool(records) == (result.error_code == ErrorCode.NONE)
    return result


def test_the_next_replica_leads_and_the_in_sync_set_stays() -> None:
    cluster, partition = a_cluster(3, 3)
    isr, ring = list(partition.isr), list(partition.replicas)
    leaders = [partition.leader]
    for _ in range(3):
        result = resign(cluster, partition.leader, partition.leader_epoch)
        partition = now(cluster)
        assert (result.error_code, result.leader_id) == (ErrorCode.NONE, partition.leader)
        assert result.leader_epoch == partition.leader_epoch
        leaders.append(partition.leader)
    assert leaders == [*ring, ring[0]], "each is asked once before the first is asked again"
    assert partition.isr == isr
    assert partition.leader_epoch == 3


def test_who_is_alone_in_sync_goes_on_leading() -> None:
    cluster, partition = a_cluster(3, 1)
    result = resign(cluster, partition.leader, partition.leader_epoch)
    assert result.error_code == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert now(cluster).leader_epoch == 0


def test_a_replica_that_is_not_in_sync_never_leads() -> None:
    cluster, partition = a_cluster(3, 3)
    first, _, third = partition.replicas
    brokers = cluster.image.brokers
    asked = PartitionData(0, 0, [], [BrokerState(each, brokers[each].epoch) for each in (first, third)])
    topics = [TopicData(cluster.image.topics["orders"].id, [asked])]
    [(records, _)] = cluster.controller.decide_in_sync_changes(
        AlterPartitionRequest(first, brokers[first].epoch, topics), version=3
    )
    cluster.write(records)
    assert now(cluster).isr == [first, third]
    assert resign(cluster, first, now(cluster).leader_epoch).leader_id == third


@pytest.mark.parametrize(
    ("epoch", "index", "code"),
    [
        (1, 0, ErrorCode.NOT_CONTROLLER),
        (-1, 0, ErrorCode.FENCED_LEADER_EPOCH),
        (0, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_comes_late_or_names_nothing_changes_nothing(epoch: int, index: int, code: ErrorCode) -> None:
    cluster, partition = a_cluster(3, 3)
    assert resign(cluster, partition.leader, epoch, index=index).error_code == code
    assert now(cluster).leader_epoch == 0


def test_only_the_leader_resigns() -> None:
    cluster, partition = a_cluster(3, 3)
    assert resign(cluster, partition.replicas[1], 0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_broker_of_an_earlier_life_is_refused() -> None:
    cluster, partition = a_cluster(3, 3)
    with pytest.raises(RequestError) as caught:
        resign(cluster, partition.leader, 0, broker_epoch=-5)
    assert caught.value.code == ErrorCode.STALE_BROKER_EPOCH
