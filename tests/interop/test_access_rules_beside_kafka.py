"""The authorizer decides as Apache Kafka's StandardAuthorizer does: the same random ACLs, the same rights.

Kafka shows its decisions in the authorized operations of Metadata, and in who gets a producer id. Everything is open
that no ACL covers, because the client that changes ACLs is the one whose rights are compared.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing

import pytest
from bench.brokers import Broker
from tests.cli.conftest import CommandLine
from tests.clients.client import until
from tests.clients.kafka_server import running_kafka

from strandline.cli.acl.access import create_acls, delete_acls, read_acls
from strandline.cli.acl.deciding import AuthorizerConfig, authorizer_of
from strandline.cli.common.client import Cluster
from strandline.cli.common.failures import CommandFailed
from strandline.client.connection import BrokerConnection
from strandline.codec.messages.init_producer_id_request import InitProducerIdRequest
from strandline.codec.messages.init_producer_id_response import InitProducerIdResponse
from strandline.codec.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from strandline.codec.messages.metadata_response import MetadataResponse
from strandline.config.security.authorizer_settings import STANDARD_AUTHORIZER
from strandline.errors import ErrorCode, RequestError
from strandline.security.acl.access_rule import Acl, AclFilter, check_acl
from strandline.security.acl.kinds import (
    CLUSTER_NAME,
    SUPPORTED,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from strandline.security.principal import ANONYMOUS

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(300)]

SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "false",
}
TOPICS = ("a", "ab", "abc", "abd", "b", "hardcode")
NAMES = (*TOPICS, "*", "h", "x")
TOPIC_OPERATIONS = [each for each in Operation if SUPPORTED[ResourceType.TOPIC] >> each & 1]
OF_CLUSTER = [
    Acl(ResourceType.CLUSTER, PatternType.LITERAL, CLUSTER_NAME, str(ANONYMOUS), "*", operation, Permission.ALLOW)
    for operation in (Operation.ALTER, Operation.CLUSTER_ACTION, Operation.CREATE, Operation.DESCRIBE)
]
"""All that the test does with the cluster. IDEMPOTENT_WRITE is left out, so that a producer needs a topic."""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_kafka(tmp_path_factory, SETTINGS) as broker:
        for topic in TOPICS:
            broker.create_topic(topic, 1)
        create_acls(Cluster(broker.bootstrap, {}), OF_CLUSTER)
        yield broker


def random_acl(rng: random.Random) -> Acl:
    return Acl(
        ResourceType.TOPIC,
        rng.choice((PatternType.LITERAL, PatternType.PREFIXED)),
        rng.choice(NAMES),
        rng.choice((str(ANONYMOUS), str(ANONYMOUS), "User:*", "User:bob")),
        rng.choice(("*", "127.0.0.1", "10.0.0.1")),
        rng.choice((*TOPIC_OPERATIONS, Operation.ALL)),
        rng.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_same_rights_by_the_same_acls(kafka: Broker, seed: int) -> None:
    rng = random.Random(seed)
    cluster = Cluster(kafka.bootstrap, {})
    topics = AclFilter(resource_type=ResourceType.TOPIC)
    with closing(BrokerConnection("127.0.0.1", kafka.port, client_id="test", timeout_s=30.0)) as connection:
        for _ in range(40):
            old = read_acls(cluster, topics)
            if old:
                delete_acls(cluster, old)
            acls = {random_acl(rng) for _ in range(rng.choice((1, 2, 4, 8, 20)))}
            create_acls(cluster, sorted(acls))
            until("the broker has the ACLs", lambda acls=acls: set(read_acls(cluster, topics)) == acls)
            assert rights_of_kafka(connection) == our_rights([*acls, *OF_CLUSTER]), acls


def rights_of_kafka(connection: BrokerConnection) -> tuple[dict[str | None, int | None], bool]:
    """Return the operations on each topic, None where it is hidden, and whether a producer gets an id."""
    asked = [MetadataRequestTopic(name=name) for name in TOPICS]
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=False, include_topic_authorized_operations=True)
    answer = connection.ask(request, MetadataResponse)
    fields = {
        topic.name: None
        if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        else topic.topic_authorized_operations
        for topic in answer.topics
    }
    producer = connection.ask(
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), InitProducerIdResponse
    )
    # The first ids are loaded when a client asks for them, which it may.
    allowed = (0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert producer.error_code in (*allowed, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return fields, producer.error_code in allowed


def our_rights(acls: list[Acl]) -> tuple[dict[str | None, int | None], bool]:
    deciding = authorizer_of(acls, AuthorizerConfig(allows_everyone=True))
    rights = deciding.rights_of(ANONYMOUS, "127.0.0.1")
    fields = {
        name: rights.operations(ResourceType.TOPIC, name)
        if rights.allows(Operation.DESCRIBE, ResourceType.TOPIC, name)
        else None
        for name in TOPICS
    }
    may_write = rights.allows(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME) or rights.allows_any(
        Operation.WRITE, ResourceType.TOPIC
    )
    return fields, may_write


def test_the_commands_work_against_kafka(kafka: Broker) -> None:
    cli = CommandLine(kafka.bootstrap)
    cli.ok("acl", "grant", "--user", "billing", "--read", "orders.*", "--group", "billing")
    cli.ok("acl", "grant", "--user", "eve", "--topic", "*", "--operation", "all", "--deny", "--host", "10.0.0.1")

    def is_listed() -> bool:
        found = cli.ok("acl", "list", "--user", "billing", "--user", "eve", "--json").objects
        return [(each["name"], each["permission"]) for each in found] == [
            ("orders.", "ALLOW"),
            ("billing", "ALLOW"),
            ("*", "DENY"),
        ]

    until("the broker has the ACLs", is_listed)
    asked = ("acl", "explain", "--user", "billing", "--topic", "orders.eu", "--operation")
    allowed = cli.ok(*asked, "read")
    assert allowed.lines == ["allowed: an ACL allows User:billing READ on every topic that begins with 'orders.'"]
    assert "the brokers do not say who their super users are" in allowed.stderr
    assert cli.run(*asked, "write").status == 5
    assert len(cli.ok("acl", "revoke", "--user", "billing", "--yes").lines) == 2
    assert len(cli.ok("acl", "revoke", "--user", "eve", "--deny", "--yes").lines) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"resource_type": 99},
        {"operation": 99},
        {"name": ""},
        {"principal": "alice"},
        {"resource_type": ResourceType.CLUSTER},
    ],
)
def test_the_same_acls_are_rejected(kafka: Broker, change: dict[str, object]) -> None:
    """ANY and MATCH are not among them: Kafka meets an exception of its own, and answers UNKNOWN_SERVER_ERROR."""
    bad = random_acl(random.Random(0))._replace(**change)
    with pytest.raises(RequestError) as ours:
        check_acl(bad)
    with pytest.raises(CommandFailed, match=ErrorCode(ours.value.code).name):
        create_acls(Cluster(kafka.bootstrap, {}), [bad])
