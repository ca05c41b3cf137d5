"""The audit topic of a node and of a cluster, through real clients: changes, logins and denials."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.hostile.process import until

import strandline
from strandline.config.security.authorizer_settings import STANDARD_AUTHORIZER
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.local.embedded_cluster import EmbeddedCluster

AUDIT = "__strandline_audit"
USERS = {"admin": "of the administrator", "alice": "of a client"}
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required " + " ".join(
    f'user_{name}="{password}"' for name, password in USERS.items()
)
SECURED = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.jaas.config": JAAS + ";",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:admin",
    "connection.failed.authentication.delay.ms": "1",
}


@contextmanager
def secured_node(data: Path, **settings: str) -> Iterator[EmbeddedBroker]:
    properties = SECURED | {name.replace("_", "."): value for name, value in settings.items()}
    with strandline.embedded(data=data, properties=properties) as broker:
        yield broker
        assert "Traceback" not in broker.stderr_text()


def client(bootstrap: str, user: str, password: str = "") -> dict[str, str]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password or USERS[user],
        "log_level": "0",
    }


def lines_of(settings: dict[str, str]) -> list[dict[str, Any]]:
    """Read what is on the topic now, as any consumer does."""
    consumer = Consumer(settings | {"group.id": "unused", "enable.auto.commit": "false"})
    found: list[dict[str, Any]] = []
    try:
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(AUDIT, 0), timeout=30)
        except KafkaException:
            # It is created with the first line.
            return []
        consumer.assign([TopicPartition(AUDIT, 0, 0)])
        deadline = time.monotonic() + 60
        while len(found) < end and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                found.append(json.loads(message.value() or b""))
                assert found[-1]["id"].encode() == message.key()
    finally:
        consumer.close()
    return found


def of_type(lines: list[dict[str, Any]], kind: str, **wanted: object) -> list[dict[str, Any]]:
    return [line for line in lines if line["type"] == kind and all(line.get(k) == v for k, v in wanted.items())]


def await_lines(settings: dict[str, str], kind: str, count: int = 1, **wanted: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def is_there() -> bool:
        nonlocal found
        found = of_type(lines_of(settings), kind, **wanted)
        return len(found) >= count

    until(is_there, "the lines are written")
    return found


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with secured_node(tmp_path_factory.mktemp("audited") / "data", strandline_audit_repeat_ms="1500") as running:
        yield running


@pytest.mark.slow
def test_a_change_a_failed_login_and_a_thousand_denials(broker: EmbeddedBroker) -> None:
    settings = client(broker.bootstrap, "admin")
    admin = AdminClient(settings)
    admin.create_topics([NewTopic("orders", 2, 1, config={"retention.ms": "5000"})])["orders"].result(30)
    [created] = await_lines(settings, "change", resource="orders")
    assert created["outcome"] == "success"
    assert created["principal"] == "User:admin"
    assert created["api"] == "CreateTopics"
    assert created["resource_type"] == "TOPIC"
    assert created["host"] == "127.0.0.1"
    assert created["listener"] == "PLAINTEXT"
    assert created["count"] == 1
    assert created["details"] == {"partitions": 2, "replication_factor": 1, "retention.ms": "5000"}
    with pytest.raises(KafkaException):
        AdminClient(client(broker.bootstrap, "alice", "guessed")).list_topics(timeout=3)
    failed = await_lines(settings, "login", outcome="failure")
    assert failed[0]["principal"] == "User:alice"
    assert failed[0]["mechanism"] == "PLAIN"
    assert denied_looks(broker.bootstrap, 1_000) == 1_000
    lines: list[dict[str, Any]] = []

    def are_counted() -> bool:
        nonlocal lines
        lines = of_type(lines_of(settings), "denial", operation="DESCRIBE_CONFIGS", resource="orders")
        return sum(line["count"] for line in lines) >= 1_000

    until(are_counted, "all denials are counted")
    assert lines[0]["count"] == 1, "the first is told at once"
    assert sum(line["count"] for line in lines) == 1_000
    assert len(lines) < 20, "repeats are counted, not repeated"
    assert {line["principal"] for line in lines} == {"User:alice"}
    everything = lines_of(settings)
    assert of_type(everything, "login", outcome="success", principal="User:alice")
    assert [line["outcome"] for line in of_type(everything, "audit")] == ["started"]
    assert len({line["id"] for line in everything}) == len(everything)
    assert "guessed" not in json.dumps(everything)


def denied_looks(bootstrap: str, count: int) -> int:
    """Have a client ask for the settings of a topic so many times, and return how often it was denied.

    (Of a topic that it may not write librdkafka fails many records without a request.)
    """
    alice, codes = AdminClient(client(bootstrap, "alice")), list[int]()
    asked = [ConfigResource(ResourceType.TOPIC, "orders")]
    for pending in [alice.describe_configs(asked)[asked[0]] for _ in range(count)]:
        with pytest.raises(KafkaException) as denied:
            pending.result(60)
        codes.append(denied.value.args[0].code())
    return codes.count(KafkaError.TOPIC_AUTHORIZATION_FAILED)


def test_secrets_are_in_no_line_and_refusals_are(broker: EmbeddedBroker) -> None:
    settings = client(broker.bootstrap, "admin")
    admin = AdminClient(settings)
    secret = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    upsertion = UserScramCredentialUpsertion("carol", secret, b"hunter2hunter2", b"a salt that is known")
    admin.alter_user_scram_credentials([upsertion])["carol"].result(30)
    resource = ConfigResource(
        ConfigResource.Type.BROKER,
        "1",
        incremental_configs=[
            ConfigEntry(
                "listener.name.plaintext.ssl.key.password",
                "hunter2",
                incremental_operation=AlterConfigOpType.SET,
            )
        ],
    )
    admin.incremental_alter_configs([resource])[resource].result(30)
    with pytest.raises(KafkaException):
        admin.delete_topics(["absent"])["absent"].result(30)
    alice = AdminClient(client(broker.bootstrap, "alice"))
    with pytest.raises(KafkaException):
        alice.create_topics([NewTopic("hers", 1, 1)])["hers"].result(30)
    [user] = await_lines(settings, "change", resource="carol")
    assert user["resource_type"] == "USER"
    assert "SCRAM-SHA-256" in user["details"]
    [deleted] = await_lines(settings, "change", resource="absent")
    assert (deleted["outcome"], deleted["error"]) == ("failure", "UNKNOWN_TOPIC_OR_PARTITION")
    [refused] = await_lines(settings, "change", resource="hers")
    assert (refused["outcome"], refused["principal"]) == ("denied", "User:alice")
    lines = lines_of(settings)
    assert of_type(lines, "change", api="IncrementalAlterConfigs")
    assert not of_type(lines, "denial", resource="hers"), "told by the change, not twice"
    assert "hunter2" not in json.dumps(lines)
    assert "a salt" not in json.dumps(lines)


def test_no_client_writes_or_forgets_the_topic(broker: EmbeddedBroker) -> None:
    settings = client(broker.bootstrap, "admin")
    admin = AdminClient(settings)
    admin.create_topics([NewTopic("more-orders", 1, 1)])["more-orders"].result(30)
    await_lines(settings, "change", resource="more-orders")
    codes: list[int] = []
    producer = Producer(settings)
    producer.produce(AUDIT, b"forged", on_delivery=lambda error, _: codes.append(error.code()))
    assert producer.flush(60) == 0
    assert codes == [KafkaError.TOPIC_EXCEPTION], "INVALID_TOPIC_EXCEPTION, also for a super user"
    with pytest.raises(KafkaException):
        admin.delete_records([TopicPartition(AUDIT, 0, 1)])[TopicPartition(AUDIT, 0, 1)].result(30)
    alice = AdminClient(client(broker.bootstrap, "alice"))
    grant(admin, "alice", "*", AclOperation.ALL)
    with pytest.raises(KafkaException):
        alice.delete_topics([AUDIT])[AUDIT].result(30)
    changed = ConfigResource(
        ResourceType.TOPIC,
        AUDIT,
        incremental_configs=[ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)],
    )
    with pytest.raises(KafkaException):
        alice.incremental_alter_configs([changed])[changed].result(30)
    assert await_lines(settings, "change", resource=AUDIT, principal="User:alice", outcome="denied", count=2)
    admin.incremental_alter_configs([changed])[changed].result(30)
    assert len(await_lines(settings, "change", resource=AUDIT, outcome="success")) == 1
    admin.delete_topics([AUDIT])[AUDIT].result(30)
    [deleted] = await_lines(settings, "change", resource=AUDIT, api="DeleteTopics", principal="User:admin")
    assert deleted["outcome"] == "success", "the topic is there again, and says who deleted it"


def grant(admin: AdminClient, user: str, topic: str, operation: AclOperation) -> None:
    acl = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        operation,
        AclPermissionType.ALLOW,
    )
    for done in admin.create_acls([acl]).values():
        done.result(30)


@pytest.mark.slow
def test_a_plain_node_has_no_audit(tmp_path: Path) -> None:
    with strandline.embedded(data=tmp_path / "data") as broker:
        broker.create_topic("orders")
        assert AUDIT not in AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=30).topics


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    properties = {"strandline.audit.enable": "true"}
    with strandline.embedded(
        nodes=3, data=tmp_path_factory.mktemp("audited") / "cluster", properties=properties
    ) as running:
        yield running


@pytest.mark.slow
def test_a_change_through_any_broker_is_one_line(cluster: EmbeddedCluster) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": "0"}
    for number, address in enumerate(cluster.bootstrap_servers.split(",")):
        admin = AdminClient({"bootstrap.servers": address, "log_level": "0"})
        name = f"orders-{number}"
        admin.create_topics([NewTopic(name, 1, 3)])[name].result(60)
        admin.delete_topics([name])[name].result(60)
    for number in range(3):
        lines = await_lines(settings, "change", count=2, resource=f"orders-{number}")
        assert [line["api"] for line in lines] == ["CreateTopics", "DeleteTopics"]
        assert all(line["outcome"] == "success" for line in lines)


@pytest.mark.slow
def test_lines_survive_the_leader_of_the_topic(cluster: EmbeddedCluster) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": "0"}
    admin = AdminClient(settings)
    admin.create_topics([NewTopic("before", 1, 3)])["before"].result(60)
    await_lines(settings, "change", resource="before")
    leader = admin.list_topics(AUDIT, timeout=30).topics[AUDIT].partitions[0].leader
    cluster.kill(leader)
    other = next(each for each in (1, 2, 3) if each != leader)
    elsewhere = {"bootstrap.servers": cluster.bootstrap_servers.split(",")[other - 1], "log_level": "0"}
    names = [f"while-{number}" for number in range(5)]
    second = AdminClient(elsewhere)
    for name in names:
        second.create_topics([NewTopic(name, 1, 2)])[name].result(60)
    cluster.start(leader)
    for name in names:
        lines = await_lines(elsewhere, "change", resource=name)
        assert len({line["id"] for line in lines}) == 1
