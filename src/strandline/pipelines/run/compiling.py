"""A pipeline becomes queries: the functions are called with frames of what they read, in order.

Every dataset with a topic is one query, and so are the dead letters of a source. A dataset inside the pipeline is read
from its topic like any other, so each query can fail, be restarted and catch up alone. Temporary views have no topic:
they are called again for each query that reads them.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from strandline.client.security import spark_options_of
from strandline.pipelines.failures import PipelineRefused, refused
from strandline.pipelines.language.declaring import running_on
from strandline.pipelines.language.graph import check_inputs, dead_letters_behind, sources_of
from strandline.pipelines.language.loading import modules_of
from strandline.pipelines.language.model import (
    Dataset,
    Kind,
    KnownDataset,
    Pipeline,
    Place,
    SourceTopic,
    dead_letters_name,
)
from strandline.pipelines.run import encoding
from strandline.pipelines.run.inputs import Reader
from strandline.pipelines.run.source_schemas import SourceSchemas
from strandline.spark.error_translation import explain_failure
from strandline.spark.sink import update_mode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True)
class Wiring:
    """Which cluster, and which topics there: versions of a pipeline differ in this alone."""

    bootstrap: str
    write_topics: Mapping[str, str] = field(default_factory=dict)
    """By dataset, where it writes; without an entry its declared topic."""
    read_topics: Mapping[str, str] = field(default_factory=dict)
    """By dataset of this pipeline, where those that read it find it; without an entry where it writes."""
    known: Mapping[str, KnownDataset] = field(default_factory=dict)
    """Datasets of other pipelines."""
    suffix: str = ""
    """Of a version that is not the active one (`.v2`): for dead letters, routed rows and consumer groups."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Of the source, for all queries: maxOffsetsPerTrigger ..."""
    schemas_at: str = ""
    """The cluster whose registry has the schemas of sources; empty: the same."""
    sources: Mapping[str, Mapping[str, SourceTopic]] = field(default_factory=dict)
    """By query and name, sources that begin where the query began; the others are as the file declares them."""

    def source(self, query: str, declared: SourceTopic) -> SourceTopic:
        return self.sources.get(query, {}).get(declared.name, declared)

    def write_topic(self, dataset: Dataset) -> str:
        return self.write_topics.get(dataset.name, dataset.topic)

    def read_topic(self, dataset: Dataset) -> str:
        return self.read_topics.get(dataset.name) or self.write_topic(dataset)


@dataclass(frozen=True)
class CompiledQuery:
    name: str
    """The dataset's, or `dead letters of <source>`."""
    frame: DataFrame
    """Streaming, with the columns of the sink."""
    topic: str | None
    """None: the rows say it, in the column `topic`."""
    output_mode: str
    schema: str
    """Of the rows that readers get back: a StructType in Spark's JSON."""
    key: tuple[str, ...]
    kind: Kind
    default_topic: str
    """The dataset's own, to be made before the query starts."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Of the sink."""
    trigger: str | None = None
    partitions: int | None = None
    reads: tuple[str, ...] = ()
    """Topics, those of streams first."""
    streams: tuple[str, ...] = ()
    """Those that are read as streams."""
    rows: DataFrame | None = None
    """What the function returned; None: there is none, a frame of ours does all."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Topics by the names of the inputs, which are aliases in the plan of `rows`."""
    schemas: tuple[str, ...] = ()
    """By which versions of a registry's subjects it reads sources, in words."""
    reader_schema: str = ""
    """By what its values are read, if they are written by a schema of a registry."""

    @property
    def known(self) -> KnownDataset:
        return KnownDataset(self.default_topic, self.schema, self.key, self.kind, self.reader_schema)

    def writer(self, bootstrap: str, checkpoint: str) -> DataStreamWriter:
        """Ready for a name, a trigger and start()."""
        options = {**self.options, **spark_options_of(bootstrap), "checkpointLocation": checkpoint}
        if self.topic is not None:
            options["topic"] = self.topic
        writer = self.frame.writeStream.outputMode(self.output_mode)
        if self.output_mode == "append":
            return writer.format("strandline").options(**options)
        return update_mode.write_updates(writer, options)


def group_of(pipeline: Pipeline, query: str, suffix: str) -> str:
    """Return the consumer group that shows how far a query is."""
    return f"pipeline.{pipeline.name}.{query.replace(' ', '-')}{suffix}"


