"""A node with access rules, through real clients: what they may do works, and the rest is refused."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from tests.hostile.process import until
from tests.scenarios.authorized_node import ANONYMOUS, authorized_broker

from strandline.local.embedded_broker import EmbeddedBroker

TOPIC_REFUSED = KafkaError.TOPIC_AUTHORIZATION_FAILED
GROUP_REFUSED = KafkaError.GROUP_AUTHORIZATION_FAILED


def rule(kind: ResourceType, name: str, operation: AclOperation, *, prefixed: bool = False) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
    return AclBinding(kind, name, pattern, ANONYMOUS, "*", operation, AclPermissionType.ALLOW)


RULES = [
    rule(ResourceType.TOPIC, "orders", AclOperation.READ),
    rule(ResourceType.TOPIC, "orders", AclOperation.WRITE),
    rule(ResourceType.TOPIC, "own-", AclOperation.CREATE, prefixed=True),
    rule(ResourceType.GROUP, "billing", AclOperation.READ),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with two topics, and rules for one of them."""
    directory = tmp_path_factory.mktemp("authorized")
    with authorized_broker(directory, super_users=ANONYMOUS) as log:
        admin = AdminClient({"bootstrap.servers": log.bootstrap})
        for name in ("orders", "secret"):
            log.create_topic(name)
        for done in admin.create_acls(RULES).values():
            done.result(30)
    return directory


@pytest.fixture(scope="module")
def log(data: Path) -> Iterator[EmbeddedBroker]:
    with authorized_broker(data) as broker:
        yield broker
        assert "Traceback" not in broker.stderr_text()


def send(log: EmbeddedBroker, topic: str, **settings: str | bool) -> KafkaError | None:
    failures: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": log.bootstrap, "message.timeout.ms": 30_000, **settings})
    producer.produce(topic, b"a record", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(40) == 0
    return failures[0]


def code_of(error: BaseException) -> int:
    assert isinstance(error, KafkaException)
    code: int = error.args[0].code()
    return code


@pytest.mark.slow
@pytest.mark.parametrize("idempotent", [False, True])
def test_a_producer_writes_where_it_may(log: EmbeddedBroker, idempotent: bool) -> None:
    assert send(log, "orders", **{"enable.idempotence": idempotent}) is None
    refused = send(log, "secret", **{"enable.idempotence": idempotent})
    assert refused is not None
    assert refused.code() == TOPIC_REFUSED


def test_a_transaction_needs_its_id(log: EmbeddedBroker) -> None:
    producer = Producer({"bootstrap.servers": log.bootstrap, "transactional.id": "payments"})
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(30)
    assert code_of(refused.value) == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_consumer_reads_what_it_may(log: EmbeddedBroker) -> None:
    assert send(log, "orders") is None
    settings = {"bootstrap.servers": log.bootstrap, "auto.offset.reset": "earliest", "group.id": "billing"}
    consumer = Consumer(settings)
    try:
        consumer.subscribe(["orders"])
        received: list[bytes] = []

        def has_received() -> bool:
            message = consumer.poll(1)
            if message is not None:
                assert message.error() is None, message.error()
                received.append(message.value() or b"")
            return bool(received)

        until(has_received, "the consumer has a record")
        # Twice, because the second commit takes the short path.
        for offset in (1, 2):
            consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("topic", "group", "code"), [("secret", "billing", TOPIC_REFUSED), ("orders", "x", GROUP_REFUSED)]
)
def test_a_consumer_is_told_what_it_may_not(log: EmbeddedBroker, topic: str, group: str, code: int) -> None:
    consumer = Consumer({"bootstrap.servers": log.bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        errors: list[int] = []

        def has_failed() -> bool:
            message = consumer.poll(1)
            if message is not None and message.error() is not None:
                errors.append(message.error().code())
            return bool(errors)

        until(has_failed, "the consumer is refused")
        assert errors[0] == code
    finally:
        consumer.close()


def test_what_is_hidden_does_not_show(log: EmbeddedBroker) -> None:
    admin = AdminClient({"bootstrap.servers": log.bootstrap})
    assert set(admin.list_topics(timeout=30).topics) == {"orders"}
    asked = admin.list_topics("secret", timeout=30).topics["secret"]
    assert asked.error is not None
    assert asked.error.code() == TOPIC_REFUSED
    assert not asked.partitions
    unknown = admin.list_topics("never-made", timeout=30).topics["never-made"]
    assert unknown.error is not None
    assert unknown.error.code() == TOPIC_REFUSED
    groups = admin.list_consumer_groups().result(30)
    assert {group.group_id for group in groups.valid} <= {"billing"}


def test_administration_is_refused(log: EmbeddedBroker) -> None:
    admin = AdminClient({"bootstrap.servers": log.bootstrap})
    name = f"own-{uuid.uuid4().hex}"
    admin.create_topics([NewTopic(name, 1)])[name].result(30)
    refusals = {
        "create": admin.create_topics([NewTopic("other", 1)])["other"],
        "delete": admin.delete_topics(["secret"])["secret"],
        "acls": next(iter(admin.create_acls([rule(ResourceType.TOPIC, "secret", AclOperation.ALL)]).values())),
        "group": admin.delete_consumer_groups(["billing"])["billing"],
        "offsets": admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions("other", [TopicPartition("orders", 0)])]
        )["other"],
    }
    codes = {}
    for what, refusal in refusals.items():
        with pytest.raises(KafkaException) as refused:
            refusal.result(30)
        codes[what] = code_of(refused.value)
    assert codes == {
        "create": TOPIC_REFUSED,
        "delete": TOPIC_REFUSED,
        "acls": KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        "group": GROUP_REFUSED,
        "offsets": GROUP_REFUSED,
    }
    denials = [line for line in log.stderr_text().splitlines() if "denied" in line]
    assert any('"operation": "DELETE"' in line and '"name": "secret"' in line for line in denials)


def test_a_report_allows_and_tells(data: Path, tmp_path: Path) -> None:
    with authorized_broker(tmp_path, authorizer_mode="report") as log:
        log.create_topic("secret")
        assert send(log, "secret") is None
        lines = [line for line in log.stderr_text().splitlines() if "would deny" in line]
        assert any('"operation": "WRITE"' in line and '"name": "secret"' in line for line in lines)
