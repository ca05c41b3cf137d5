"""Topics that take only records with registered schemas: what producers see, and what is stored."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer, schema_registry
from confluent_kafka.schema_registry import avro, json_schema, protobuf
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tests.hostile.batches import batch, with_records
from tests.hostile.peer import Peer
from tests.hostile.process import until
from tests.registry.running_registry import RunningRegistry
from tests.registry.validated_topics import (
    SHIP,
    STRATEGY,
    STRICT,
    VALIDATED,
    batch_of,
    configure,
    create,
    peer_of,
    reasons,
    send,
    some_schema,
    values_of,
    with_id,
)

import strandline
from strandline.errors import ErrorCode

INVALID = int(ErrorCode.INVALID_RECORD)
RAW = b"no schema id at all"
LARGE = 200_000
"""Bytes beyond what is opened on the loop, in any codec."""
STRATEGIES = {
    "TopicNameStrategy": schema_registry.topic_subject_name_strategy,
    "RecordNameStrategy": schema_registry.record_subject_name_strategy,
    "TopicRecordNameStrategy": schema_registry.topic_record_subject_name_strategy,
}


@pytest.fixture
def client(registry: RunningRegistry) -> Iterator[Any]:
    with schema_registry.SchemaRegistryClient({"url": registry.url}) as made:
        yield made


@pytest.fixture
def peer(registry_bootstrap: str) -> Iterator[Peer]:
    with peer_of(registry_bootstrap) as connected:
        yield connected


def registered(registry: RunningRegistry, subject: str, schema: Any = None, **more: Any) -> int:
    status, answer = registry.register(subject, some_schema() if schema is None else schema, **more)
    assert status == 200, answer
    found: int = answer["id"]
    return found


# Confluent's serializers


def message_class(name: str) -> Any:
    """The class of a message that is the second one of its file, and of one that is nested in it."""
    pool = descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto(name=f"sea/{name}.proto", package="sea", syntax="proto3")
    file.message_type.add(name=f"First{name}").field.add(name="name", number=1, type=9, label=1)
    second = file.message_type.add(name=f"Second{name}")
    second.nested_type.add(name="Inner").field.add(name="name", number=1, type=9, label=1)
    pool.AddSerializedFile(file.SerializeToString())
    return {
        "first": message_factory.GetMessageClass(pool.FindMessageTypeByName(f"sea.First{name}")),
        "nested": message_factory.GetMessageClass(pool.FindMessageTypeByName(f"sea.Second{name}.Inner")),
    }


def serializers(client: Any, strategy: str) -> dict[str, tuple[Any, Any]]:
    """A serializer of each type with the strategy, and a value for it."""
    unique = uuid.uuid4().hex[:8]
    settings = {"subject.name.strategy": STRATEGIES[strategy]}
    titled = {"title": f"Ship{unique}", "type": "object", "properties": {"name": {"type": "string"}}}
    messages = message_class(unique)
    deprecated = {"use.deprecated.format": False}
    return {
        "avro": (avro.AvroSerializer(client, json.dumps(some_schema(unique)), conf=settings), {"name": "Argo"}),
        "json": (json_schema.JSONSerializer(json.dumps(titled), client, conf=settings), {"name": "Argo"}),
        **{
            f"protobuf {kind}": (protobuf.ProtobufSerializer(each, client, settings | deprecated), each(name="Argo"))
            for kind, each in messages.items()
        },
    }


@pytest.mark.parametrize("mode", ["id", "strict"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_serializers_write_is_taken_and_other_bytes_are_not(
    registry_bootstrap: str, client: Any, strategy: str, mode: str
) -> None:
    """The serializer registers its schema, and the broker hears of it only from the topic."""
    written: dict[str, bytes] = {}
    for kind, (serialize, value) in serializers(client, strategy).items():
        topic = create(registry_bootstrap, VALIDATED | {STRATEGY: strategy, "strandline.schema.validation": mode})
        producer = Producer({"bootstrap.servers": registry_bootstrap, "linger.ms": 0})
        errors: list[KafkaError | None] = []
        written[kind] = serialize(value, SerializationContext(topic, MessageField.VALUE))
        for sent in (written[kind], RAW, None):
            producer.produce(topic, sent, on_delivery=lambda error, _, errors=errors: errors.append(error))
            assert producer.flush(30) == 0
        assert [error and error.name() for error in errors] == [None, "INVALID_RECORD", None], kind
        assert values_of(registry_bootstrap, topic) == [written[kind], None]
        if strategy != "RecordNameStrategy":
            # There the subject does not depend on the topic.
            other = create(registry_bootstrap, VALIDATED | {STRATEGY: strategy})
            with peer_of(registry_bootstrap) as peer:
                assert send(peer, other, batch_of([written[kind]])).error_code == INVALID


def test_a_message_of_a_file_needs_its_own_subject(
    registry_bootstrap: str, registry: RunningRegistry, peer: Peer
) -> None:
    """One Protobuf schema has many messages, and the record says which one it has."""
    unique = uuid.uuid4().hex[:8]
    text = f'syntax = "proto3"; package sea; message A{unique} {{}} message B{unique} {{ message C {{}} }}'
    schema_id = registered(registry, f"sea.B{unique}", text, schemaType="PROTOBUF")
    topic = create(registry_bootstrap, VALIDATED | {STRATEGY: "RecordNameStrategy"})
    for indexes, fault in {
        b"\x02\x02": "",
        b"\x00": f"not registered under subject sea.A{unique}",
        b"\x04\x02\x00": f"not registered under subject sea.B{unique}.C",
        b"\x02\x08": "has no such message",
        b"\x09": "no message index",
        b"": "no message index",
    }.items():
        result = send(peer, topic, batch_of([with_id(schema_id, indexes)]))
        assert (result.error_code, fault in reasons(result).get(0, "")) == (INVALID if fault else 0, True), indexes


# Reasons


def test_each_bad_record_is_named_with_its_reason(
    registry_bootstrap: str, registry: RunningRegistry, peer: Peer
) -> None:
    topic = create(registry_bootstrap, VALIDATED)
    good, other = registered(registry, f"{topic}-value"), registered(registry, f"{topic}-key")
    sent = [with_id(good), RAW, with_id(other), None, with_id(2_000_000_000), b"\0\0\0", with_id(good)]
    result = send(peer, topic, batch_of(sent))
    assert result.error_code == INVALID
    found = reasons(result)
    assert sorted(found) == [1, 2, 4, 5]
    assert "its value has no schema id" in found[1]
    assert f"schema id {other}, which is not registered under subject {topic}-value" in found[2]
    assert "schema id 2000000000, which is not registered" in found[4]
    assert "record 1 of the batch" in (result.error_message or "")
    assert values_of(registry_bootstrap, topic) == [], "a batch is stored as a whole or not at all"
    assert send(peer, topic, batch_of([with_id(good), None])).error_code == 0


def test_keys_are_validated_apart(registry_bootstrap: str, registry: RunningRegistry, peer: Peer) -> None:
    both = VALIDATED | {"confluent.key.schema.validation": "true"}
    topic = create(registry_bootstrap, both)
    key, value = registered(registry, f"{topic}-key"), registered(registry, f"{topic}-value")
    assert send(peer, topic, batch_of([with_id(value)], key=with_id(key))).error_code == 0
    assert send(peer, topic, batch_of([with_id(value)], key=None)).error_code == 0, "a null key passes"
    result = send(peer, topic, batch_of([with_id(key)], key=with_id(value)))
    assert reasons(result) == {
        0: f"its key has schema id {value}, which is not registered under subject {topic}-key; "
        f"its value has schema id {key}, which is not registered under subject {topic}-value"
    }
    keys_only = create(registry_bootstrap, {"confluent.key.schema.validation": "true", "cleanup.policy": "compact"})
    schema_id = registered(registry, f"{keys_only}-key")
    assert send(peer, keys_only, batch_of([RAW], key=with_id(schema_id))).error_code == 0
    assert "without a key" in reasons(send(peer, keys_only, batch_of([RAW], key=None)))[0]


def test_librdkafka_fails_only_the_bad_records(registry_bootstrap: str, registry: RunningRegistry) -> None:
    """An idempotent producer goes on after the refusal, and its other records may be sent again."""
    topic = create(registry_bootstrap, VALIDATED)
    good = with_id(registered(registry, f"{topic}-value"))
    producer = Producer({"bootstrap.servers": registry_bootstrap, "linger.ms": 200, "enable.idempotence": True})
    said: dict[bytes, str | None] = {}

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        said[message.key() or b""] = error.name() if error else None

    for number in range(5):
        producer.produce(topic, RAW if number in (2, 4) else good, b"%d" % number, on_delivery=on_delivery)
    assert producer.flush(30) == 0
    assert said == {
        b"%d" % each: "INVALID_RECORD" if each in (2, 4) else "_INVALID_DIFFERENT_RECORD" for each in range(5)
    }
    producer.produce(topic, good, b"again", on_delivery=on_delivery)
    assert producer.flush(30) == 0
    assert said[b"again"] is None
    assert values_of(registry_bootstrap, topic) == [good]


# What is registered now


def test_a_schema_counts_as_soon_as_it_is_registered(
    registry_bootstrap: str, registry: RunningRegistry, peer: Peer
) -> None:
    """The answer of the registry is enough: no record with a registered id is ever rejected."""
    topic = create(registry_bootstrap, VALIDATED)
    subject = f"{topic}-value"
    registry.ask("PUT", f"/config/{subject}", {"compatibility": "NONE"})
    for _ in range(25):
        schema_id = registered(registry, subject)
        assert send(peer, topic, batch_of([with_id(schema_id)])).error_code == 0
    assert len(values_of(registry_bootstrap, topic)) == 25


def test_an_id_that_another_subject_had_first(registry_bootstrap: str, registry: RunningRegistry, peer: Peer) -> None:
    """The same schema has one id; that the broker knows it from elsewhere says nothing of this subject."""
    for _ in range(10):
        schema = some_schema()
        topic = create(registry_bootstrap, VALIDATED)
        schema_id = registered(registry, f"elsewhere-{topic}", schema)
        assert send(peer, topic, batch_of([with_id(schema_id)])).error_code == INVALID
        assert registered(registry, f"{topic}-value", schema) == schema_id
        assert send(peer, topic, batch_of([with_id(schema_id)])).error_code == 0


def test_what_was_deleted_is_rejected(registry_bootstrap: str, registry: RunningRegistry, peer: Peer) -> None:
    topic = create(registry_bootstrap, VALIDATED)
    subject, schema = f"{topic}-value", some_schema()
    schema_id = registered(registry, subject, schema)
    record = batch_of([with_id(schema_id)])
    assert send(peer, topic, record).error_code == 0
    assert registry.ask("DELETE", f"/subjects/{subject}")[0] == 200
    until(lambda: send(peer, topic, record).error_code == INVALID, "the deletion reaches the broker")
    assert f"which was deleted from subject {subject}" in reasons(send(peer, topic, record))[0]
    assert registered(registry, subject, schema) == schema_id
    assert send(peer, topic, record).error_code == 0
    registry.ask("DELETE", f"/subjects/{subject}")
    registry.ask("DELETE", f"/subjects/{subject}?permanent=true")
    until(lambda: "which is not registered" in reasons(send(peer, topic, record)).get(0, ""), "it is gone for good")


def test_an_alias_stands_for_its_subject(registry_bootstrap: str, registry: RunningRegistry, peer: Peer) -> None:
    topic = create(registry_bootstrap, VALIDATED)
    schema_id = registered(registry, f"real-{topic}")
    assert send(peer, topic, batch_of([with_id(schema_id)])).error_code == INVALID
    assert registry.ask("PUT", f"/config/{topic}-value", {"alias": f"real-{topic}"})[0] == 200
    assert send(peer, topic, batch_of([with_id(schema_id)])).error_code == 0


def test_settings_count_for_the_next_batch(registry_bootstrap: str, registry: RunningRegistry, peer: Peer) -> None:
    topic = create(registry_bootstrap, {})
    schema_id = registered(registry, f"{topic}-value", SHIP)
    damaged = batch_of([with_id(schema_id, b"\x7fArgo")])
    assert send(peer, topic, batch_of([RAW])).error_code == 0
    configure(registry_bootstrap, topic, confluent_value_schema_validation="true")
    assert send(peer, topic, batch_of([RAW])).error_code == INVALID
    assert send(peer, topic, damaged).error_code == 0, "only the id counts"
    configure(registry_bootstrap, topic, strandline_schema_validation="strict")
    assert send(peer, topic, damaged).error_code == INVALID
    configure(registry_bootstrap, topic, confluent_value_subject_name_strategy="RecordNameStrategy")
    assert send(peer, topic, batch_of([with_id(schema_id)])).error_code == INVALID
    registered(registry, "sea.Ship", SHIP)
    assert send(peer, topic, batch_of([with_id(schema_id)])).error_code == 0
    class_name = "io.confluent.kafka.serializers.subject.TopicNameStrategy"
    configure(registry_bootstrap, topic, confluent_value_subject_name_strategy=class_name)
    assert send(peer, topic, batch_of([with_id(schema_id)])).error_code == 0
    configure(registry_bootstrap, topic, confluent_value_schema_validation="false")
    assert send(peer, topic, batch_of([RAW])).error_code == 0
    with pytest.raises(KafkaException, match="expected TopicNameStrategy, RecordNameStrategy"):
        configure(registry_bootstrap, topic, confluent_value_subject_name_strategy="com.example.Strategy")


# Batches


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("size", [10, LARGE])
def test_compressed_and_large_batches(
    registry_bootstrap: str, registry: RunningRegistry, peer: Peer, codec: int, size: int
) -> None:
    topic = create(registry_bootstrap, VALIDATED | {"strandline.validate.records": "off"})
    good = with_id(registered(registry, f"{topic}-value"), bytes(range(256)) * (size // 256) + b"end")
    assert send(peer, topic, batch_of([good, None, good], compression=codec)).error_code == 0
    result = send(peer, topic, batch_of([good, RAW, good], compression=codec))
    assert (result.error_code, list(reasons(result))) == (INVALID, [1])
    assert values_of(registry_bootstrap, topic) == [good, None, good]


def test_records_that_are_none_are_rejected_as_everywhere(
    registry_bootstrap: str, registry: RunningRegistry, peer: Peer
) -> None:
    topic = create(registry_bootstrap, VALIDATED)
    result = send(peer, topic, with_records(batch(), b"\x7f" * 40))
    assert result.error_code == INVALID
    assert "length" in reasons(result)[0]
    good = with_id(registered(registry, f"{topic}-value"))
    assert send(peer, topic, with_records(batch(), batch_of([good])[61:] + b"rest")).error_code == INVALID


def test_many_records_take_several_turns(registry_bootstrap: str, registry: RunningRegistry, peer: Peer) -> None:
    topic = create(registry_bootstrap, STRICT | {"max.message.bytes": "8000000"})
    good = with_id(registered(registry, f"{topic}-value"))
    assert send(peer, topic, batch_of([good] * 70_000)).error_code == 0
    result = send(peer, topic, batch_of([good] * 69_999 + [good[:-1]], compression=3))
    assert (result.error_code, list(reasons(result))) == (INVALID, [69_999])
    result = send(peer, topic, batch_of([RAW] * 5_000))
    assert (result.error_code, len(result.record_errors)) == (INVALID, 1_000)


def test_a_transaction_has_only_valid_records(registry_bootstrap: str, registry: RunningRegistry) -> None:
    topic = create(registry_bootstrap, VALIDATED)
    good = with_id(registered(registry, f"{topic}-value"))
    producer = Producer({"bootstrap.servers": registry_bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, good)
    producer.commit_transaction(30)
    producer.begin_transaction()
    producer.produce(topic, good)
    producer.produce(topic, RAW)
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)
    producer.abort_transaction(30)
    # librdkafka has used up the sequence numbers of what was rejected, so it needs another epoch.
    producer = Producer({"bootstrap.servers": registry_bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, good)
    producer.commit_transaction(30)
    assert values_of(registry_bootstrap, topic) == [good, good]


# Strict


def test_strict_decodes_avro(registry_bootstrap: str, registry: RunningRegistry, peer: Peer) -> None:
    topic = create(registry_bootstrap, STRICT)
    port = {"type": "record", "name": "Port", "namespace": "sea", "fields": [{"name": "code", "type": "string"}]}
    registered(registry, f"port-of-{topic}", port)
    schema = {
        **some_schema(),
        "fields": [{"name": "home", "type": ["null", "sea.Port"]}, {"name": "crew", "type": "int"}],
    }
    reference = {"name": "sea.Port", "subject": f"port-of-{topic}", "version": 1}
    schema_id = registered(registry, f"{topic}-value", schema, references=[reference])
    for payload, fault in {
        b"\x00\x04": "",
        b"\x02\x06HAM\x04": "",
        b"\x02\x06HAM": "it ends too early, at byte 5",
        b"\x04\x04": "a union has no such branch, at byte 1",
        b"\x02\x06\xff\xfe\xfd\x04": "a string is not UTF-8",
        b"\x00\x04rest": "bytes follow, at byte 2",
        b"": "it ends too early, at byte 0",
    }.items():
        result = send(peer, topic, batch_of([with_id(schema_id, payload)]))
        assert (result.error_code, fault in reasons(result).get(0, "")) == (INVALID if fault else 0, True), payload


def test_strict_takes_other_types_by_their_id(registry_bootstrap: str, registry: RunningRegistry, peer: Peer) -> None:
    topic = create(registry_bootstrap, STRICT)
    titled = {"title": "T", "type": "object"}
    schema_id = registered(registry, f"{topic}-value", titled, schemaType="JSON")
    assert send(peer, topic, batch_of([with_id(schema_id, b"not JSON")])).error_code == 0


def test_a_schema_that_is_too_large_to_parse(registry_bootstrap: str, registry: RunningRegistry, peer: Peer) -> None:
    topic = create(registry_bootstrap, STRICT)
    symbols = [f"S{number:09}" for number in range(10_000)]
    schema_id = registered(registry, f"{topic}-value", {"type": "enum", "name": "E", "symbols": symbols})
    assert "is larger than the 100000 characters" in reasons(send(peer, topic, batch_of([with_id(schema_id)])))[0]
    configure(registry_bootstrap, topic, strandline_schema_validation="id")
    assert send(peer, topic, batch_of([with_id(schema_id)])).error_code == 0


# Without a registry


def test_without_the_topic_of_schemas_no_id_is_registered() -> None:
    with strandline.embedded() as broker, Peer(broker.port) as peer:
        broker.create_topic("alone", confluent_value_schema_validation="true")
        assert "no schema id" in reasons(send(peer, "alone", batch_of([RAW])))[0]
        result = send(peer, "alone", batch_of([with_id(1)]))
        assert result.error_code == INVALID
        assert "the topic _schemas does not exist" in reasons(result)[0]
        assert send(peer, "alone", batch_of([None])).error_code == 0
        assert "Traceback" not in broker.stderr_text()


def test_a_node_without_validation_does_not_import_it() -> None:
    script = (
        "import asyncio, sys, tempfile, pathlib\n"
        "from strandline.broker.main import node_on, stop\n"
        "from strandline.config.node_config import BrokerConfig\n"
        "async def main():\n"
        "    config = BrokerConfig.load('', {'listeners': 'A://127.0.0.1:0', 'http.listener': 'off'})\n"
        "    node = node_on(asyncio.get_running_loop(), pathlib.Path(tempfile.mkdtemp()), config)\n"
        "    node.start()\n"
        "    await stop(node)\n"
        "asyncio.run(main())\n"
        "print([name for name in sys.modules if '.schemas' in name or '.broker.validation' in name])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
