"""Rows to records and back, with Spark and without a log."""

from __future__ import annotations

import datetime
import decimal
import json
from typing import TYPE_CHECKING, Any

import pytest

from strandline.pipelines.failures import PipelineRefused
from strandline.pipelines.language.model import Dataset, Kind, Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def dataset(kind: Kind = Kind.STREAM, *key: str) -> Dataset:
    return Dataset("totals", kind, lambda: None, (), topic="totals", key=key, at=Place("shop.py", 7))


def encoded(frame: DataFrame, of: Dataset) -> list[dict[str, Any]]:
    from strandline.pipelines.run.encoding import encode

    return [row.asDict() for row in encode(frame, of).collect()]


def there_and_back(frame: DataFrame, of: Dataset) -> DataFrame:
    from strandline.pipelines.run.encoding import decode, encode, row_schema

    records = encode(frame, of)
    if "key" not in records.columns:
        records = records.selectExpr("CAST(NULL AS BINARY) AS key", "*")
    records = records.selectExpr("CAST(key AS BINARY) AS key", "CAST(value AS BINARY) AS value")
    return decode(records, row_schema(frame.schema, of), of.key)


def test_a_row_is_json_with_its_nulls(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("a", 1, None)], "name STRING, n INT, more STRING")
    assert encoded(frame, dataset()) == [{"value": '{"name":"a","n":1,"more":null}'}]


def test_a_key_of_one_string_is_its_text_and_any_other_json(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("ann", 7, 1.5)], "name STRING, n INT, total DOUBLE")
    assert encoded(frame, dataset(Kind.TABLE, "name")) == [{"key": "ann", "value": '{"n":7,"total":1.5}'}]
    assert encoded(frame, dataset(Kind.TABLE, "n")) == [{"key": '{"n":7}', "value": '{"name":"ann","total":1.5}'}]
    assert encoded(frame, dataset(Kind.VIEW, "n", "name")) == [
        {"key": '{"n":7,"name":"ann"}', "value": '{"total":1.5}'}
    ]
    assert encoded(frame.select("name"), dataset(Kind.TABLE, "name")) == [{"key": "ann", "value": "{}"}]


def test_what_is_deleted_is_a_tombstone(spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        [("a", 1, False), ("b", 2, True), ("c", 3, None)], "id STRING, n INT, _deleted BOOLEAN"
    )
    assert encoded(frame, dataset(Kind.TABLE, "id")) == [
        {"key": "a", "value": '{"n":1}'},
        {"key": "b", "value": None},
        {"key": "c", "value": '{"n":3}'},
    ]
    # Without a key there is nothing that could be deleted.
    assert json.loads(encoded(frame, dataset())[1]["value"]) == {"id": "b", "n": 2, "_deleted": True}


def test_a_stream_routes_rows_and_has_headers(spark: SparkSession) -> None:
    schema = "id STRING, topic STRING, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    frame = spark.createDataFrame([("a", "there", [("h", b"1")])], schema)
    [record] = encoded(frame, dataset())
    assert (record["value"], record["topic"]) == ('{"id":"a"}', "there")
    assert record["headers"][0].asDict() == {"key": "h", "value": b"1"}
    # A table is one topic, so the column is one like any other.
    [record] = encoded(frame, dataset(Kind.TABLE, "id"))
    assert (record["key"], record["value"]) == ("a", '{"topic":"there"}')
    assert encoded(spark.createDataFrame([(7, "x")], "topic INT, headers STRING"), dataset()) == [
        {"value": '{"topic":7,"headers":"x"}'}
    ]


RECORDS = [
    ("key BINARY, value BINARY", True),
    ("key STRING, value STRING", True),
    ("value STRING", True),
    ("value STRING, topic STRING", True),
    ("key BINARY, value BINARY, timestamp TIMESTAMP, offset BIGINT", True),
    ("value STRING, timestamp TIMESTAMP", False),
    ("key STRING, value DOUBLE", False),
    ("key INT, value STRING", False),
    ("key STRING, value STRING, customer STRING", False),
    ("key STRING", False),
]


@pytest.mark.parametrize(("schema", "is_one"), RECORDS)
def test_what_is_a_record_is_written_as_it_is(spark: SparkSession, schema: str, is_one: bool) -> None:
    from strandline.pipelines.run.encoding import encode, is_record

    frame = spark.createDataFrame([], schema)
    assert is_record(frame.schema, ()) is is_one
    assert not is_record(frame.schema, ("key",))
    names = encode(frame, dataset()).columns
    assert names == ([name for name in frame.columns if name not in ("timestamp", "offset")] if is_one else ["value"])


def test_every_type_comes_back(spark: SparkSession) -> None:
    schema = (
        "id BIGINT, s STRING, t TIMESTAMP, n TIMESTAMP_NTZ, d DATE, c DECIMAL(20, 4), f FLOAT, x DOUBLE, y BOOLEAN, "
        "b BINARY, i TINYINT, a ARRAY<STRUCT<p: INT, q: STRING>>, m MAP<STRING, INT>, `a.b` INT, key STRING, value INT"
    )
    when = datetime.datetime(2026, 1, 31, 9, 30, 0, 123456)
    more = (-3, [(1, "x"), (None, None)], {"k": 1}, 5, "the key", 6)
    rows = [
        (
            1,
            'ü"\n',
            when,
            when,
            when.date(),
            decimal.Decimal("12345678901234.5678"),
            1.5,
            0.1,
            True,
            b"\x00\xff",
            *more,
        ),
        (2, *(None,) * 6, float("inf"), *(None,) * 8),
        (3, "", when, when, when.date(), None, None, -1e300, False, b"", 0, [], {}, 0, "", 0),
    ]
    frame = spark.createDataFrame(rows, schema)
    for of in (dataset(), dataset(Kind.TABLE, "id"), dataset(Kind.TABLE, "s"), dataset(Kind.TABLE, "id", "t", "key")):
        back = there_and_back(frame.where("s IS NOT NULL") if "s" in of.key else frame, of)
        assert back.schema.simpleString() == frame.schema.simpleString()
        assert back.orderBy("id").collect() == [
            row for row in frame.collect() if row.s is not None or "s" not in of.key
        ]


def test_times_are_in_utc_whatever_the_session_says(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        frame = spark.sql("SELECT TIMESTAMP '2026-01-31 09:30:00.5+00:00' AS at")
        assert encoded(frame, dataset()) == [{"value": '{"at":"2026-01-31T09:30:00.500000Z"}'}]
        assert there_and_back(frame, dataset()).collect() == frame.collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_keys_that_others_wrote_plainly_are_read(spark: SparkSession) -> None:
    from strandline.pipelines.run.encoding import decode

    records = spark.createDataFrame(
        [(b"42", b'{"n":1}'), (b'{"id":43}', b'{"n":2}'), (b"what", b'{"n":3}'), (b"44", None)],
        "key BINARY, value BINARY",
    )
    schema = spark.createDataFrame([], "id BIGINT, n INT").schema
    found = [tuple(row) for row in decode(records, schema, ["id"]).collect()]
    assert found == [(42, 1), (43, 2), (None, 3), (44, None)]


def test_columns_that_cannot_be_written_are_told(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], "customer STRING, total DOUBLE")
    with pytest.raises(PipelineRefused, match=r"^shop.py:7: totals has the key custmer.*did you mean customer\?"):
        encoded(frame, dataset(Kind.TABLE, "custmer"))
    with pytest.raises(PipelineRefused, match=r"totals has the column customer twice"):
        encoded(frame.crossJoin(frame), dataset())
