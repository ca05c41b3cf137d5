"""Frames of what a dataset reads.

A stream is read record by record from its topic. A table is a static frame: the whole topic is read anew for every
batch of whoever reads it, and of each key the newest record counts. That is always what the table is at the time of
the batch, costs a read of the topic per batch, and fits tables of up to some million keys; for larger ones read the
table's changes, which is a stream.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from strandline.pipelines.encoding import DELETED, decode
from strandline.pipelines.failures import guess, refused
from strandline.pipelines.model import Kind, KnownDataset, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CORRUPT: Final = "_corrupt"


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

    def newest(self, topic: str) -> DataFrame:
        """`key` and `value` of the newest record of each key that is not deleted."""
        reader = self._spark.read.format("strandline").options(**self._options).option("subscribe", topic)
        records = reader.option("columns", "key,value,offset").load().where("key IS NOT NULL")
        newest = records.groupBy("key").agg(F.max_by(F.struct("value"), "offset").alias("newest"))
        return newest.select("key", F.col("newest.value").alias("value")).where("value IS NOT NULL")

    # Datasets

    def dataset(self, of: KnownDataset, *, as_changes: bool) -> DataFrame:
        schema = StructType.fromJson(json.loads(of.schema))
        if of.kind is Kind.STREAM:
            return decode(self.records(of.topic, "key,value"), schema, of.key)
        if as_changes:
            return self._changes(of.topic, schema, of.key, {})
        return decode(self.newest(of.topic), schema, of.key)

    def _changes(self, topic: str, schema: StructType, key: tuple[str, ...], options: Mapping[str, str]) -> DataFrame:
        records = self.records(topic, "key,value", options).where("key IS NOT NULL")
        return decode(records.withColumn(DELETED, F.expr("value IS NULL")), schema, key, keep=[DELETED])

    # Sources

    def source(self, of: Source, *, as_changes: bool) -> DataFrame:
        if of.schema is None:
            return self._marked(self.records(of.topic, "key,value,timestamp", of.options), of)
        schema = self._schema(of)
        if of.is_table:
            if as_changes:
                return self._changes(of.topic, schema, of.key, of.options)
            return decode(self.newest(of.topic), schema, of.key)
        if of.dead_letters is None:
            read = self._json_values(of, "failfast", "")
            return self._marked(read, of)
        read = self._json_values(of, "permissive", "")
        return self._marked(read.where(f"{_CORRUPT} IS NULL").drop(_CORRUPT), of)

    def dead_letters(self, of: Source) -> DataFrame:
        """The records of a source whose values do not fit its schema, as they are, with where they come from."""
        bad = self._json_values(of, "permissive", "key,value,topic,partition,offset").where(f"{_CORRUPT} IS NOT NULL")
        headers = F.array(
            *(
                F.struct(F.lit(name).alias("key"), F.col(column).cast("string").cast("binary").alias("value"))
                for name, column in (
                    ("source.topic", "topic"),
                    ("source.partition", "partition"),
                    ("source.offset", "offset"),
                )
            )
        )
        return bad.select("key", "value", headers.alias("headers"))

    def _json_values(self, of: Source, mode: str, columns: str) -> DataFrame:
        assert of.schema is not None
        return self.records(of.topic, columns, {"valueSchema": of.schema, "mode": mode, **of.options})

    def _schema(self, of: Source) -> StructType:
        assert of.schema is not None
        schema = StructType.fromDDL(of.schema)
        assert isinstance(schema, StructType)
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
        if of.watermark.column not in frame.columns:
            raise refused(
                f"the source {of.name} has a watermark on {of.watermark.column}, which is no column of it"
                f"{guess(of.watermark.column, frame.columns)}: correct the name",
                of.at,
            )
        return frame.withWatermark(of.watermark.column, of.watermark.delay)