def compile(spark: SparkSession, pipeline: Pipeline, where: Wiring) -> list[CompiledQuery]:
    """Return the queries of a pipeline, each after those it reads; PipelineRefused for what the frames show."""
    check_inputs(pipeline, where.known)
    _send_by_value(pipeline)
    compiler = _Compiler(spark, pipeline, where)
    with running_on(spark):
        letters = [compiler.letters(each) for each in pipeline.sources.values() if each.dead_letters is not None]
        return letters + [compiler.query(each) for each in pipeline.written]


def _send_by_value(pipeline: Pipeline) -> None:
    """Functions of the file run in Spark's workers, which cannot import it."""
    from pyspark import cloudpickle

    for module in modules_of(pipeline):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


class _Compiler:
    def __init__(self, spark: SparkSession, pipeline: Pipeline, where: Wiring) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._where = where
        self._written: dict[str, KnownDataset] = {}
        self._schemas = SourceSchemas(where.schemas_at or where.bootstrap)

    # Queries

    def query(self, dataset: Dataset) -> CompiledQuery:
        inputs = _Inputs(dataset.name, self._reader(dataset.name), self)
        frame = inputs.frame_of(dataset)
        if not frame.isStreaming:
            raise refused(
                f"{dataset.name} reads no stream, so nothing would ever make it run: read a stream, or the changes of "
                f"a table (changes={_example(dataset)!r})",
                dataset.at,
            )
        output_mode = _output_mode(self._spark, frame, dataset)
        written_by = self._schemas.of(dataset)
        letters = dead_letters_behind(self._pipeline, dataset)
        encoded = encoding.encode(frame, dataset, letters=letters, written_by=written_by)
        reader_schema = "" if written_by is None else written_by.option()
        routes = "topic" in encoded.columns
        topic = self._where.write_topic(dataset)
        if routes:
            encoded = _routed(encoded, topic, self._where.suffix)
        rows = encoding.row_schema(frame.schema, dataset).json()
        self._written[dataset.name] = KnownDataset(
            self._where.read_topic(dataset), rows, dataset.key, dataset.kind, reader_schema
        )
        return CompiledQuery(
            name=dataset.name,
            frame=encoded,
            topic=None if routes else topic,
            output_mode=output_mode,
            schema=rows,
            key=dataset.key,
            kind=dataset.kind,
            default_topic=topic,
            options=dataset.options,
            trigger=dataset.trigger,
            partitions=dataset.partitions,
            reads=inputs.topics,
            streams=inputs.streams,
            rows=frame,
            inputs=inputs.names,
            schemas=self._schemas.words(sources_of(self._pipeline, dataset)),
            reader_schema=reader_schema,
        )

    def letters(self, source: SourceTopic) -> CompiledQuery:
        assert source.dead_letters is not None
        name = dead_letters_name(source.name)
        frame = self._reader(name.replace(" ", "-")).dead_letters(self._where.source(name, source))
        topic = source.dead_letters + self._where.suffix
        schema = frame.select("key", "value").schema.json()
        reads = (source.topic,)
        return CompiledQuery(
            name,
            frame,
            topic,
            "append",
            schema,
            (),
            Kind.STREAM,
            default_topic=topic,
            reads=reads,
            streams=reads,
            schemas=self._schemas.words([source]),
        )

    # Frames

    def input_frame(self, query: str, name: str, reader: Reader, *, as_changes: bool) -> tuple[DataFrame, str, bool]:
        """Return the frame of a source or a written dataset, its topic, and whether it is a stream."""
        if name in self._pipeline.sources:
            source = self._where.source(query, self._pipeline.sources[name])
            is_stream = as_changes or not source.is_table
            return reader.source(source, as_changes=as_changes), source.topic, is_stream
        known = self._written.get(name) or self._where.known[name]
        is_stream = as_changes or known.kind is Kind.STREAM
        return reader.dataset(known, as_changes=as_changes), known.topic, is_stream

    def temporary(self, name: str) -> Dataset | None:
        dataset = self._pipeline.datasets.get(name)
        return dataset if dataset is not None and dataset.kind is Kind.TEMPORARY else None

    def _reader(self, query: str) -> Reader:
        group = group_of(self._pipeline, query, self._where.suffix)
        return Reader(
            self._spark, self._where.bootstrap, group=group, options=self._where.options, schemas=self._schemas
        )


