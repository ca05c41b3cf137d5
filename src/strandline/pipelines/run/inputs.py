"""Frames of what a dataset reads.

A stream is read record by record from its topic. A table is a static frame: the whole topic is read again for every
batch of the reader, and of each key the newest record counts. That is always what the table is at the time of
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

from strandline.client.security import spark_options_of
from strandline.pipelines.failures import guess, refused
from strandline.pipelines.language.json_values import CORRUPT, READ, RowReading, ddl, is_known, source_parses
from strandline.pipelines.language.model import Kind, KnownDataset, SourceTopic
from strandline.pipelines.run.encoding import DELETED, column, decode, header, is_record
from strandline.pipelines.run.source_schemas import SourceSchemas
from strandline.spark.error_translation import explain_failure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LETTER: Final = "key,value,topic,partition,offset"
_REASON: Final = "__reason"


class Reader:
    """The maker of the frames of one query."""

    def __init__(
        self,
        spark: SparkSession,
        bootstrap: str,
        *,
        group: str,
        options: Mapping[str, str],
        schemas: SourceSchemas | None = None,
    ) -> None:
        self._spark = spark
        self._options = {**spark_options_of(bootstrap), **options}
        self._group = group
        self._schemas = schemas or SourceSchemas(bootstrap)

    def records(self, topic: str, columns: str, options: Mapping[str, str] | None = None) -> DataFrame:
        """Return a stream of a topic, from its beginning unless `options` say otherwise."""
        reader = self._spark.readStream.format("strandline").options(**self._options)
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest").option("columns", columns)
        return reader.option("kafka.group.id", self._group).options(**(options or {})).load()

    def newest(self, topic: str, options: Mapping[str, str] | None = None) -> DataFrame:
        """`key` and `value` of the newest record of each key that is not deleted."""
        records = self._batch(topic, options or {}, {}).where("key IS NOT NULL")
        newest = records.groupBy("key").agg(F.max_by(F.struct("value"), "offset").alias("newest"))
        return newest.select("key", F.col("newest.value").alias("value")).where("value IS NOT NULL")

    def _batch(self, topic: str, options: Mapping[str, str], shape: Mapping[str, str]) -> DataFrame:
        # Of the options those of the client count: how much is read at once, and from where, is said of streams.
        said = {**self._options, **options}
        client = {name: value for name, value in said.items() if name.lower().startswith("kafka.")}
        reader = self._spark.read.format("strandline").options(**client, **shape).option("subscribe", topic)
        # Spark plans a frame of a Python source once for all its uses, but again where it can push a filter down:
        # without this one a table would stay what it was when the query began.
        return reader.option("columns", "key,value,offset").load().where("offset >= 0")

    # Datasets

    def dataset(self, of: KnownDataset, *, as_changes: bool) -> DataFrame:
        schema = StructType.fromJson(json.loads(of.schema))
        if of.reader_schema:
            return self._by_registry(of, schema, as_changes=as_changes)
        if of.kind is Kind.STREAM:
            return self._stream(of, schema)
        if as_changes:
            return self._changes(of.topic, schema, of.key)
        return decode(self.newest(of.topic), schema, of.key)

    def _stream(self, of: KnownDataset, schema: StructType) -> DataFrame:
        if of.key or is_record(schema, ()) or not source_parses(schema):
            return decode(self.records(of.topic, "key,value"), schema, of.key)
        read = self.records(of.topic, "", {"valueSchema": ddl(schema.fields)})
        # What we wrote is JSON in Spark's way, where the numbers that JSON has not (NaN, Infinity) are texts.
        again = F.from_json(F.col(CORRUPT), schema, READ)
        columns = [
            F.when(F.col(CORRUPT).isNull(), column(name)).otherwise(again.getField(name)).alias(name)
            for name in schema.names
        ]
        return read.select(*columns)

    def _by_registry(self, of: KnownDataset, schema: StructType, *, as_changes: bool) -> DataFrame:
        """Return the rows of a dataset whose values are written by a schema of a registry."""
        from strandline.spark.registry.reader_schema import ReaderSchema
        from strandline.spark.source.columns import reader_ddl

        of_value = StructType.fromDDL(reader_ddl(ReaderSchema.of_option(of.reader_schema)))
        assert isinstance(of_value, StructType), "columns, and no type"
        in_key = [schema[each] for each in of.key]
        fields = [*in_key, *(each for each in of_value.fields if each.name not in of.key)]
        rows = RowReading(StructType(fields), of.key, reader_schema=of.reader_schema)
        if of.kind.has_keys and not as_changes:
            records = self._newest_rows(SourceTopic(of.topic, of.topic), rows)
        else:
            records = self.records(of.topic, "key,value" if of.key else "", rows.options)
        kept = []
        if as_changes:
            records, kept = records.withColumn(DELETED, F.expr("value IS NULL")), [DELETED]
        records = rows.refusing(records, of.topic, of.topic).select(*rows.columns(), *kept)
        # What was written has the types of the schema; what is read has those of the function that wrote it.
        return records.select(*(column(each.name).cast(each.dataType).alias(each.name) for each in schema), *kept)

    def _changes(self, topic: str, schema: StructType, key: tuple[str, ...]) -> DataFrame:
        records = self.records(topic, "key,value").where("key IS NOT NULL")
        return decode(records.withColumn(DELETED, F.expr("value IS NULL")), schema, key, keep=[DELETED])

    # Sources

    def source(self, of: SourceTopic, *, as_changes: bool) -> DataFrame:
        if of.schema is None:
            return self._marked(self.records(of.topic, "key,value,timestamp", of.options), of)
        rows = self._rows(of)
        kept = [] if of.is_table else _columns(of)
        if of.is_table and not as_changes:
            records = self._newest_rows(of, rows)
        else:
            of_record = ["key", "value"] if of.is_table else ["value"] if rows.needs_value else []
            names = ",".join(dict.fromkeys([*kept, *of_record]))
            records = self.records(of.topic, names, {**_without_columns(of), **rows.options})
        if as_changes:
            records = records.withColumn(DELETED, F.expr("value IS NULL"))
            kept = [DELETED]
        records = rows.parsed(records)
        if of.dead_letters is not None:
            records = records.where(rows.misfit().isNull())
        else:
            records = rows.refusing(records, of.name, of.topic)
        return self._marked(records.select(*rows.columns(), *kept), of)

    def _newest_rows(self, of: SourceTopic, rows: RowReading) -> DataFrame:
        """As `newest`, with what the source makes of keys and values. Records without a key are among them."""
        records = self._batch(of.topic, {**of.options}, rows.options)
        if not rows.needs_value:
            # What was parsed goes on; of the value only whether there is one.
            records = records.withColumn("value", F.expr("if(value IS NULL, NULL, X'')"))
        columns = [each for each in records.columns if each not in ("key", "offset")]
        newest = records.groupBy("key").agg(F.max_by(F.struct(*columns), "offset").alias("newest"))
        return newest.select("key", "newest.*").where("value IS NOT NULL")

    def dead_letters(self, of: SourceTopic) -> DataFrame:
        """Return the records of a source that do not fit its schema, as they are, with where they come from and why."""
        rows = self._rows(of)
        records = rows.parsed(self.records(of.topic, _LETTER, {**_without_columns(of), **rows.options}))
        bad = records.withColumn(_REASON, rows.misfit()).where(F.col(_REASON).isNotNull())
        told = {f"source.{each}": F.col(each) for each in ("topic", "partition", "offset")} | {"reason": F.col(_REASON)}
        headers = F.array(*(header(name, value) for name, value in told.items()))
        return bad.select("key", "value", headers.alias("headers"))

    def _rows(self, of: SourceTopic) -> RowReading:
        reader = self._schemas.of(of)
        return RowReading(self._schema(of), of.key, reader_schema=None if reader is None else reader.option())

    def _schema(self, of: SourceTopic) -> StructType:
        try:
            schema = StructType.fromDDL(self._schemas.ddl(of))
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
            if not is_known(schema[each].dataType):
                raise refused(
                    f"the source {of.name} has the key {each} of the type "
                    f"{schema[each].dataType.simpleString().upper()}, which cannot be read from keys: say STRING",
                    of.at,
                )
        return schema

    def _marked(self, frame: DataFrame, of: SourceTopic) -> DataFrame:
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


def _columns(of: SourceTopic) -> list[str]:
    """Columns of the record that the user wants beside those of the value: `options={"columns": "timestamp"}`."""
    said = next((value for name, value in of.options.items() if name.lower() == "columns"), "")
    return [each.strip() for each in said.split(",") if each.strip()]


def _without_columns(of: SourceTopic) -> dict[str, str]:
    return {name: value for name, value in of.options.items() if name.lower() != "columns"}
