"""Confluent's Python client and serializers against our registry: what an application does with them, unchanged."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, schema_registry
from confluent_kafka.schema_registry import avro
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.registry.running_registry import RunningRegistry

USER = """{"type": "record", "name": "User", "namespace": "sea", "fields": [
    {"name": "name", "type": "string"}, {"name": "boats", "type": "int"}]}"""
USER_2 = """{"type": "record", "name": "User", "namespace": "sea", "fields": [
    {"name": "name", "type": "string"}, {"name": "boats", "type": "long"},
    {"name": "port", "type": ["null", "string"], "default": null}]}"""
ADA = {"name": "ada lovelace", "boats": 2}


@pytest.fixture
def client(registry: RunningRegistry) -> Iterator[Any]:
    with schema_registry.SchemaRegistryClient({"url": registry.url}) as made:
        yield made


@pytest.fixture
def topic() -> str:
    return f"users-{uuid.uuid4().hex[:12]}"


def test_a_schema_is_registered_and_read(client: Any, topic: str) -> None:
    subject = f"{topic}-value"
    schema_id = client.register_schema(subject, schema_registry.Schema(USER, "AVRO"))
    assert client.register_schema(subject, schema_registry.Schema(USER, "AVRO")) == schema_id
    assert client.get_schema(schema_id).schema_type == "AVRO"
    found = client.lookup_schema(subject, schema_registry.Schema(USER, "AVRO"))
    assert (found.subject, found.version, found.schema_id) == (subject, 1, schema_id)
    assert client.get_latest_version(subject).version == client.get_version(subject, 1).version == 1
    assert subject in client.get_subjects()
    assert client.test_compatibility(subject, schema_registry.Schema(USER_2, "AVRO"))
    assert not client.test_compatibility(subject, schema_registry.Schema('"int"', "AVRO"))
    assert client.set_compatibility(subject, "FULL")["compatibility"] == "FULL"
    assert client.get_compatibility(subject) == "FULL"
    assert client.delete_version(subject, 1) == 1
    client.clear_caches()
    with pytest.raises(schema_registry.error.SchemaRegistryError) as caught:
        client.get_latest_version(subject)
    assert (caught.value.http_status_code, caught.value.error_code) == (404, 40401)


@pytest.mark.parametrize("by_guid", [False, True])
def test_avro_records_go_through_a_topic(client: Any, registry_bootstrap: str, topic: str, by_guid: bool) -> None:
    settings = {}
    if by_guid:
        # The id is then the schema's guid, in a header.
        settings = {"schema.id.serializer": schema_registry.header_schema_id_serializer}
    serialize = avro.AvroSerializer(client, USER, conf=settings)
    context = SerializationContext(topic, MessageField.VALUE, headers=[])
    value = serialize(ADA, context)
    producer = Producer({"bootstrap.servers": registry_bootstrap})
    producer.produce(topic, value, headers=context.headers)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": registry_bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        message = next(each for each in iter(lambda: consumer.poll(1), 0) if each is not None and not each.error())
    finally:
        consumer.close()
    # Another reader, with a newer schema, finds the writer's by its id.
    with schema_registry.SchemaRegistryClient({"url": client._rest_client.base_urls[0]}) as other:
        read = avro.AvroDeserializer(other, USER_2)
        headers = message.headers()
        seen = read(message.value(), SerializationContext(topic, MessageField.VALUE, headers=headers))
    assert seen == ADA | {"port": None}


def test_references_are_followed_by_the_serializer(client: Any, topic: str) -> None:
    port = """{"type": "record", "name": "Port", "namespace": "sea", "fields": [{"name": "code", "type": "string"}]}"""
    ship = (
        """{"type": "record", "name": "Ship", "namespace": "sea", "fields": [{"name": "home", "type": "sea.Port"}]}"""
    )
    client.register_schema(f"{topic}-port", schema_registry.Schema(port, "AVRO"))
    reference = schema_registry.SchemaReference("sea.Port", f"{topic}-port", 1)
    schema = schema_registry.Schema(ship, "AVRO", [reference])
    serialize = avro.AvroSerializer(client, schema)
    context = SerializationContext(topic, MessageField.VALUE)
    payload = serialize({"home": {"code": "HAM"}}, context)
    assert avro.AvroDeserializer(client)(payload, context) == {"home": {"code": "HAM"}}


def test_data_contracts_come_back(client: Any, topic: str) -> None:
    rule = schema_registry.Rule(
        name="check",
        doc="",
        kind=schema_registry.RuleKind.CONDITION,
        mode=schema_registry.RuleMode.WRITE,
        type="CEL",
        tags=None,
        params=None,
        expr="message.boats >= 0",
        on_success=None,
        on_failure=None,
        disabled=False,
    )
    metadata = schema_registry.Metadata(None, schema_registry.MetadataProperties({"owner": "ada"}), None)
    schema = schema_registry.Schema(
        USER, "AVRO", metadata=metadata, rule_set=schema_registry.RuleSet(migration_rules=None, domain_rules=[rule])
    )
    client.register_schema(f"{topic}-value", schema)
    client.clear_caches()
    found = client.get_latest_version(f"{topic}-value").schema
    assert found.metadata.properties.properties == {"owner": "ada"}
    assert found.rule_set.domain_rules[0].expr == "message.boats >= 0"
    assert client.get_latest_with_metadata(f"{topic}-value", {"owner": "ada"}).version == 1
