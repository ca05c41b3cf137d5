"""The same view is a table inside Spark."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from tests.views.test_schema import DDLS

from strandline import views
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.views.schema import parse_schema, schema_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = """id BIGINT, region STRING, total DECIMAL(10,2), at TIMESTAMP, day DATE, tags ARRAY<STRING>, is_new BOOLEAN,
    place STRUCT<city: STRING, zip: INT>, counts MAP<STRING, INT>, raw BINARY"""


def test_a_view_is_a_table(spark: SparkSession, broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    broker.create_topic(topic, 2, cleanup_policy="compact")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})

    def put(number: int, value: dict[str, Any] | None) -> None:
        key = json.dumps({"id": number, "region": "eu"}, separators=(",", ":"))
        producer.produce(topic, key=key, value=None if value is None else json.dumps(value), partition=number % 2)

    put(1, {"total": 1})
    put(3, {"total": 3})
    whole = {
        "total": 12.5,
        "at": "2026-01-31T09:30:00.250000Z",
        "day": "2026-01-31",
        "tags": ["a", None],
        "is_new": True,
        "place": {"city": "Ulm", "zip": 89073},
        "counts": {"x": 1},
        "raw": "AP8=",
    }
    put(2, whole)
    put(1, None)
    producer.flush(30)
    definition = views.define("orders", topic, schema=SCHEMA, key=("id", "region"))

    def table(**more: Any) -> Any:
        return views.table(spark, definition, bootstrap=broker.bootstrap, directory=tmp_path, **more)

    frame = table()
    assert frame.schema == spark.createDataFrame([], SCHEMA).schema
    second, third = frame.orderBy("id").collect()
    assert second.asDict(recursive=True) == {
        "id": 2,
        "region": "eu",
        "total": Decimal("12.50"),
        "at": second["at"],
        "day": date(2026, 1, 31),
        "tags": ["a", None],
        "is_new": True,
        "place": {"city": "Ulm", "zip": 89073},
        "counts": {"x": 1},
        "raw": bytearray(b"\x00\xff"),
    }
    assert second["at"].astimezone(UTC) == datetime(2026, 1, 31, 9, 30, 0, 250_000, UTC)
    assert (third["id"], third["total"], third["at"]) == (3, Decimal("3.00"), None)
    then = table(as_of={0: 0, 1: 2})
    assert [(row["id"], row["total"]) for row in then.orderBy("id").collect()] == [(1, Decimal("1.00")), (3, 3)]
    assert table(as_of={0: 0, 1: 0}).count() == 0
    # And as a table of Spark's SQL beside others.
    frame.createOrReplaceTempView("orders_view")
    assert spark.sql("select sum(total) from orders_view").first()[0] == Decimal("15.50")  # type: ignore[index]


def test_ddl_means_what_it_means_to_spark(spark: SparkSession) -> None:
    for ddl, expected in DDLS:
        # Lengths of text are no business of JSON, and what is not null in a table may be null in a record.
        if expected is not None and "VARCHAR(" not in ddl:
            told = json.dumps(spark.createDataFrame([], ddl.replace(" NOT NULL", "")).schema.jsonValue())
            assert parse_schema(told) == parse_schema(ddl)
            assert schema_json(parse_schema(told)) == schema_json(parse_schema(ddl))
