"""Topics that validate records, and Produce requests to them that are written by hand."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from tests.hostile.batches import now_ms, produce
from tests.hostile.peer import ROUTES, Peer, answer_of, request

from strandline.codec.columns import Record, encode_batch
from strandline.codec.messages.produce_response import PartitionProduceResponse

PRODUCE, VERSION = 0, 9
SHIP = {"type": "record", "name": "Ship", "namespace": "sea", "fields": [{"name": "name", "type": "string"}]}
STRATEGY = "confluent.value.subject.name.strategy"
VALIDATED = {"confluent.value.schema.validation": "true"}
STRICT = VALIDATED | {"strandline.schema.validation": "strict"}


def with_id(schema_id: int, payload: bytes = b"\x08Argo") -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def some_schema(seed: str = "") -> dict[str, Any]:
    """A schema like SHIP that no other test has."""
    return {**SHIP, "name": f"Ship_{seed or uuid.uuid4().hex}"}


def create(bootstrap: str, settings: dict[str, str], *, prefix: str = "valid", replicas: int = 1) -> str:
    """Create a topic and return its name."""
    topic = f"{prefix}-{uuid.uuid4().hex[:12]}"
    made = NewTopic(topic, num_partitions=1, replication_factor=replicas, config=settings)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([made])[topic].result()
    return topic


def configure(bootstrap: str, topic: str, **settings: str) -> None:
    """Change settings of a topic; underscores stand for dots."""
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result()


def peer_of(bootstrap: str) -> Peer:
    return Peer(int(bootstrap.rpartition(":")[2]))


def batch_of(values: Sequence[bytes | None], *, key: bytes | None = b"k", **options: Any) -> bytes:
    return encode_batch([Record(timestamp_ms=now_ms(), key=key, value=value) for value in values], **options)


def send(peer: Peer, topic: str, batch: bytes) -> PartitionProduceResponse:
    content = peer.ask_raw(request(produce(topic, batch), VERSION))
    assert content is not None
    (result,) = answer_of(ROUTES[PRODUCE], VERSION, content).responses[0].partition_responses
    found: PartitionProduceResponse = result
    return found


def reasons(result: PartitionProduceResponse) -> dict[int, str]:
    """The reason for each record that was rejected."""
    return {each.batch_index: each.batch_index_error_message or "" for each in result.record_errors}


def values_of(bootstrap: str, topic: str) -> list[bytes | None]:
    """Every committed value of the topic's one partition."""
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.auto.commit": False})
    found = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(30)
            assert message is not None, "the topic could not be read"
            if message.error() is not None:
                return found
            found.append(message.value())
    finally:
        consumer.close()


def schema_record(subject: str, version: int, schema_id: int, schema: Any = SHIP) -> tuple[bytes, bytes]:
    """The record that a registry writes for a schema."""
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    value = {
        "subject": subject,
        "version": version,
        "id": schema_id,
        "schema": json.dumps(schema),
        "deleted": False,
    }
    return json.dumps(key, separators=(",", ":")).encode(), json.dumps(value, separators=(",", ":")).encode()
