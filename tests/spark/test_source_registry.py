"""`valueSchema=registry`, `from_registry` and `to_registry` on Spark, and what a worker learns of `_schemas`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.schema_desk import SchemaDesk, avro_value, record_schema
from tests.spark.sink_ground import consume

import strandline.spark
from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.schemas.records import SchemaContent, SchemaVersion, schema_record
from strandline.schemas.types import Reference
from strandline.spark.error_translation import SparkFailed
from strandline.spark.registry import catalog as catalog_module
from strandline.spark.registry.catalog import SchemaCatalog
from strandline.spark.source.columns import ddl, reader_ddl
from strandline.spark.source.options import parse_shape
from strandline.spark.source.source_spec import OptionRefused

OLD = record_schema("Order", ("id", "long"), ("note", ["null", "string"]))
NEW = record_schema(
    "Order",
    ("id", "long"),
    ("amount", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}, "\u0000"),
    ("at", ["null", {"type": "long", "logicalType": "timestamp-millis"}], None),
    ("by", {"type": "map", "values": "int"}, {}),
)


@pytest.fixture
def desk(broker: EmbeddedBroker) -> SchemaDesk:
    return SchemaDesk(broker.bootstrap)


def frame_of(spark: SparkSession, desk: SchemaDesk, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("strandline").option("kafka.bootstrap.servers", desk.bootstrap)
    return reader.option("subscribe", topic).options(**options).load()


def test_values_are_columns_of_the_newest_version(
    spark: SparkSession, broker: EmbeddedBroker, desk: SchemaDesk, topic: str
) -> None:
    broker.create_topic(topic, 1)
    old, new = desk.register(f"{topic}-value", OLD), desk.register(f"{topic}-value", NEW)
    desk.send(
        topic,
        avro_value(old, OLD, {"id": 1, "note": "x"}),
        avro_value(new, NEW, {"id": 2, "amount": Decimal("12.50"), "at": 1_000, "by": {"a": 1}}),
        b"no frame",
        None,
        avro_value(0, OLD, {"id": 3, "note": None}),
    )
    frame = frame_of(spark, desk, topic, valueSchema="registry", columns="offset")
    assert frame.columns == ["id", "amount", "at", "by", "offset", "_corrupt"]
    rows = frame.orderBy("offset").selectExpr("id", "cast(amount as string)", "unix_millis(at)", "by", "_corrupt")
    assert [tuple(row) for row in rows.collect()] == [
        (1, "0.00", None, {}, None),
        (2, "12.50", 1_000, {"a": 1}, None),
        (None, None, None, None, "the value does not begin with a zero and a schema id"),
        (None, None, None, None, None),
        (None, None, None, None, "the registry has no schema with the id 0"),
    ]
    with pytest.raises(Exception) as failure:
        frame_of(spark, desk, topic, valueSchema="registry", mode="failfast").collect()
    words = strandline.spark.explain_failure(failure.value)
    assert f"the value of {topic}-0 at offset 2 can not be read" in words


def test_a_frame_keeps_its_columns_when_a_version_comes(
    spark: SparkSession, broker: EmbeddedBroker, desk: SchemaDesk, topic: str
) -> None:
    broker.create_topic(topic, 1)
    subject = f"{topic}-value"
    old = desk.register(subject, OLD)
    frame = frame_of(spark, desk, topic, valueSchema="registry", columns="")
    both = record_schema("Order", ("id", "long"), ("note", ["null", "string"]), ("more", "int", 7))
    new = desk.register(subject, both)
    desk.send(topic, avro_value(old, OLD, {"id": 1, "note": "x"}))
    desk.send(topic, avro_value(new, both, {"id": 2, "note": None, "more": 9}))
    assert sorted(map(tuple, frame.collect())) == [(1, "x", None), (2, None, None)]
    again = frame_of(spark, desk, topic, valueSchema="registry", columns="")
    assert sorted(map(tuple, again.collect())) == [(1, "x", 7, None), (2, None, 9, None)]


def test_json_schemas_and_what_is_not_read(
    spark: SparkSession, broker: EmbeddedBroker, desk: SchemaDesk, topic: str
) -> None:
    broker.create_topic(topic, 1)
    schema = '{"type":"object","properties":{"id":{"type":"integer"},"name":{"type":"string"}}}'
    number = desk.register(f"{topic}-value", schema, kind="JSON")
    head = b"\0" + number.to_bytes(4, "big")
    desk.send(topic, head + b'{"id": 5, "name": "a"}', head + b'{"id": "x"}', b'{"id": 6}')
    frame = frame_of(spark, desk, topic, valueSchema="registry", columns="offset").orderBy("offset")
    assert [tuple(row) for row in frame.select("id", "name", "_corrupt").collect()] == [
        (5, "a", None),
        (None, None, "the value does not fit the schema"),
        (None, None, "the value does not begin with a zero and a schema id"),
    ]
    desk.register(f"{topic}-value", 'syntax = "proto3"; message M { int32 a = 1; }', kind="PROTOBUF")
    with pytest.raises(Exception) as failure:
        frame_of(spark, desk, topic, valueSchema="registry")
    assert "of the type PROTOBUF" in strandline.spark.explain_failure(failure.value)
    with pytest.raises(Exception) as failure:
        frame_of(spark, desk, topic, valueSchema="registry", subject="nowhere")
    assert "the registry has no subject nowhere" in strandline.spark.explain_failure(failure.value)


def test_functions_of_a_frame(spark: SparkSession, broker: EmbeddedBroker, desk: SchemaDesk, topic: str) -> None:
    broker.create_topic(topic, 1)
    subject = f"{topic}-value"
    old = desk.register(subject, OLD)
    options = {"kafka.bootstrap.servers": desk.bootstrap}
    frame = spark.sql("SELECT 5L AS id, 'x' AS note UNION ALL SELECT 6L, NULL")
    written = frame.select(strandline.spark.to_registry(F.struct("id", "note"), subject, options).alias("value"))
    written.write.format("strandline").options(**options, topic=topic).mode("append").save()
    values = sorted(each.value() for each in consume(desk.bootstrap, topic))
    assert values == sorted(
        [avro_value(old, OLD, {"id": 5, "note": "x"}), avro_value(old, OLD, {"id": 6, "note": None})]
    )
    desk.send(topic, b"bad")
    read = frame_of(spark, desk, topic, columns="value")
    decoded = read.select(strandline.spark.from_registry("value", subject, options, mode="permissive").alias("row"))
    found = sorted((tuple(row.row) if row.row else () for row in decoded.collect()), key=str)
    assert found == [(), (5, "x"), (6, None)]
    with pytest.raises(Exception) as failure:
        read.select(strandline.spark.from_registry("value", subject, options)).collect()
    assert "a value can not be read" in strandline.spark.explain_failure(failure.value)


@pytest.fixture
def catalog(lonely: EmbeddedBroker) -> Iterator[SchemaCatalog]:
    with closing(SchemaCatalog(ClusterClient(ClientSettings(lonely.bootstrap)))) as made:
        yield made


def test_a_catalog_learns_what_comes_and_says_what_does_not(
    lonely: EmbeddedBroker, catalog: SchemaCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SparkFailed, match="the cluster has no topic _schemas"):
        catalog.versions("orders-value")
    desk = SchemaDesk(lonely.bootstrap)
    desk.send("_schemas", b"garbage", key="garbage")
    with pytest.raises(SparkFailed, match="the registry has no subject orders-value"):
        catalog.versions("orders-value")
    first = desk.register("orders-value", OLD)
    assert [each.version for each in catalog.versions("orders-value")] == [1]
    second = desk.register("orders-value", NEW)
    # It reads on for an id that it does not know.
    found: dict[int, Any] = catalog.writers(".", [first, second])
    assert [found[each].text == found[each].text for each in (first, second)] == [True, True]
    assert catalog.writers(".", [0])[0] == "the registry has no schema with the id 0"
    # It waits for ids that may be on their way, and gives that up when none comes.
    monkeypatch.setattr(catalog_module, "WAIT_S", 0.2)
    began = time.monotonic()
    for number in range(20):
        assert isinstance(catalog.writers(".", [second + 1000 + number])[second + 1000 + number], str)
    waited = catalog_module.WAITS_MAX
    assert catalog._waits == waited
    assert time.monotonic() - began >= 0.2 * waited


def test_a_schema_with_references(lonely: EmbeddedBroker, catalog: SchemaCatalog) -> None:
    desk = SchemaDesk(lonely.bootstrap)
    desk.register("money", record_schema("Money", ("cents", "long")))
    text = '{"type":"record","name":"Bill","fields":[{"name":"sum","type":"Money"}]}'
    content = SchemaContent("AVRO", text, (Reference("Money", "money", 1),))
    record = schema_record(SchemaVersion("bills-value", 1, 500, content))
    producer = Producer({"bootstrap.servers": lonely.bootstrap})
    producer.produce("_schemas", key=record.key, value=record.value, partition=0)
    assert producer.flush(60) == 0
    [reader] = catalog.versions("bills-value")
    assert [name for name, _ in reader.source.references] == ["Money"]
    assert reader_ddl(reader) == "`sum` STRUCT<`cents`: BIGINT>"


@pytest.mark.slow
def test_what_confluents_serializer_wrote(spark: SparkSession, lonely: EmbeddedBroker, topic: str) -> None:
    schema_registry = pytest.importorskip("confluent_kafka.schema_registry")
    avro = pytest.importorskip("confluent_kafka.schema_registry.avro")
    serialization = pytest.importorskip("confluent_kafka.serialization")
    from tests.registry.running_registry import running_registry

    lonely.create_topic(topic, 1)
    context = serialization.SerializationContext(topic, serialization.MessageField.VALUE)
    producer = Producer({"bootstrap.servers": lonely.bootstrap})
    with running_registry(lonely.bootstrap) as registry, ExitStack() as stack:
        client = stack.enter_context(schema_registry.SchemaRegistryClient({"url": registry.url}))
        for text, row in (
            (OLD, {"id": 1, "note": "x"}),
            (NEW, {"id": 2, "amount": Decimal("0.25"), "at": None, "by": {}}),
        ):
            serializer = avro.AvroSerializer(client, json.dumps(text))
            producer.produce(topic, serializer(row, context))
        assert producer.flush(60) == 0
    # The registry has ended, and its topic is there.
    reader = spark.read.format("strandline").option("kafka.bootstrap.servers", lonely.bootstrap)
    frame = reader.option("subscribe", topic).options(valueSchema="registry", columns="").load()
    found = sorted((row.id, str(row.amount), row._corrupt) for row in frame.collect())
    assert found == [(1, "0.00", None), (2, "0.25", None)]


LEAST = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}


def test_the_options_of_a_registry() -> None:
    shape = parse_shape(LEAST | {"valueSchema": "Registry"})
    assert shape.is_of_registry
    assert shape.subject == "orders-value"
    assert parse_shape(LEAST | {"valueSchema": "registry", "subject": "a.b.Order"}).subject == "a.b.Order"
    assert not parse_shape(LEAST | {"valueSchema": "registry STRING"}).is_of_registry


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subject": "x"}, "subject has no meaning without valueSchema=registry"),
        ({"valueSchema": "id INT", "readerSchema": "{}"}, "readerSchema has no meaning without valueSchema=registry"),
        ({"valueSchema": "registry", "subscribe": "a,b"}, "needs one subject"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionRefused, match=words):
        parse_shape(LEAST | options)


def test_a_readers_schema_of_the_users_own() -> None:
    text = json.dumps(record_schema("Order", ("id", "long"), ("total", "double", 0)))
    shape = parse_shape(LEAST | {"valueSchema": "registry", "readerSchema": text, "columns": "", "mode": "failfast"})
    assert ddl(shape) == "`id` BIGINT, `total` DOUBLE"
    for wrong in ("nonsense", '{"type":"record"}'):
        shape = parse_shape(LEAST | {"valueSchema": "registry", "readerSchema": wrong})
        with pytest.raises(OptionRefused):
            ddl(shape)
