"""Records that `strandline.retention.lock.ms` keeps from retention, DeleteRecords, DeleteTopics and later settings."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

import strandline
from strandline.local.embedded_broker import EmbeddedBroker

HOUR_MS = 3_600_000
LOCKED = {
    "strandline.retention.lock.ms": str(HOUR_MS),
    "message.timestamp.type": "LogAppendTime",
    "retention.ms": str(HOUR_MS),
    "retention.bytes": "1",
    "segment.bytes": "1048576",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    data = tmp_path_factory.mktemp("locked") / "data"
    with strandline.embedded(data=data, clock="virtual") as running:
        yield running


@pytest.fixture(scope="module")
def admin(broker: EmbeddedBroker) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("ledger", 1, 1, config=LOCKED)])["ledger"].result(30)
    return admin


def altered(admin: AdminClient, topic: str, **settings: str | None) -> None:
    """Set settings, or delete those without a value."""
    entries = [
        ConfigEntry(
            name.replace("_", "."),
            value,
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(30)


def code_of(refused: pytest.ExceptionInfo[KafkaException]) -> int:
    code: int = refused.value.args[0].code()
    return code


def start_offset(admin: AdminClient) -> int:
    place = TopicPartition("ledger", 0)
    offset: int = admin.list_offsets({place: OffsetSpec.earliest()})[place].result(30).offset
    return offset


def write(broker: EmbeddedBroker, count: int, timestamp_ms: int = 1) -> None:
    """Write records, each a batch of its own, with a time that a producer chose."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "batch.num.messages": 1})
    for _ in range(count):
        producer.produce("ledger", b"v" * 300_000, timestamp=timestamp_ms)
        assert producer.flush(30) == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"strandline_retention_lock_ms": str(HOUR_MS - 1)},
        {"strandline_retention_lock_ms": None},
        {"retention_ms": str(HOUR_MS - 1)},
        {"cleanup_policy": "compact"},
        {"cleanup_policy": "compact,delete"},
        {"message_timestamp_type": "CreateTime"},
        {"strandline_retention_lock_ms": str(366 * 24 * HOUR_MS), "retention_ms": "-1"},
    ],
)
def test_a_lock_is_not_taken_back(admin: AdminClient, settings: dict[str, str | None]) -> None:
    with pytest.raises(KafkaException) as refused:
        altered(admin, "ledger", **settings)
    assert code_of(refused) == KafkaError.POLICY_VIOLATION
    assert "strandline.retention.lock" in str(refused.value)


def test_what_a_lock_allows(admin: AdminClient) -> None:
    altered(admin, "ledger", retention_ms=str(2 * HOUR_MS), segment_bytes="1048577")
    altered(admin, "ledger", retention_ms=str(HOUR_MS))


@pytest.mark.parametrize(
    "settings",
    [
        {"cleanup.policy": "compact"},
        {"message.timestamp.type": "CreateTime"},
        {"retention.ms": "1000"},
        {"strandline.retention.lock.ms": str(366 * 24 * HOUR_MS), "retention.ms": "-1"},
    ],
)
def test_a_topic_that_cannot_be_locked_is_not_created(admin: AdminClient, settings: dict[str, str]) -> None:
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic("other", 1, 1, config=LOCKED | settings)])["other"].result(30)
    assert code_of(refused) == KafkaError.POLICY_VIOLATION


def test_records_stay_until_their_time_and_go_then(broker: EmbeddedBroker, admin: AdminClient) -> None:
    place = TopicPartition("ledger", 0, 6)
    write(broker, 10)
    with pytest.raises(KafkaException) as refused:
        admin.delete_records([place])[place].result(30)
    assert code_of(refused) == KafkaError.POLICY_VIOLATION
    with pytest.raises(KafkaException) as refused:
        admin.delete_topics(["ledger"])["ledger"].result(30)
    assert code_of(refused) == KafkaError.POLICY_VIOLATION
    # `retention.bytes` lets all but the last segment go, and is looked at many times meanwhile.
    broker.clock.advance(minutes=59)
    assert start_offset(admin) == 0
    broker.clock.advance(minutes=10)
    deadline = time.monotonic() + 60
    while start_offset(admin) == 0:
        assert time.monotonic() < deadline
        broker.clock.advance(minutes=5)
    write(broker, 4)
    with pytest.raises(KafkaException) as refused:
        admin.delete_topics(["ledger"])["ledger"].result(30)
    assert code_of(refused) == KafkaError.POLICY_VIOLATION


@pytest.mark.slow
def test_an_operator_of_the_machine_lifts_locks(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with strandline.embedded(data=data) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("ledger", 1, 1, config=LOCKED)])["ledger"].result(30)
    with strandline.embedded(data=data, properties={"strandline.retention.lock.max.ms": "0"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        altered(admin, "ledger", segment_bytes="1048577")
        admin.delete_topics(["ledger"])["ledger"].result(30)
