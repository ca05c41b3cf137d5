"""One streaming query of a pipeline: started, watched, stopped."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from strandline.pipelines.failures import PipelineRefused
from strandline.pipelines.run.checkpoint_files import HALF_MADE
from strandline.pipelines.run.compiling import CompiledQuery
from strandline.pipelines.versions.state import checkpoint_of, query_name_of
from strandline.spark.error_translation import explain_failure, plainly

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

EVERY_DEFAULT: Final = "500 milliseconds"
"""Between batches. Without a pause a query that has nothing to do asks the log a hundred times a second."""
BOUNDARY_S: Final = 5.0
"""How long a batch under way may go on when the query is to stop."""
LOOK_S: Final = 0.05

STARTS_AT_ONCE: Final = 2
"""Each start begins a Python process, for which Spark waits ten seconds: many at once starve each other."""
FIRST_BATCH_S: Final = 20.0
"""How long queries that read from others wait for the first batch of those. Together all would be slow, and what has
nothing to read yet would take its share."""
RESTARTS_MAX: Final = 5
"""Of a query whose Python process did not come up in that time: nothing was read or written."""
_NOT_UP: Final = "Python worker failed to connect back"
_INITIALIZING: Final = "Initializing sources"

# What Spark raises if a checkpoint was made by another plan: other columns in its state, other operators, other inputs.
_OTHER_PLAN: Final = (
    "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
    "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
    "STATE_STORE_KEY_ROW_FORMAT_VALIDATION_FAILURE",
    "STATE_STORE_VALUE_ROW_FORMAT_VALIDATION_FAILURE",
    "STATE_STORE_COLUMN_FAMILY_SCHEMA_INCOMPATIBLE",
    "STATE_STORE_INVALID_CONFIG_AFTER_RESTART",
    "STATEFUL_PROCESSOR_CANNOT",
    "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA",
    "STREAMING_STATE_SCHEMA",
    "UNRECOVERABLE_STATE_STORE",
    "sources in the checkpoint offsets and now there are",
    "is gone, or is no longer subscribed to",
    "Provided key schema does not match existing",
    "Provided value schema does not match existing",
)


def use(spark: SparkSession) -> None:
    """Make the session the one of this thread: where none is, Spark finds no format that is written in Python."""
    type(spark)._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)


def start(
    compiled: CompiledQuery, pipeline: str, version: int, *, bootstrap: str, checkpoints: str, once: bool, every: str
) -> StreamingQuery:
    checkpoint = checkpoint_of(checkpoints, pipeline, version, compiled.name)
    writer = compiled.writer(bootstrap, checkpoint).queryName(query_name_of(pipeline, version, compiled.name))
    if once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=compiled.trigger or every)
    with plainly():
        return writer.start()


def waits(query: StreamingQuery) -> bool:
    """Return whether it has nothing to do."""
    return not query.isActive or str(query.status["message"]).startswith("Waiting")


def is_starting(query: StreamingQuery) -> bool:
    """Return whether it has yet to begin with its first batch."""
    return bool(query.isActive and query.status["message"] == _INITIALIZING)


def may_restart(query: StreamingQuery) -> bool:
    """Return whether it ended because the machine was too busy, and would have gone on otherwise."""
    error = query.exception()
    return error is not None and _NOT_UP in str(error)


def stop(query: StreamingQuery, *, within_s: float = BOUNDARY_S) -> bool:
    """Stop between two batches if that is soon; else in the middle of one, which the next run writes, and True."""
    until = time.monotonic() + within_s
    while (is_busy := bool(query.isActive and query.status["isTriggerActive"])) and time.monotonic() < until:
        time.sleep(LOOK_S)
    query.stop()
    return is_busy


def failure_of(query: StreamingQuery, dataset: str, pipeline: str) -> PipelineRefused | None:
    """Return why a query ended, in a sentence; None if it did not fail."""
    error = query.exception()
    if error is None:
        return None
    failed = PipelineRefused(sentence_of(error, dataset, pipeline))
    failed.__cause__ = error
    return failed


def sentence_of(error: BaseException, dataset: str, pipeline: str) -> str:
    words = explain_failure(error)
    text = str(error)
    if any(each in text for each in _OTHER_PLAN):
        first = words.partition(". ")[0].rstrip(".")
        return (
            f"{dataset} cannot go on from its checkpoint, which was made by another form of the file ({first}): "
            f"`strandline pipeline rebuild {pipeline}` runs this one from the beginning as a new version, or put the "
            "file back as it was; the checkpoint is untouched"
        )
    return f"{dataset} failed: {words}"


def levels(queries: list[CompiledQuery]) -> list[list[CompiledQuery]]:
    """Queries that may run at the same time, one list after the other: each reads what those before it wrote."""
    placed: dict[str, int] = {}
    found: list[list[CompiledQuery]] = []
    for query in queries:
        level = max((placed[topic] + 1 for topic in query.reads if topic in placed), default=0)
        placed[query.default_topic] = max(level, placed.get(query.default_topic, 0))
        if level == len(found):
            found.append([])
        found[level].append(query)
    return found


def staggered(queries: list[CompiledQuery], last: set[str]) -> list[list[CompiledQuery]]:
    """Queries in the order in which they start when they shall run for long; those named `last` come last."""
    found = levels([each for each in queries if each.name not in last])
    rest = [each for each in queries if each.name in last]
    return [*found, rest] if rest else found


def checkpoint_exists(spark: SparkSession, checkpoint: str) -> bool:
    """Return whether a checkpoint has a query's id and whole state, on any file system that Spark knows."""
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(f"{checkpoint}/metadata")
    mark = jvm.org.apache.hadoop.fs.Path(f"{checkpoint}{HALF_MADE}")
    with plainly():
        files = path.getFileSystem(spark._jsc.hadoopConfiguration())
        return bool(files.exists(path)) and not files.exists(mark)


def stateful_operators(frame: DataFrame) -> tuple[str, ...]:
    """Return the parts of a streaming frame for which Spark keeps state, in the order of the plan."""
    found: list[str] = []

    def visit(node: Any) -> None:
        if not node.isStreaming():
            return
        children = node.children()
        inner = [children.apply(at) for at in range(children.size())]
        name = str(node.nodeName())
        if name in _STATEFUL:
            found.append(_STATEFUL[name])
        elif name == "Join" and sum(bool(each.isStreaming()) for each in inner) == 2:
            found.append("join of two streams")
        for each in inner:
            visit(each)

    visit(frame._jdf.queryExecution().analyzed())
    return tuple(reversed(found))


_STATEFUL: Final = {
    "Aggregate": "aggregate",
    "Deduplicate": "deduplication",
    "DeduplicateWithinWatermark": "deduplication",
    "Distinct": "deduplication",
    "TransformWithState": "transformWithState",
    "TransformWithStateInPySpark": "transformWithState",
    "TransformWithStateInPandas": "transformWithState",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "FlatMapGroupsWithState": "mapGroupsWithState",
    "GlobalLimit": "limit",
}
