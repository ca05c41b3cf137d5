"""ACLs through stock clients: librdkafka's admin client, and Kafka's own tool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.kafka_jars import KafkaUnavailable, kafka_class_path
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from tests.clients.broker import shared_broker
from tests.interop.kafka_tools import Tools
from tests.scenarios.authorized_node import authorized_node

ANY = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    with authorized_node(tmp_path) as bootstrap:
        yield bootstrap


def binding(
    name: str,
    operation: AclOperation = AclOperation.READ,
    *,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
    principal: str = "User:alice",
    permission: AclPermissionType = AclPermissionType.ALLOW,
) -> AclBinding:
    return AclBinding(ResourceType.TOPIC, name, pattern, principal, "*", operation, permission)


def all_acls(admin: AdminClient) -> set[AclBinding]:
    return set(admin.describe_acls(ANY).result())


def test_an_admin_client_creates_describes_and_deletes_acls(bootstrap: str, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    assert all_acls(admin) == set()
    read, write = binding("orders"), binding("orders", AclOperation.WRITE, permission=AclPermissionType.DENY)
    prefixed = binding("ord", pattern=ResourcePatternType.PREFIXED, principal="User:bob")
    for future in admin.create_acls([read, write, prefixed]).values():
        future.result()
    assert all_acls(admin) == {read, write, prefixed}
    matching = AclBindingFilter(
        ResourceType.TOPIC,
        "ordinary",
        ResourcePatternType.MATCH,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    assert set(admin.describe_acls(matching).result()) == {prefixed}
    of_alice = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, "User:alice", None, AclOperation.ANY, AclPermissionType.ANY
    )
    (deleted,) = admin.delete_acls([of_alice]).values()
    assert set(deleted.result()) == {read, write}
    assert all_acls(admin) == {prefixed}


def test_acls_outlive_the_node(tmp_path: Path) -> None:
    with authorized_node(tmp_path) as bootstrap:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        (future,) = admin.create_acls([binding("orders")]).values()
        future.result()
    with authorized_node(tmp_path) as bootstrap:
        assert all_acls(AdminClient({"bootstrap.servers": bootstrap})) == {binding("orders")}


def test_an_acl_that_is_not_valid_is_rejected_with_a_sentence(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    bad, good = binding("orders", principal="alice"), binding("orders")
    futures = admin.create_acls([bad, good])
    with pytest.raises(KafkaException, match="expected for example User:alice"):
        futures[bad].result()
    futures[good].result()
    assert all_acls(admin) == {good}


def test_without_an_authorizer_security_is_disabled() -> None:
    with shared_broker() as bootstrap:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        (created,) = admin.create_acls([binding("orders")]).values()
        with pytest.raises(KafkaException, match="SECURITY_DISABLED"):
            created.result()
        (deleted,) = admin.delete_acls([ANY]).values()
        with pytest.raises(KafkaException, match="SECURITY_DISABLED"):
            deleted.result()


@pytest.mark.java
@pytest.mark.slow
def test_kafkas_own_tool_adds_lists_and_removes(bootstrap: str, tmp_path: Path) -> None:
    try:
        kafka_class_path()
    except KafkaUnavailable as reason:
        pytest.skip(f"no Apache Kafka: {reason}")
    tools = Tools(bootstrap, tmp_path)
    tools.run(
        "AclCommand", "--add", "--allow-principal", "User:billing", "--consumer", "--topic", "orders", "--group", "b"
    )
    tools.run("AclCommand", "--add", "--deny-principal", "User:eve", "--operation", "All", "--topic", "*")
    tools.run(
        "AclCommand", "--add", "--allow-principal", "User:app", "--producer", "--topic", "app.",
        "--resource-pattern-type", "prefixed", "--transactional-id", "app", "--idempotent",
    )  # fmt: skip
    listed = tools.run("AclCommand", "--list")
    assert "principal=User:billing, host=*, operation=READ, permissionType=ALLOW" in listed
    assert "principal=User:eve, host=*, operation=ALL, permissionType=DENY" in listed
    assert "ResourcePattern(resourceType=TOPIC, name=app., patternType=PREFIXED)" in listed
    assert "resourceType=CLUSTER, name=kafka-cluster" in listed
    matching = tools.run("AclCommand", "--list", "--topic", "app.one", "--resource-pattern-type", "match")
    assert "app." in matching
    assert "User:eve" in matching
    assert "User:billing" not in matching
    tools.run("AclCommand", "--remove", "--force", "--topic", "app.", "--resource-pattern-type", "prefixed")
    tools.run(
        "AclCommand", "--remove", "--force", "--deny-principal", "User:eve", "--operation", "All", "--topic", "*"
    )  # fmt: skip
    listed = tools.run("AclCommand", "--list")
    assert "User:eve" not in listed
    assert "resourceType=TOPIC, name=app." not in listed
    assert "resourceType=TRANSACTIONAL_ID, name=app, patternType=PREFIXED" in listed
    assert "User:billing" in listed