class _Inputs:
    """The frames of one query: an input that is read in two places of it is one frame."""

    def __init__(self, query: str, reader: Reader, compiler: _Compiler) -> None:
        self._query = query
        self._reader = reader
        self._compiler = compiler
        self._frames: dict[tuple[str, bool], DataFrame] = {}
        self._topics: dict[str, bool] = {}
        self.names: dict[str, str] = {}
        """Topics, by input."""

    @property
    def streams(self) -> tuple[str, ...]:
        return tuple(topic for topic, is_stream in self._topics.items() if is_stream)

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted(self._topics, key=lambda topic: not self._topics[topic]))

    def frame_of(self, dataset: Dataset) -> DataFrame:
        frames = {each: self._input(each, each in dataset.changes) for each in dataset.inputs}
        return _called(dataset, frames)

    def _input(self, name: str, as_changes: bool) -> DataFrame:
        wanted = (name, as_changes)
        if wanted not in self._frames:
            temporary = self._compiler.temporary(name)
            if temporary is not None:
                self._frames[wanted] = self.frame_of(temporary)
            else:
                frame, topic, is_stream = self._compiler.input_frame(
                    self._query, name, self._reader, as_changes=as_changes
                )
                # The alias shows in the plan where the input ends and what the file does with it begins.
                self._frames[wanted] = frame.alias(name)
                self.names[name] = topic
                self._topics[topic] = self._topics.get(topic, False) or is_stream
        return self._frames[wanted]


def _called(dataset: Dataset, frames: dict[str, DataFrame]) -> DataFrame:
    """Call the function, and return its frame; what it raises becomes a sentence with its place."""
    function: Callable[..., Any] = dataset.function
    try:
        frame = function(**frames)
    except PipelineRefused:
        raise
    except Exception as error:
        raise refused(f"{dataset.name} failed: {_words(error)}", _raised_at(error, dataset)) from error
    if not hasattr(frame, "isStreaming"):
        raise refused(
            f"{dataset.name} returned {'nothing' if frame is None else type(frame).__name__}: return a data frame",
            dataset.at,
        )
    return frame  # type: ignore[no-any-return]


def _output_mode(spark: SparkSession, frame: DataFrame, dataset: Dataset) -> str:
    """Return the declared mode, or the first of those that fit the kind and that Spark allows for this frame.

    Spark would look at it when the query starts, after others have. Sessions and joins of two streams have no update
    mode: their rows never change, so a table of them appends.
    """
    modes = (
        [dataset.mode] if dataset.mode is not None else ["update", "append"] if dataset.kind.has_keys else ["append"]
    )
    refusals = []
    for mode in modes:
        error = _mode_refusal(spark, frame, mode)
        if error is None:
            return mode
        refusals.append(error)
    if dataset.kind is Kind.STREAM and _mode_refusal(spark, frame, "update") is None:
        raise refused(
            f"{dataset.name} is a stream, and its rows change as more comes: make it a table, "
            "@pipeline.table(key=...), or give the source a watermark and group by a window of its time "
            f"(Spark says: {explain_failure(refusals[0])})",
            dataset.at,
        ) from refusals[0]
    raise refused(f"{dataset.name} failed: {explain_failure(refusals[0])}", dataset.at) from refusals[0]


def _mode_refusal(spark: SparkSession, frame: DataFrame, mode: str) -> Exception | None:
    from pyspark.errors import AnalysisException

    jvm: Any = spark._jvm
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    check = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming
    try:
        check(frame._jdf.queryExecution().analyzed(), getattr(modes, mode.capitalize())())
    except AnalysisException as error:
        return error
    return None


def _words(error: Exception) -> str:
    words = explain_failure(error)
    # Spark's messages speak for themselves; those of Python often do not without the kind of exception.
    return words if type(error).__module__.startswith(("pyspark", "py4j")) else f"{type(error).__name__}: {words}"


def _raised_at(error: Exception, dataset: Dataset) -> Place | None:
    """Return the last line of the file itself on the way to the exception."""
    at = dataset.at
    frames = traceback.extract_tb(error.__traceback__)
    lines = [each.lineno for each in frames if at is not None and each.filename == at.file and each.lineno]
    return at if at is None or not lines else Place(at.file, lines[-1])


def _routed(frame: DataFrame, topic: str, suffix: str) -> DataFrame:
    from pyspark.sql import functions as F

    there = F.concat(F.col("topic"), F.lit(suffix)) if suffix else F.col("topic")
    return frame.withColumn("topic", F.coalesce(there, F.lit(topic)))


def _example(dataset: Dataset) -> list[str]:
    return [dataset.inputs[0]] if dataset.inputs else ["a_table"]
