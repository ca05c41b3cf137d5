"""Spark's part in the life of a pipeline, in plain Python: batches, checkpoints in Spark's form, state.

All else is the product's: the registry, the runner, recovery, rebuilds; the source, which plans and reads; the sink,
which writes and commits. A pipeline's file calls what a `PlainFrame` has; `in_sparks_place` has the runner use it.

A process that is killed is a `Killed`, which no code of the product catches to go on. What it had open stays open.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from strandline.pipelines.changes import plan_reading
from strandline.pipelines.changes.plan_form import PlanForm
from strandline.pipelines.language.model import Pipeline
from strandline.pipelines.run import compiling, queries
from strandline.pipelines.run.checkpoint_files import HALF_MADE
from strandline.pipelines.run.compiling import CompiledQuery, Wiring
from strandline.runtime import fault_points
from strandline.spark.sink import driver
from strandline.spark.sink.options import parse_options as sink_options
from strandline.spark.sink.pool import Pool
from strandline.spark.sink.task_writer import Task, write_task
from strandline.spark.source.options import parse_options as source_options
from strandline.spark.source.stream import StreamReader

BATCH_POINTS: Final = ("batch-planned", "batch-read", "batch-decided", "batch-done")
SINK_POINTS: Final = (
    "before-produce",
    "after-produce",
    "after-flush",
    "before-return",
    "before-commit",
    "after-commit",
)
_FIELDS: Final = {"customer": "string", "amount": "long", "total": "long", "id": "long"}


class Killed(BaseException):
    """The process is gone at this point."""


@dataclass
class PlainSpark:
    """What a session is to a runner."""

    killed_at: str | None = None
    """A point at which the process is killed, once."""
    passed: int = 0
    """How often the point is passed before."""
    copies: str = ""
    """Of a task that speculation starts: "sooner" or "later" than the driver decides the batch, or none."""
    pool: Pool = field(default_factory=Pool)
    streams: Any = field(default_factory=lambda: SimpleNamespace(addListener=_ignore, removeListener=_ignore))
    conf: Any = field(default_factory=lambda: SimpleNamespace(isModifiable=lambda name: False))

    def point(self, name: str) -> None:
        if name != self.killed_at:
            return
        if self.passed:
            self.passed -= 1
            return
        self.killed_at = None
        # Sockets of a process that is gone are closed; its transactions stay open.
        self.pool.close()
        raise Killed(name)


def _ignore(_: object) -> None:
    """Nothing is reported but what the runner asks for."""


@dataclass(frozen=True)
class PlainFrame:
    """Orders of a topic: those of at least some amount, as they are, or by customer their sum or the largest."""

    spark: PlainSpark
    options: Mapping[str, str]
    least: int = 0
    function: str = ""

    @property
    def is_summed(self) -> bool:
        """Whether it keeps state: an amount for each customer."""
        return bool(self.function)

    def at_least(self, least: int) -> PlainFrame:
        return replace(self, least=least)

    def summed(self) -> PlainFrame:
        return replace(self, function="sum")

    def largest(self) -> PlainFrame:
        return replace(self, function="max")

    @property
    def writeStream(self) -> PlainWriter:
        return PlainWriter(self)

    @property
    def _jdf(self) -> Any:
        plan = SimpleNamespace(toString=lambda: "")
        return SimpleNamespace(queryExecution=lambda: SimpleNamespace(analyzed=lambda: plan))

    @property
    def columns(self) -> tuple[str, ...]:
        return ("customer", "total") if self.is_summed else ("id", "customer", "amount")

    def records(self, orders: list[dict[str, Any]], state: dict[str, int]) -> list[tuple[str | None, dict[str, Any]]]:
        """Keys and values of what a batch writes; `state` goes on."""
        kept = [each for each in orders if each["amount"] >= self.least]
        if not self.is_summed:
            return [(None, each) for each in kept]
        for each in kept:
            known = state.get(each["customer"], 0)
            state[each["customer"]] = known + each["amount"] if self.function == "sum" else max(known, each["amount"])
        return [(customer, {"total": state[customer]}) for customer in sorted({each["customer"] for each in kept})]


class PlainWriter:
    """The words with which a query is started."""

    def __init__(self, frame: PlainFrame) -> None:
        self._frame = frame
        self._options: dict[str, str] = {}
        self._format = ""

    def format(self, name: str) -> PlainWriter:
        self._format = name
        return self

    def options(self, **options: str) -> PlainWriter:
        self._options |= options
        return self

    def option(self, name: str, value: str) -> PlainWriter:
        return self.options(**{name: value})

    def outputMode(self, _: str) -> PlainWriter:
        return self

    def queryName(self, _: str) -> PlainWriter:
        return self

    def foreachBatch(self, _: Callable[[Any, int], None]) -> PlainWriter:
        return self

    def trigger(self, *, availableNow: bool) -> PlainWriter:
        assert availableNow
        return self

    def start(self) -> PlainQuery:
        return PlainQuery(self._frame, self._options, writes=self._format != "noop")


class PlainQuery:
    """All that is there, in batches, as Spark runs them with availableNow."""

    status: Final = {"message": "", "isTriggerActive": False}
    recentProgress: Final = ()

    def __init__(self, frame: PlainFrame, options: Mapping[str, str], *, writes: bool) -> None:
        self._frame = frame
        self._spark = frame.spark
        self._options = dict(options)
        self._writes = writes
        self._directory = Path(options["checkpointLocation"])
        self.runId = uuid.uuid4()
        self._error: Exception | None = None
        self._is_to_run = True
        metadata = self._directory / "metadata"
        if not metadata.exists():
            _write(metadata, json.dumps({"id": str(uuid.uuid4())}))
        self.id = json.loads(metadata.read_text())["id"]

    @property
    def isActive(self) -> bool:
        """Run it when it is looked at: Spark's runs beside those that look, and its start returns at once."""
        if self._is_to_run:
            self._is_to_run = False
            self._run_all()
        return False

    def exception(self) -> Exception | None:
        return None if self.isActive else self._error

    def awaitTermination(self) -> None:
        if (error := self.exception()) is not None:
            raise error

    def stop(self) -> None:
        """It has ended."""

    def _run_all(self) -> None:
        shape = StructType([StructField("value", BinaryType())])
        options = {**self._frame.options, "columns": "value"}
        reader = StreamReader(source_options(options, streaming=True), shape)
        try:
            self._run(reader)
        except Exception as error:
            self._error = error
        finally:
            reader.stop()

    def _run(self, reader: StreamReader) -> None:
        reader.prepareForTriggerAvailableNow()
        last = max((int(each.name) for each in self._directory.glob("offsets/*")), default=-1)
        at = self._planned(last) if last >= 0 else reader.initialOffset()
        if last >= 0 and not (self._directory / "commits" / str(last)).exists():
            before = self._planned(last - 1) if last else reader.initialOffset()
            self._batch(reader, last, before, at)
        while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
            last += 1
            about = {"batchWatermarkMs": 0, "batchTimestampMs": time.time_ns() // 1_000_000, "conf": {}}
            _write(self._directory / "offsets" / str(last), f"v1\n{json.dumps(about)}\n{json.dumps(end)}")
            self._spark.point("batch-planned")
            self._batch(reader, last, at, end)
            at = end

    def _planned(self, batch_id: int) -> Any:
        return json.loads((self._directory / "offsets" / str(batch_id)).read_text().split("\n")[2])

    def _batch(self, reader: StreamReader, batch_id: int, start: Any, end: Any) -> None:
        values = [
            value
            for partition in reader.partitions(start, end)
            for rows in reader.read(partition)
            for value in rows.column("value").to_pylist()
        ]
        state = self._state(batch_id - 1)
        records = self._frame.records([json.loads(value) for value in values], state)
        self._spark.point("batch-read")
        if self._writes:
            self._write_records(batch_id, records)
        _write(self._directory / "state" / str(batch_id), json.dumps(state))
        self._spark.point("batch-decided")
        _write(self._directory / "commits" / str(batch_id), 'v1\n{"nextBatchWatermarkMs":0}')
        self._spark.point("batch-done")

    def _state(self, batch_id: int) -> dict[str, int]:
        kept = self._directory / "state" / str(batch_id)
        return json.loads(kept.read_text()) if kept.exists() else {}

    def _write_records(self, batch_id: int, records: list[tuple[str | None, dict[str, Any]]]) -> None:
        options = sink_options(self._options)
        keys = pa.array([None if key is None else key.encode() for key, _ in records], pa.binary())
        values = pa.array([json.dumps(value).encode() for _, value in records], pa.binary())
        batch = pa.record_batch({"key": keys, "value": values})
        task = Task(self.id, batch_id, 0)
        if self._spark.copies == "sooner":
            write_task(self._spark.pool, options, task, [batch])
        written = write_task(self._spark.pool, options, task, [batch])
        driver.commit(driver.cluster_of(options), [written], batch_id)
        if self._spark.copies == "later":
            write_task(self._spark.pool, options, task, [batch])


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def compiled(spark: PlainSpark, pipeline: Pipeline, where: Wiring) -> list[CompiledQuery]:
    """As `compiling.compile`, for datasets that read sources."""
    found = []
    for dataset in pipeline.written:
        [source] = [where.source(dataset.name, pipeline.sources[name]) for name in dataset.inputs]
        options = {"kafka.bootstrap.servers": where.bootstrap, **where.options, "subscribe": source.topic}
        options |= {"startingOffsets": "earliest", **source.options}
        frame = dataset.function(**{source.name: PlainFrame(spark, options)})
        fields = [{"name": name, "type": _FIELDS[name], "nullable": True, "metadata": {}} for name in frame.columns]
        topic = where.write_topic(dataset)
        found.append(
            CompiledQuery(
                name=dataset.name,
                frame=frame,
                topic=topic,
                output_mode=dataset.output_mode,
                schema=json.dumps({"type": "struct", "fields": fields}),
                key=dataset.key,
                kind=dataset.kind,
                default_topic=topic,
                reads=(source.topic,),
            )
        )
    return found


def form_of(query: CompiledQuery, _: Pipeline) -> PlanForm:
    frame = query.frame
    assert isinstance(frame, PlainFrame)
    state = ("grouping: customer", f"functions: {frame.function}(amount)") if frame.is_summed else ()
    return PlanForm(state, f"at least {frame.least}")


def in_sparks_place(patch: pytest.MonkeyPatch, spark: PlainSpark) -> None:
    """Have runners, recoveries and rebuilds of this process use it."""

    def exists(_: object, checkpoint: str) -> bool:
        return Path(checkpoint, "metadata").exists() and not Path(f"{checkpoint}{HALF_MADE}").exists()

    def reached(name: str, *_: str) -> None:
        spark.point(name)

    patch.setattr(compiling, "compile", compiled)
    patch.setattr(plan_reading, "form_of_query", form_of)
    patch.setattr(queries, "use", _ignore)
    patch.setattr(queries, "checkpoint_exists", exists)
    patch.setattr(queries, "stateful_operators", lambda frame: ("aggregate",) if frame.is_summed else ())
    planned = (*SINK_POINTS, *fault_points.REBUILD_POINTS)
    patch.setenv(fault_points.VARIABLE, ",".join(f"{point}:fail:" for point in planned))
    patch.setattr(fault_points, "act", reached)
