"""Confluent's serializers for JSON Schema and Protobuf against our registry, unchanged."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import schema_registry
from confluent_kafka.schema_registry import json_schema, protobuf
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from tests.registry.running_registry import RunningRegistry

PORT = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"code": {"type": "string"}},
}
SHIP = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Ship",
    "type": "object",
    "properties": {"name": {"type": "string"}, "home": {"$ref": "port.json"}},
    "additionalProperties": False,
}
WIDER = {**SHIP, "properties": {**SHIP["properties"], "crew": {"type": "integer"}}}  # type: ignore[dict-item]


@pytest.fixture
def client(registry: RunningRegistry) -> Iterator[Any]:
    with schema_registry.SchemaRegistryClient({"url": registry.url}) as made:
        yield made


@pytest.fixture
def topic() -> str:
    return f"ships-{uuid.uuid4().hex[:12]}"


def test_json_records_with_a_reference(client: Any, topic: str) -> None:
    client.register_schema(f"{topic}-port", schema_registry.Schema(json.dumps(PORT), "JSON"))
    reference = schema_registry.SchemaReference("port.json", f"{topic}-port", 1)
    schema = schema_registry.Schema(json.dumps(SHIP), "JSON", [reference])
    context = SerializationContext(topic, MessageField.VALUE)
    ship = {"name": "Argo", "home": {"code": "HAM"}}
    payload = json_schema.JSONSerializer(schema, client)(ship, context)
    assert json_schema.JSONDeserializer(schema, schema_registry_client=client)(payload, context) == ship

    subject = f"{topic}-value"
    assert client.test_compatibility(subject, schema_registry.Schema(json.dumps(WIDER), "JSON", [reference]))
    narrower = {**SHIP, "properties": {"name": {"type": "string"}}}
    assert not client.test_compatibility(subject, schema_registry.Schema(json.dumps(narrower), "JSON", [reference]))
    with pytest.raises(schema_registry.error.SchemaRegistryError) as rejected:
        client.register_schema(subject, schema_registry.Schema(json.dumps(narrower), "JSON", [reference]))
    assert rejected.value.http_status_code == 409
    assert "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL" in str(rejected.value)
    with pytest.raises(schema_registry.error.SchemaRegistryError) as rejected:
        client.register_schema(subject, schema_registry.Schema('{"type": "strin"}', "JSON"))
    assert rejected.value.error_code == 42201


def ships() -> Any:
    """Return the class of a message with a map, a oneof, and messages of two other files."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    port = descriptor_pb2.FileDescriptorProto(name="sea/port.proto", package="sea", syntax="proto3")
    port.message_type.add(name="Port").field.add(name="code", number=1, type=9, label=1)
    pool.AddSerializedFile(port.SerializeToString())
    ship = descriptor_pb2.FileDescriptorProto(name="sea/ship.proto", package="sea", syntax="proto3")
    ship.dependency.extend(["sea/port.proto", "google/protobuf/timestamp.proto"])
    message = ship.message_type.add(name="Ship")
    message.field.add(name="name", number=1, type=9, label=1)
    message.field.add(name="home", number=2, type=11, label=1, type_name=".sea.Port")
    message.field.add(name="built", number=3, type=11, label=1, type_name=".google.protobuf.Timestamp")
    pool.AddSerializedFile(ship.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("sea.Ship"))


def test_protobuf_records_with_imports(client: Any, topic: str) -> None:
    kind = ships()
    settings = {"use.deprecated.format": False}
    context = SerializationContext(topic, MessageField.VALUE)
    written = kind(name="Argo")
    written.home.code = "HAM"
    written.built.seconds = 7
    payload = protobuf.ProtobufSerializer(kind, client, settings)(written, context)
    assert protobuf.ProtobufDeserializer(kind, settings)(payload, context) == written
    assert protobuf.ProtobufDeserializer(kind, settings, client)(payload, context) == written

    # The client sent descriptors. What comes back is a text, which is the same schema.
    subject = f"{topic}-value"
    latest = client.get_latest_version(subject)
    assert latest.schema.schema_type == "PROTOBUF"
    assert latest.schema.schema_str.startswith('syntax = "proto3";\npackage sea;\n')
    assert "  Port home = 2;\n  google.protobuf.Timestamp built = 3;\n" in latest.schema.schema_str
    assert client.register_schema(subject, latest.schema) == latest.schema_id
    changed = latest.schema.schema_str.replace("string name", "double name")
    assert not client.test_compatibility(subject, schema_registry.Schema(changed, "PROTOBUF", latest.schema.references))
