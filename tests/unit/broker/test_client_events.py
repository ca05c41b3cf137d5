"""A change through any node of a cluster is one event, of the node that the client is connected to."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from tests.unit.broker.small_cluster import SmallCluster

from strandline.broker.audit.client_events import ClientEvents
from strandline.codec.messages.access_control_entry_record import AccessControlEntryRecord
from strandline.codec.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from strandline.codec.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from strandline.codec.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from strandline.errors import ErrorCode
from strandline.security.acl.authorizer import Authorizer
from strandline.security.acl.kinds import Operation, PatternType, Permission, ResourceType
from strandline.security.audit.audit_event import AuditEvent


class Audited:
    """A small cluster with the events of all its nodes."""

    def __init__(self) -> None:
        self.cluster = SmallCluster()
        self.events: list[tuple[int, AuditEvent]] = []
        for member in self.cluster.members:
            node: Any = member
            node.events = ClientEvents(node, lambda event, of=member.node_id: self.events.append((of, event)))
            for dispatcher in (member.dispatcher, member.controller_dispatcher):
                node.events.watch(dispatcher.routes)
        self.cluster.start()

    def restrict(self) -> None:
        """Allow nothing to any client, on all nodes, but what nodes do among themselves."""
        between_nodes = AccessControlEntryRecord(
            id=uuid.UUID(int=1),
            resource_type=ResourceType.CLUSTER,
            resource_name="kafka-cluster",
            pattern_type=PatternType.LITERAL,
            principal="User:ANONYMOUS",
            host="*",
            operation=Operation.CLUSTER_ACTION,
            permission_type=Permission.ALLOW,
        )
        for member in self.cluster.members:
            member.authorizer = Authorizer(super_users=frozenset(), allows_everyone=False)
            member.authorizer.load([between_nodes])
            node: Any = member
            node.events.watch_denials(member.authorizer)

    def told(self) -> list[tuple[int, str, str, str]]:
        return [(of, event.api, event.resource, event.outcome) for of, event in self.events]


def create(*names: str, **fields: Any) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics, **{"timeout_ms": 10_000, **fields})


@pytest.mark.parametrize("node_id", [1, 2, 3])
def test_a_change_is_one_event_wherever_the_controller_is(node_id: int) -> None:
    audited = Audited()
    audited.cluster.ask(create("a", "b"), 7, node_id=node_id)
    audited.cluster.ask(create("a"), 7, node_id=node_id)
    audited.cluster.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="b")], timeout_ms=1000), 6, node_id=node_id)
    assert audited.told() == [
        (node_id, "CreateTopics", "a", "success"),
        (node_id, "CreateTopics", "b", "success"),
        (node_id, "CreateTopics", "a", "failure"),
        (node_id, "DeleteTopics", "b", "success"),
    ]
    event = audited.events[2][1]
    assert (event.error, event.principal, event.listener) == ("TOPIC_ALREADY_EXISTS", "User:ANONYMOUS", "PLAINTEXT")


@pytest.mark.parametrize("node_id", [1, 2, 3])
def test_a_change_that_is_denied_is_one_event(node_id: int) -> None:
    """The controller denies it, and the node of the client tells."""
    audited = Audited()
    audited.restrict()
    answer = audited.cluster.ask(create("a"), 7, node_id=node_id)
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert audited.told() == [(node_id, "CreateTopics", "a", "denied")]


@pytest.mark.parametrize("node_id", [1, 2, 3])
def test_a_topic_of_first_use_is_an_event_of_its_client(node_id: int) -> None:
    audited = Audited()
    request = MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True)
    audited.cluster.ask(request, 9, node_id=node_id)
    assert audited.told() == [(node_id, "Metadata", "new", "success")]
