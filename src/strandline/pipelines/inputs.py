"""Frames of what a dataset reads.

A stream is read record by record from its topic. A table is a static frame: the whole topic is read anew for every
batch of whoever reads it, and of each key the newest record counts. That is always what the table is at the time of
the batch, costs a read of the topic per batch, and fits tables of up to some hundred thousand keys; for larger ones
read the table's changes, which is a stream.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from strandline.pipelines.encoding import DELETED, column, decode, decode_json, is_record
from strandline.pipelines.failures import guess, refused
from strandline.pipelines.json_values import CORRUPT, READ, ddl, refusing, source_parses
from strandline.pipelines.model import Kind, KnownDataset, Source
from strandline.spark.explain import explain_failure

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_LETTER: Final = "key,value,topic,partition,offset"
_RECORD: Final = "__record"


class Reader:
    """Makes the frames of one query."""

    def __init__(self, spark: SparkSession, bootstrap: str, *, group: str, options: Mapping[str, str]) -> None:
        self._spark = spark
        self._options = {"kafka.bootstrap.servers": bootstrap, **options}
        self._group = group

    def records(self, topic: str, columns: str, options: Mapping[str, str] | None = None) -> DataFrame:
        """A stream of a topic, from its beginning unless `options` say otherwise."""
        reader = self._spark.readStream.format("strandline").options(**self._options)
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest").option("columns", columns)
        return reader.option("kafka.group.id", self._group).options(**(options or {})).load()

    def newest(self, topic: str, options: Mapping[str, str] | None = None) -> DataFrame:
        """`key` and `value` of the newest record of each key that is not deleted."""
        # Of the options those of the client count: how much is read at once, and from where, is said of streams.
        said = {**self._options, **(options or {})}
        client = {name: value for name, value in said.items() if name.lower().startswith("kafka.")}
        reader = self._spark.read.format("strandline").options(**client).option("subscribe", topic)
        # Spark plans a frame of a Python source once for all its uses, but anew where it can push a filter down:
        # without this one a table would stay what it was when the query began.
        records = reader.option("columns", "key,value,offset").load().where("key IS NOT NULL")
        newest = records.groupBy("key").agg(F.max_by(F.struct("value"), "offset").alias("newest"))
        return newest.select("key", F.col("newest.value").alias("value")).where("value IS NOT NULL")

    # Datasets

    def dataset(self, of: KnownDataset, *, as_changes: bool) -> DataFrame:
        schema = StructType.fromJson(json.loads(of.schema))
        if of.kind is Kind.STREAM:
            return self._stream(of, schema)
        if as_changes:
            return self._changes(of.topic, schema, of.key)
        return decode(self.newest(of.topic), schema, of.key)

    def _stream(self, of: KnownDataset, schema: StructType) -> DataFrame:
        if of.key or is_record(schema, ()) or not source_parses(schema):
            return decode(self.records(of.topic, "key,value"), schema, of.key)
        read = self.records(of.topic, "", {"valueSchema": ddl(schema)})
        # What we wrote is JSON in Spark's way, where the numbers that JSON has not (NaN, Infinity) are texts.
        again = F.from_json(F.col(CORRUPT), schema, READ)
        columns = [
            F.when(F.col(CORRUPT).isNull(), column(name)).otherwise(again.getField(name)).alias(name)
            for name in schema.names
        ]
        return read.select(*columns)

    def _changes(self, topic: str, schema: StructType, key: tuple[str, ...]) -> DataFrame:
        return decode(_marked_deleted(self.records(topic, "key,value")), schema, key, keep=[DELETED])

    # Sources

    def source(self, of: Source, *, as_changes: bool) -> DataFrame:
        if of.schema is None:
            return self._marked(self.records(of.topic, "key,value,timestamp", of.options), of)
        schema = self._schema(of)
        if of.is_table and not as_changes:
            read = decode_json(self.newest(of.topic, of.options), schema, of.key, with_corrupt=True)
        elif of.is_table:
            records = _marked_deleted(self.records(of.topic, "key,value", _without_columns(of)))
            read = decode_json(records, schema, of.key, keep=[DELETED], with_corrupt=True)
        else:
            read = self._values(of, schema, _columns(of))
        if of.dead_letters is not None:
            return self._marked(read.where(F.col(CORRUPT).isNull()).drop(CORRUPT), of)
        return self._marked(refusing(read, of.name, of.topic), of)

    def _values(self, of: Source, schema: StructType, columns: list[str]) -> DataFrame:
        """The schema's columns, `columns` of the record, and `_corrupt`."""
        options = _without_columns(of)
        if source_parses(schema):
            return self.records(of.topic, ",".join(columns), {**options, "valueSchema": ddl(schema)})
        records = self.records(of.topic, ",".join({"value": None} | dict.fromkeys(columns)), options)
        return decode_json(records, schema, (), keep=columns, with_corrupt=True)

    def dead_letters(self, of: Source) -> DataFrame:
        """The records of a source whose values do not fit its schema, as they are, with where they come from."""
        schema, options = self._schema(of), _without_columns(of)
        if source_parses(schema) and not of.is_table:
            bad = self.records(of.topic, _LETTER, {**options, "valueSchema": ddl(schema)}).where(
                F.col(CORRUPT).isNotNull()
            )
        else:
            records = self.records(of.topic, _LETTER, options)
            records = records.select("key", "value", F.struct(*_LETTER.split(",")).alias(_RECORD))
            read = decode_json(records, schema, of.key, keep=[_RECORD], with_corrupt=True)
            bad = read.where(F.col(CORRUPT).isNotNull()).select(f"{_RECORD}.*")
        came_from = F.array(*(_header(f"source.{each}", bad[each]) for each in ("topic", "partition", "offset")))
        return bad.select("key", "value", came_from.alias("headers"))

    def _schema(self, of: Source) -> StructType:
        assert of.schema is not None
        try:
            schema = StructType.fromDDL(of.schema)
        except PySparkException as error:
            raise refused(f"the schema of the source {of.name} is none: {explain_failure(error)}", of.at) from error
        if not isinstance(schema, StructType):
            raise refused(f"the schema of the source {of.name} names no columns: say it like 'id BIGINT, name STRING'")
        for each in of.key:
            if each not in schema.names:
                raise refused(
                    f"the source {of.name} has the key {each}, which is no column of its schema"
                    f"{guess(each, schema.names)}: add it",
                    of.at,
                )
        return schema

    def _marked(self, frame: DataFrame, of: Source) -> DataFrame:
        if of.watermark is None:
            return frame
        name = of.watermark.column
        if name not in frame.columns:
            raise refused(
                f"the source {of.name} has a watermark on {name}, which is no column of it"
                f"{guess(name, frame.columns)}: correct the name",
                of.at,
            )
        if not frame.schema[name].dataType.simpleString().startswith("timestamp"):
            raise refused(
                f"the source {of.name} has a watermark on {name}, which is no time: make it a TIMESTAMP in the schema",
                of.at,
            )
        return frame.withWatermark(name, of.watermark.delay)


def _columns(of: Source) -> list[str]:
    """Columns of the record that the user wants beside those of the value: `options={"columns": "timestamp"}`."""
    said = next((value for name, value in of.options.items() if name.lower() == "columns"), "")
    return [each.strip() for each in said.split(",") if each.strip()]


def _without_columns(of: Source) -> dict[str, str]:
    return {name: value for name, value in of.options.items() if name.lower() != "columns"}


def _marked_deleted(records: DataFrame) -> DataFrame:
    return records.where("key IS NOT NULL").withColumn(DELETED, F.expr("value IS NULL"))


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))
