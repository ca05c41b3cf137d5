"""Reads the state of a cluster over the protocol: metadata by librdkafka, and what it has no call for by our codec."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from strandline.cli.cluster.state import (
    BrokerState,
    ClusterState,
    DiskState,
    PartitionState,
    QuorumDescription,
    QuorumNode,
    Reassignment,
)
from strandline.cli.common.client import Cluster, admin_api, kafka_api
from strandline.cli.common.conversation import Conversation, converse, error_name, is_spoken, not_spoken
from strandline.cli.common.failures import CommandFailed, ExitCode, Unreachable
from strandline.codec.messages.describe_cluster_request import DescribeClusterRequest
from strandline.codec.messages.describe_cluster_response import DescribeClusterResponse
from strandline.codec.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from strandline.codec.messages.describe_configs_response import DescribeConfigsResponse
from strandline.codec.messages.describe_log_dirs_request import DescribeLogDirsRequest
from strandline.codec.messages.describe_log_dirs_response import DescribeLogDirsResponse
from strandline.codec.messages.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from strandline.codec.messages.describe_quorum_response import DescribeQuorumResponse
from strandline.codec.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from strandline.codec.messages.list_partition_reassignments_response import ListPartitionReassignmentsResponse
from strandline.errors import ErrorCode
from strandline.ids import ZERO_UUID

METADATA_TOPIC = "__cluster_metadata"
MIN_IN_SYNC = "min.insync.replicas"
TOPICS_PER_REQUEST = 100
QUORUM_TIMEOUT_S = 5.0
DISK_TIMEOUT_S = 3.0
"""A broker that is down or hangs does not keep the others from being shown."""
_TOPIC = 2


class _MayNotKnow(CommandFailed):
    """The user lacks the right to know how the quorum is, which says nothing about the quorum."""


def read_state(cluster: Cluster, *, with_disks: bool = False) -> ClusterState:
    """Everything that the commands about a cluster show."""
    admin = cluster.admin()
    with cluster.errors("cannot read the metadata of the cluster"):
        metadata = admin.list_topics(timeout=cluster.timeout_s)
    partitions = _partitions(metadata)
    state = ClusterState(metadata.cluster_id or "", _brokers(metadata), tuple(partitions))
    return completed(cluster, state, with_disks=with_disks)


def completed(cluster: Cluster, state: ClusterState, *, with_disks: bool = False) -> ClusterState:
    """Return a state that has only metadata with everything else that the cluster tells.

    Its partitions are the same object if none of them lacks a replica.
    """
    if is_spoken(cluster):
        state = _told_plainly(cluster, state)
        if with_disks:
            state = replace(state, brokers=tuple(_with_disk(cluster, broker) for broker in state.brokers))
    return replace(state, partitions=_with_minimum(cluster, state.partitions))


def _brokers(metadata: Any) -> tuple[BrokerState, ...]:
    return tuple(BrokerState(each.id, each.host, each.port) for _, each in sorted(metadata.brokers.items()))


def _partitions(metadata: Any) -> list[PartitionState]:
    return [
        PartitionState(
            name,
            partition.id,
            partition.leader if partition.leader >= 0 else None,
            tuple(partition.replicas),
            tuple(partition.isrs),
        )
        for name, topic in sorted(metadata.topics.items())
        for _, partition in sorted(topic.partitions.items())
    ]


def _told_plainly(cluster: Cluster, state: ClusterState) -> ClusterState:
    with conversation_with(cluster) as conversation:
        described = conversation.ask(DescribeClusterRequest(include_fenced_brokers=True), DescribeClusterResponse)
    if described is not None and described.error_code == 0:
        brokers = sorted(described.brokers, key=lambda each: each.broker_id)
        state = replace(
            state,
            cluster_id=described.cluster_id or state.cluster_id,
            brokers=tuple(BrokerState(b.broker_id, b.host, b.port, b.rack, is_up=not b.is_fenced) for b in brokers),
        )
    quorum, failure = quorum_or_failure(cluster)
    state = replace(state, quorum=quorum, quorum_failure=failure)
    if failure is not None:
        # Without a leader of the quorum everything else can still be said, but for what only that leader knows.
        return state
    with conversation_with(cluster) as conversation:
        return replace(state, reassignments=read_reassignments(conversation))


def conversation_with(cluster: Cluster) -> Conversation:
    conversation = converse(cluster)
    if conversation is None:
        raise not_spoken("this cannot be asked")
    return conversation


def quorum_or_failure(cluster: Cluster) -> tuple[QuorumDescription | None, str | None]:
    """Return the quorum, or why it is not well; neither if this user may not know."""
    try:
        return read_quorum(cluster), None
    except _MayNotKnow:
        return None, None
    except CommandFailed as failure:
        return None, failure.message


def read_quorum(cluster: Cluster) -> QuorumDescription | None:
    """Return the quorum as its leader sees it; None where the cluster does not offer DescribeQuorum."""
    timeout_s = min(QUORUM_TIMEOUT_S, cluster.timeout_s)
    with conversation_with(replace(cluster, timeout_s=timeout_s)) as conversation:
        try:
            return _ask_quorum(conversation)
        except Unreachable:
            # A broker passes the question on to the leader, and where there is none it waits for one.
            raise CommandFailed(
                f"the quorum has no leader: no answer within {timeout_s:g} s",
                hint="a majority of the controllers must run; look at their logs",
                code=ExitCode.UNREACHABLE,
            ) from None


def _ask_quorum(conversation: Conversation) -> QuorumDescription | None:
    topic = TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])
    answer = conversation.ask(DescribeQuorumRequest(topics=[topic]), DescribeQuorumResponse)
    if answer is None:
        return None
    found = [partition for each in answer.topics for partition in each.partitions]
    code = answer.error_code or (found[0].error_code if found else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        raise _MayNotKnow(
            "this user may not describe the cluster", hint="it needs DESCRIBE on the cluster: `acl grant`"
        )
    if code:
        raise CommandFailed(
            f"the state of the quorum is unknown ({error_name(code)})",
            hint="a majority of the controllers must run; look at their logs",
        )
    addresses = {
        node.node_id: f"{listener.host}:{listener.port}"
        for node in answer.nodes
        for listener in node.listeners
        # The quorum of one node needs no listener, and then has port 0.
        if listener.port
    }
    (partition,) = found
    nodes = [
        QuorumNode(
            replica.replica_id,
            is_voter,
            replica.log_end_offset,
            replica.last_fetch_timestamp,
            replica.last_caught_up_timestamp,
            addresses.get(replica.replica_id) if is_voter else None,
            str(replica.replica_directory_id) if replica.replica_directory_id != ZERO_UUID else None,
        )
        for is_voter, replicas in ((True, partition.current_voters), (False, partition.observers))
        for replica in replicas
    ]
    # The leader says of itself that it fetched now: so its own clock is known, whatever ours shows.
    of_leader = [node.last_fetch_ms for node in nodes if node.node_id == partition.leader_id and node.last_fetch_ms > 0]
    now_ms = of_leader[0] if of_leader else int(time.time() * 1000)
    return QuorumDescription(
        partition.leader_id, partition.leader_epoch, partition.high_watermark, tuple(nodes), now_ms
    )


def read_reassignments(conversation: Conversation) -> tuple[Reassignment, ...] | None:
    """Return what is being moved; None where the cluster does not offer it or cannot say."""
    answer = conversation.ask(ListPartitionReassignmentsRequest(topics=None), ListPartitionReassignmentsResponse)
    if answer is None or answer.error_code:
        return None
    return tuple(
        Reassignment(
            topic.name,
            each.partition_index,
            tuple(each.replicas),
            tuple(each.adding_replicas),
            tuple(each.removing_replicas),
        )
        for topic in answer.topics
        for each in topic.partitions
    )


def _with_disk(cluster: Cluster, broker: BrokerState) -> BrokerState:
    if not broker.is_up:
        return broker
    try:
        with Conversation(
            broker.host, broker.port, min(DISK_TIMEOUT_S, cluster.timeout_s), cluster.security
        ) as conversation:
            answer = conversation.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    except CommandFailed:
        # Up for the controller and not for us: its disk is shown as unknown.
        return broker
    if answer is None or answer.error_code:
        return broker
    whole = [each for each in answer.results if each.error_code == 0]
    sizes = {
        (topic.name, partition.partition_index): partition.partition_size
        for each in whole
        for topic in each.topics
        for partition in topic.partitions
        if not partition.is_future_key
    }
    knows_room = bool(whole) and all(each.total_bytes >= 0 for each in whole)
    disk = DiskState(
        sum(sizes.values()),
        sum(each.total_bytes for each in whole) if knows_room else None,
        sum(each.usable_bytes for each in whole) if knows_room else None,
        len(answer.results) - len(whole),
        sizes,
    )
    return replace(broker, disk=disk)


def _with_minimum(cluster: Cluster, partitions: tuple[PartitionState, ...]) -> tuple[PartitionState, ...]:
    """`min.insync.replicas` matters only where a replica is missing, so only those topics are asked about."""
    topics = sorted({each.topic for each in partitions if each.missing or each.leader is None})
    if not topics:
        return partitions
    minima = _minima_plainly(cluster, topics) if is_spoken(cluster) else _minima(cluster, topics)
    # Where the setting asks for more than there are, the number of replicas is what Apache Kafka takes.
    return tuple(
        replace(each, in_sync_min=min(minima[each.topic], len(each.replicas))) if each.topic in minima else each
        for each in partitions
    )


def _minima_plainly(cluster: Cluster, topics: list[str]) -> dict[str, int]:
    """Asked of any broker. librdkafka would look for the controller first, and while there is none wait in vain."""
    found: dict[str, int] = {}
    if not topics:
        return found
    with conversation_with(cluster) as conversation:
        for begin in range(0, len(topics), TOPICS_PER_REQUEST):
            asked = [
                DescribeConfigsResource(resource_type=_TOPIC, resource_name=name, configuration_keys=[MIN_IN_SYNC])
                for name in topics[begin : begin + TOPICS_PER_REQUEST]
            ]
            answer = conversation.ask(DescribeConfigsRequest(resources=asked), DescribeConfigsResponse)
            for result in answer.results if answer is not None else ():
                for config in result.configs:
                    if config.name == MIN_IN_SYNC and config.value is not None:
                        found[result.resource_name] = int(config.value)
    return found


def _minima(cluster: Cluster, topics: list[str]) -> dict[str, int]:
    admin, api, kafka = cluster.admin(), admin_api(), kafka_api()
    found: dict[str, int] = {}
    for begin in range(0, len(topics), TOPICS_PER_REQUEST):
        some = topics[begin : begin + TOPICS_PER_REQUEST]
        resources = [api.ConfigResource(api.ResourceType.TOPIC, name) for name in some]
        with cluster.errors("cannot read the settings of topics"):
            for resource, future in admin.describe_configs(resources, request_timeout=cluster.timeout_s).items():
                try:
                    found[resource.name] = int(future.result()[MIN_IN_SYNC].value)
                except kafka.KafkaException as error:
                    # Deleted meanwhile, or unknown: then it stays 1.
                    if error.args[0].name() not in ("UNKNOWN_TOPIC_OR_PART", "_UNSUPPORTED_FEATURE"):
                        raise
    return found


def require_quorum(state: ClusterState) -> None:
    """CommandFailed where nothing can be changed, before a plan is shown that could not be carried out."""
    if state.quorum_failure is not None:
        raise CommandFailed(
            f"nothing can be changed: {state.quorum_failure}",
            hint="a majority of the controllers must run; `strandline cluster health` says more",
            code=ExitCode.UNREACHABLE,
        )
