"""Requests for the controller, sent to any node of a small cluster; and envelopes that should not have been sent."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.broker.small_cluster import CLIENT_PORT, CONTROLLER_PORT, SmallCluster

from strandline.broker.kraft.controller_channel import ControllerChannel
from strandline.broker.network import forwarding
from strandline.broker.network.channel import Channel
from strandline.broker.network.routes import BROKER, CONTROLLER, routes
from strandline.codec.message import Message
from strandline.codec.message_codec import encode
from strandline.codec.messages import (
    alter_configs_request,
    create_topics_request,
    incremental_alter_configs_request,
)
from strandline.codec.messages.access_control_entry_record import AccessControlEntryRecord
from strandline.codec.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from strandline.codec.messages.api_versions_request import ApiVersionsRequest
from strandline.codec.messages.create_acls_request import AclCreation, CreateAclsRequest
from strandline.codec.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from strandline.codec.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from strandline.codec.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from strandline.codec.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from strandline.codec.messages.elect_leaders_request import ElectLeadersRequest
from strandline.codec.messages.envelope_request import EnvelopeRequest
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.codec.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from strandline.codec.messages.update_features_request import UpdateFeaturesRequest
from strandline.errors import ErrorCode
from strandline.quorum.image.cluster_image import RESOURCE_BROKER, RESOURCE_BROKER_LOGGER, RESOURCE_TOPIC
from strandline.runtime import loggers
from strandline.security.acl.authorizer import Authorizer
from strandline.security.acl.kinds import Operation, PatternType, Permission, ResourceType
from strandline.security.principal import ANONYMOUS, ANONYMOUS_SESSION, encode_session

PRINCIPAL = encode_session(ANONYMOUS_SESSION)


def new_topic(name: str, **fields: Any) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], **{"timeout_ms": 10_000, **fields})


@pytest.fixture
def cluster() -> SmallCluster:
    cluster = SmallCluster()
    cluster.start()
    return cluster


@pytest.fixture
def logger() -> Iterator[str]:
    name = "strandline.broker"
    yield name
    loggers.set_level(name, None)


@pytest.mark.parametrize("node_id", [1, 2, 3])
@pytest.mark.parametrize("version", [2, 5, 7])
def test_any_node_creates_and_deletes_topics(node_id: int, version: int) -> None:
    cluster = SmallCluster()
    cluster.start()
    created = cluster.ask(new_topic("a"), version, node_id=node_id)
    assert [(each.name, each.error_code) for each in created.topics] == [("a", 0)]
    again = cluster.ask(new_topic("a"), version, node_id=node_id)
    assert [each.error_code for each in again.topics] == [ErrorCode.TOPIC_ALREADY_EXISTS]
    more = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a", count=3, assignments=None)], timeout_ms=1000)
    assert [each.error_code for each in cluster.ask(more, 3, node_id=node_id).results] == [0]
    cluster.run(1)
    assert all(len(member.image.topics["a"].partitions) == 3 for member in cluster.members)
    deleted = cluster.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="a")], timeout_ms=1000), 6, node_id=node_id)
    assert [each.error_code for each in deleted.responses] == [0]


@pytest.mark.parametrize("node_id", [1, 2, 3])
@pytest.mark.parametrize("version", [1, 2, 3])
def test_any_node_creates_and_deletes_acls(cluster: SmallCluster, node_id: int, version: int) -> None:
    for member in cluster.members:
        member.authorizer = Authorizer(super_users=frozenset({ANONYMOUS}), allows_everyone=False)
    creations = [
        AclCreation(
            resource_type=2,
            resource_name=name,
            resource_pattern_type=3,
            principal="User:alice",
            host="*",
            operation=3,
            permission_type=3,
        )
        for name in ("a", "", "b")
    ]
    created = cluster.ask(CreateAclsRequest(creations=creations), version, node_id=node_id)
    assert [each.error_code for each in created.results] == [0, ErrorCode.INVALID_REQUEST, 0]
    cluster.run(1)
    assert all(len(member.image.kept.of_kind("access")) == 2 for member in cluster.members)
    everything = DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    deleted = cluster.ask(DeleteAclsRequest(filters=[everything]), version, node_id=node_id)
    assert [len(each.matching_acls) for each in deleted.filter_results] == [2]
    cluster.elect(None)
    late = cluster.ask(CreateAclsRequest(creations=creations), version, node_id=node_id)
    assert [each.error_code for each in late.results] == [ErrorCode.REQUEST_TIMED_OUT] * 3
    late = cluster.ask(DeleteAclsRequest(filters=[everything]), version, node_id=node_id)
    assert [each.error_code for each in late.filter_results] == [ErrorCode.REQUEST_TIMED_OUT]


def test_every_forwarded_api_gets_an_answer_through_another_node(cluster: SmallCluster) -> None:
    """Empty requests: what each of them answers by itself, it answers through a broker, too."""
    for route in routes(BROKER).values():
        # There is no quorum here that could be described.
        if route.is_forwarded and route.name != "DescribeQuorum":
            request: Any = route.load().request_class()
            for version in range(route.version_min, route.version_max + 1):
                direct = cluster.ask(request, version, node_id=1)
                assert cluster.ask(request, version, node_id=2) == direct, (route.name, version)


def test_the_clients_other_requests_are_answered_in_order(cluster: SmallCluster) -> None:
    order: list[str] = []
    cluster.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3, node_id=2)
    channel = next(iter(cluster._channels.values()))
    cluster.elect(None)
    channel.ask(new_topic("a"), 7, lambda *_: order.append("create"), timeout_s=60)
    channel.ask(MetadataRequest(topics=[]), 12, lambda *_: order.append("metadata"), timeout_s=60)
    cluster.run(2)
    assert not order
    cluster.elect(3)
    cluster.run(2)
    assert order == ["create", "metadata"]


def test_without_a_controller_a_request_waits_for_its_time_and_is_told(cluster: SmallCluster) -> None:
    cluster.elect(None)
    began = cluster.loop.now
    answer = cluster.ask(new_topic("a", timeout_ms=5_000), 7, node_id=2)
    assert [each.error_code for each in answer.topics] == [ErrorCode.REQUEST_TIMED_OUT]
    assert 5 <= cluster.loop.now - began < 6
    features = cluster.ask(UpdateFeaturesRequest(timeout_ms=1_000), 1, node_id=2)
    assert features.error_code == ErrorCode.REQUEST_TIMED_OUT
    cluster.elect(2)
    assert [each.error_code for each in cluster.ask(new_topic("a"), 7, node_id=3).topics] == [0]


def timed(timeout_ms: int) -> list[tuple[Message, int]]:
    """A request of each kind that says how long it may take, and its newest version."""
    delete = DeleteTopicsRequest(topics=[DeleteTopicState(name="there")], timeout_ms=timeout_ms)
    grow = CreatePartitionsTopic(name="there", count=3, assignments=None)
    moved = ReassignableTopic(name="there", partitions=[ReassignablePartition(partition_index=0, replicas=[2])])
    return [
        (new_topic("a", timeout_ms=timeout_ms), 7),
        (delete, 6),
        (CreatePartitionsRequest(topics=[grow], timeout_ms=timeout_ms), 3),
        (ElectLeadersRequest(topic_partitions=None, timeout_ms=timeout_ms), 2),
        (AlterPartitionReassignmentsRequest(topics=[moved], timeout_ms=timeout_ms), 1),
    ]


def codes(answer: Any) -> set[int]:
    """All error codes of an answer, at whatever depth."""
    found = {int(answer.error_code)} if hasattr(answer, "error_code") else set()
    for field in answer.FIELDS:
        if field.struct is not None:
            for element in getattr(answer, field.name) or ():
                found |= codes(element)
    return found - {0}


@pytest.mark.parametrize("node_id", [1, 2])
@pytest.mark.parametrize("number", range(5))
def test_what_is_not_committed_in_time_is_told_so_at_its_time(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, node_id: int, number: int
) -> None:
    """The active controller has no majority: at that node itself, and through another one."""
    assert codes(cluster.ask(new_topic("there"), 7, node_id=1)) == set()
    cluster.run(1)
    monkeypatch.setattr(cluster[1], "controller_write", lambda records, on_done: None)
    request, version = timed(1_500)[number]
    began = cluster.loop.now
    answer = cluster.ask(request, version, node_id=node_id)
    assert codes(answer) == {ErrorCode.REQUEST_TIMED_OUT}
    assert 1.5 <= cluster.loop.now - began < 2
    soon, version = timed(200)[number]
    began = cluster.loop.now
    assert codes(cluster.ask(soon, version, node_id=node_id)) == {ErrorCode.REQUEST_TIMED_OUT}
    assert 0.2 <= cluster.loop.now - began < 0.5


@pytest.mark.parametrize("node_id", [1, 2])
@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_without_any_time_the_request_is_begun(cluster: SmallCluster, node_id: int, timeout_ms: int) -> None:
    """The client is told at once that it is not finished, as by Apache Kafka, and the controller finishes it."""
    assert codes(cluster.ask(new_topic("a"), 7, node_id=1)) == set()
    for request, version in (
        (new_topic("b", timeout_ms=timeout_ms), 7),
        (DeleteTopicsRequest(topics=[DeleteTopicState(name="a")], timeout_ms=timeout_ms), 6),
    ):
        began = cluster.loop.now
        assert codes(cluster.ask(request, version, node_id=node_id)) == {ErrorCode.REQUEST_TIMED_OUT}, request
        assert cluster.loop.now - began < 0.1
    cluster.run(2)
    assert "b" in cluster[1].image.topics
    assert "a" not in cluster[1].image.topics
    features = UpdateFeaturesRequest(timeout_ms=timeout_ms)
    assert cluster.ask(features, 1, node_id=node_id).error_code == 0, "its timeout is not looked at, as in Kafka"


def test_an_answer_that_comes_too_late_is_not_sent(cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    real = cluster[1].controller_write
    monkeypatch.setattr(
        cluster[1], "controller_write", lambda *write: cluster[1].runtime.call_later(2.0, lambda: real(*write))
    )
    assert codes(cluster.ask(new_topic("a", timeout_ms=1_000), 7, node_id=1)) == {ErrorCode.REQUEST_TIMED_OUT}
    cluster.run(3)
    assert "a" in cluster[1].image.topics
    monkeypatch.undo()
    assert codes(cluster.ask(new_topic("b"), 7, node_id=1)) == set(), "the connection is in order"


def test_a_client_of_a_controller_that_loses_its_office_is_answered_by_the_next(cluster: SmallCluster) -> None:
    told = cluster.ask_later(new_topic("a"), 7, node_id=1)
    assert cluster.loop.run_while(lambda: not cluster[1].pending, within_s=1)
    cluster.elect(None)
    cluster.run(1)
    assert not told, "NOT_CONTROLLER is no answer for a client: any broker takes its request"
    cluster.elect(3)
    assert cluster.loop.run_while(lambda: not told, within_s=5)
    assert codes(told[0][0]) == set()
    assert "a" in cluster[3].image.topics


def test_what_waits_for_a_controller_has_a_limit(cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "WAITING_BYTES_MAX", 1000)
    monkeypatch.setattr(forwarding, "FORWARD_BYTES_MAX", 600)
    large = cluster.ask(new_topic("a" * 700), 7, node_id=2)
    assert [each.error_code for each in large.topics] == [ErrorCode.POLICY_VIOLATION]
    cluster.elect(None)
    held = cluster.ask_later(new_topic("b" * 500, timeout_ms=3000), 7, node_id=2)
    cluster.run(0.1)
    stranger = Channel(cluster.client, cluster.network.of(cluster.client), "node-2", CLIENT_PORT, client_id="x")
    told: list[Any] = []
    stranger.ask(new_topic("c" * 500), 7, lambda response, error: told.append(response), timeout_s=10)
    cluster.run(1)
    assert [each.error_code for each in told[0].topics] == [ErrorCode.REQUEST_TIMED_OUT]
    cluster.run(5)
    assert held
    cluster.elect(1)
    assert [each.error_code for each in cluster.ask(new_topic("d" * 200), 7, node_id=2).topics] == [0], "room again"


@pytest.mark.parametrize("tells", [True, False])
def test_a_controller_that_loses_its_office_meanwhile_is_not_the_last_word(cluster: SmallCluster, tells: bool) -> None:
    told = cluster.ask_later(new_topic("a"), 7, node_id=2)
    # Decided, and not yet committed.
    assert cluster.loop.run_while(lambda: not cluster[1].pending, within_s=1)
    cluster.elect(3, tells=tells)
    assert cluster.loop.run_while(lambda: not told, within_s=10)
    assert [each.error_code for each in told[0][0].topics] == [0]
    assert "a" in cluster[3].image.topics


def test_a_broker_that_knows_the_wrong_controller_asks_again_until_it_knows_better(cluster: SmallCluster) -> None:
    known = [3]
    channel = ControllerChannel(
        cluster.client,
        cluster.network.of(cluster.client),
        local=None,
        where=lambda: (f"node-{known[0]}", CONTROLLER_PORT),
        client_id="test",
    )
    told: list[Any] = []
    channel.ask(new_topic("a"), 7, lambda *answer: told.append(answer), timeout_s=20)
    cluster.run(3)
    assert not told
    assert cluster[3].controller_dispatcher.routes[19].requests > 3
    known[0] = 1
    cluster.run(2)
    ((answer, error),) = told
    assert error is None
    assert [each.error_code for each in answer.topics] == [0]
    # One who never knows better is told in the end, once.
    known[0] = 2
    channel.ask(new_topic("b"), 7, lambda *answer: told.append(answer), timeout_s=5)
    cluster.run(20)
    assert [type(error).__name__ for _, error in told[1:]] == ["TimedOut"]


def test_the_broker_itself_becomes_the_controller_meanwhile(cluster: SmallCluster) -> None:
    cluster.elect(None)
    told = cluster.ask_later(new_topic("a"), 7, node_id=2)
    cluster.run(0.5)
    cluster.elect(2)
    assert cluster.loop.run_while(lambda: not told, within_s=10)
    assert [each.error_code for each in told[0][0].topics] == [0]


def test_a_controller_that_is_not_active_says_so_where_it_is_asked_directly(cluster: SmallCluster) -> None:
    answer = cluster.ask(new_topic("a"), 7, node_id=2, port=CONTROLLER_PORT)
    assert [each.error_code for each in answer.topics] == [ErrorCode.NOT_CONTROLLER]
    for route in routes(CONTROLLER).values():
        if route.for_active:
            request: Any = route.load().request_class()
            for version in range(route.version_min, route.version_max + 1):
                answer = cluster.ask(request, version, node_id=2, port=CONTROLLER_PORT)
                code = getattr(answer, "error_code", None)
                assert code in (None, 0, ErrorCode.NOT_CONTROLLER), route.name


def test_what_each_listener_says_it_serves(cluster: SmallCluster) -> None:
    def served(port: int) -> set[int]:
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        return {each.api_key for each in cluster.ask(request, 4, node_id=1, port=port).api_keys}

    clients, controllers = served(9092), served(CONTROLLER_PORT)
    assert {0, 1, 3, 18, 19, 60} <= clients
    assert not {52, 53, 54, 56, 58, 59, 62, 63, 67, 70} & clients
    assert {18, 19, 20, 33, 37, 44, 56, 57, 58, 62, 63, 67, 70} <= controllers
    assert not {0, 2, 3, 8, 10, 11, 22} & controllers


# Settings, of which some are this node's own


def alteration(*resources: tuple[int, str, dict[str, str]], version: int = 1, **fields: Any) -> Message:
    module: Any = incremental_alter_configs_request
    return incremental_alter_configs_request.IncrementalAlterConfigsRequest(
        resources=[
            module.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[module.AlterableConfig(name=key, value=value) for key, value in settings.items()],
            )
            for kind, name, settings in resources
        ],
        **fields,
    )


def test_loggers_are_set_where_they_are_and_the_rest_by_the_controller(cluster: SmallCluster, logger: str) -> None:
    cluster.ask(new_topic("a"), 7, node_id=1)
    request = alteration(
        (RESOURCE_TOPIC, "a", {"retention.ms": "1000"}),
        (RESOURCE_BROKER_LOGGER, "2", {logger: "DEBUG"}),
        (RESOURCE_TOPIC, "absent", {"retention.ms": "1000"}),
        (RESOURCE_BROKER, "2", {"message.max.bytes": "2000000"}),
        (RESOURCE_BROKER, "3", {"message.max.bytes": "2000000"}),
        (RESOURCE_BROKER_LOGGER, "1", {logger: "DEBUG"}),
    )
    answer = cluster.ask(request, 1, node_id=2)
    assert [(each.resource_type, each.resource_name, each.error_code) for each in answer.responses] == [
        (RESOURCE_TOPIC, "a", 0),
        (RESOURCE_BROKER_LOGGER, "2", 0),
        (RESOURCE_TOPIC, "absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (RESOURCE_BROKER, "2", 0),
        # Not this broker's, as in Kafka.
        (RESOURCE_BROKER, "3", ErrorCode.INVALID_REQUEST),
        (RESOURCE_BROKER_LOGGER, "1", ErrorCode.INVALID_REQUEST),
    ]
    cluster.run(1)
    for member in cluster.members:
        assert member.image.configs[RESOURCE_TOPIC, "a"] == {"retention.ms": "1000"}
        assert member.image.configs[RESOURCE_BROKER, "2"] == {"message.max.bytes": "2000000"}
    assert loggers.levels()[logger] == "DEBUG"


@pytest.mark.parametrize("node_id", [1, 2, 3])
def test_settings_are_changed_as_far_as_the_client_may(cluster: SmallCluster, node_id: int, logger: str) -> None:
    cluster.ask(new_topic("a"), 7, node_id=node_id)
    allowed = [
        (ResourceType.TOPIC, "a", Operation.ALTER_CONFIGS),
        # All are ANONYMOUS here, brokers as well.
        (ResourceType.CLUSTER, "kafka-cluster", Operation.CLUSTER_ACTION),
    ]
    for member in cluster.members:
        member.authorizer = Authorizer(super_users=frozenset(), allows_everyone=False)
        member.authorizer.load(
            AccessControlEntryRecord(
                id=uuid.UUID(int=number),
                resource_type=kind,
                resource_name=name,
                pattern_type=PatternType.LITERAL,
                principal=str(ANONYMOUS),
                host="*",
                operation=operation,
                permission_type=Permission.ALLOW,
            )
            for number, (kind, name, operation) in enumerate(allowed)
        )
    request = alteration(
        (RESOURCE_TOPIC, "a", {"retention.ms": "1000"}),
        (RESOURCE_BROKER, str(node_id), {"max.connections": "7"}),
        (RESOURCE_BROKER_LOGGER, str(node_id), {logger: "DEBUG"}),
    )
    answer = cluster.ask(request, 1, node_id=node_id)
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert {each.resource_type: each.error_code for each in answer.responses} == {
        RESOURCE_TOPIC: 0,
        RESOURCE_BROKER: refused,
        RESOURCE_BROKER_LOGGER: refused,
    }
    assert loggers.levels()[logger] != "DEBUG"


def test_what_concerns_only_this_process_needs_no_controller(cluster: SmallCluster, logger: str) -> None:
    cluster.elect(None)
    answer = cluster.ask(alteration((RESOURCE_BROKER_LOGGER, "2", {logger: "ERROR"})), 0, node_id=2)
    assert [each.error_code for each in answer.responses] == [0]
    assert loggers.levels()[logger] == "ERROR"


def test_replacing_settings_through_another_node(cluster: SmallCluster) -> None:
    cluster.ask(new_topic("a"), 7, node_id=1)
    request = alter_configs_request.AlterConfigsRequest(
        resources=[
            alter_configs_request.AlterConfigsResource(
                resource_type=RESOURCE_TOPIC,
                resource_name="a",
                configs=[alter_configs_request.AlterableConfig(name="retention.ms", value="5")],
            )
        ]
    )
    for version in range(3):
        assert [each.error_code for each in cluster.ask(request, version, node_id=3).responses] == [0]


# Topics that come by themselves


def test_metadata_of_another_node_creates_topics(cluster: SmallCluster) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True)
    (topic,) = cluster.ask(request, 12, node_id=3).topics
    assert (topic.error_code, len(topic.partitions)) == (0, 1), "it is there when the answer leaves"
    bad = MetadataRequest(topics=[MetadataRequestTopic(name="no/such")], allow_auto_topic_creation=True)
    assert cluster.ask(bad, 12, node_id=3).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_offsets_topic_comes_with_the_first_group(cluster: SmallCluster) -> None:
    answer = cluster.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4, node_id=2)
    assert [each.error_code for each in answer.coordinators] == [0]
    assert "__consumer_offsets" in cluster[3].image.topics or cluster.run(1) is None
    assert len(cluster[3].image.topics["__consumer_offsets"].partitions) == 50


def test_without_a_controller_a_missing_topic_is_simply_missing(cluster: SmallCluster) -> None:
    cluster.elect(None)
    request = MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True)
    (topic,) = cluster.ask(request, 12, node_id=3).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Envelopes


def envelope(request: Message, version: int, **fields: Any) -> EnvelopeRequest:
    header = struct.pack(">hhih", request.API_KEY, version, 77, 1) + b"c"
    header += b"\0" if version >= request.FLEXIBLE_FROM else b""
    content = {
        "request_data": header + encode(request, version),
        "request_principal": PRINCIPAL,
        "client_host_address": bytes([127, 0, 0, 1]),
    }
    return EnvelopeRequest(**{**content, **fields})


GOOD = envelope(create_topics_request.CreateTopicsRequest(), 7)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (envelope(GOOD, 0), ErrorCode.INVALID_REQUEST),
        (envelope(MetadataRequest(), 12), ErrorCode.INVALID_REQUEST),
        (envelope(ApiVersionsRequest(), 3), ErrorCode.INVALID_REQUEST),
        (envelope(CreateTopicsRequest(), 7, request_data=b""), ErrorCode.UNSUPPORTED_VERSION),
        (envelope(CreateTopicsRequest(), 7, request_data=b"\0" * 9), ErrorCode.UNSUPPORTED_VERSION),
        (envelope(CreateTopicsRequest(), 7, request_data=struct.pack(">hhih", 19, 7, 1, 30_000)), 35),
        (envelope(CreateTopicsRequest(), 7, request_data=struct.pack(">hhih", 19, 7, 1, -2)), 35),
        (envelope(CreateTopicsRequest(), 7, request_data=struct.pack(">hhih", 19, 7, 1, -1)), 35),
        (envelope(CreateTopicsRequest(), 7, request_data=struct.pack(">hhih", 19, 7, 1, -1) + b"\0\xff"), 35),
        (envelope(CreateTopicsRequest(), 7, request_data=struct.pack(">hhih", 19, 99, 1, -1) + b"\0"), 35),
        (envelope(CreateTopicsRequest(), 7, request_principal=None), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (envelope(CreateTopicsRequest(), 7, request_principal=b""), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (envelope(CreateTopicsRequest(), 7, request_principal=PRINCIPAL[:-2]), 97),
        (envelope(CreateTopicsRequest(), 7, request_principal=b"\0\1" + PRINCIPAL[2:]), 97),
        (envelope(CreateTopicsRequest(), 7, client_host_address=b"12345"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_envelopes_that_are_refused(cluster: SmallCluster, wrong: EnvelopeRequest, code: int) -> None:
    answer = cluster.ask(wrong, 0, node_id=1, port=CONTROLLER_PORT)
    assert (answer.error_code, answer.response_data) == (code, None)


def test_an_envelope_brings_the_answer_as_the_client_would_get_it(cluster: SmallCluster) -> None:
    answer = cluster.ask(GOOD, 0, node_id=1, port=CONTROLLER_PORT)
    assert answer.error_code == 0
    assert answer.response_data[:5] == struct.pack(">ib", 77, 0)
    assert cluster.ask(GOOD, 0, node_id=2, port=CONTROLLER_PORT).error_code == ErrorCode.NOT_CONTROLLER


def test_an_envelope_on_the_listener_of_clients_ends_the_connection(cluster: SmallCluster) -> None:
    told = cluster.ask_later(GOOD, 0, node_id=1)
    cluster.run(1)
    assert [type(error).__name__ for _, error in told] == ["Disconnected"]
    assert cluster[1].dispatcher.limits.refusals["protocol"] == 1
