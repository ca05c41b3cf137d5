"""One Spark session that does one task after the other: a line of JSON in, a line of JSON out.

Both contenders run in this session, so they share its warmth: `format("strandline")`, and Spark's own connector as
`format("kafka")`. What is measured is all of Spark: this driver, its Java process, and every Python process of it, also
those that ended meanwhile. The broker is not in it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import strandline.spark
from bench.client_process import READY
from bench.measure import process_family
from bench.spark_jars import spark_jars_setting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MASTER = "local[2]"
SUMS = ("count(*) as records", "sum(length(value)) as bytes")
ORDER = "order BIGINT, customer STRING, city STRING, cents BIGINT, sku STRING"
CHECKS = (*SUMS, "sum(crc32(value)) as crc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def family_cpu_seconds() -> float:
    """CPU time of this process, of all its descendants, and of those that they have waited for."""
    ticks = 0
    for member in process_family(os.getpid()):
        try:
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:  # It ended between the two looks, so its parent counts it.
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / _TICKS_PER_S


def measured(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    cpu_s, start = family_cpu_seconds(), time.perf_counter()
    result = work()
    return result | {"seconds": time.perf_counter() - start, "cpu_s": family_cpu_seconds() - cpu_s}


def reading(spark: SparkSession, task: dict[str, Any]) -> DataFrame:
    reader = spark.read.format(task["format"]).option("kafka.bootstrap.servers", task["bootstrap"])
    return reader.option("subscribe", task["topic"]).option("kafka.isolation.level", "read_committed").load()


def read(spark: SparkSession, task: dict[str, Any]) -> dict[str, Any]:
    return measured(lambda: reading(spark, task).selectExpr(*SUMS).collect()[0].asDict())


def check(spark: SparkSession, task: dict[str, Any]) -> dict[str, Any]:
    """What is in the topic, by the CRC-32 of each value: both contenders must have found the same."""
    return reading(spark, task).selectExpr(*CHECKS).collect()[0].asDict()


def available_now(spark: SparkSession, task: dict[str, Any]) -> dict[str, Any]:
    """A whole query from its start to its end; nothing of it is warm but the session."""

    def work() -> dict[str, Any]:
        reader = spark.readStream.format(task["format"]).option("kafka.bootstrap.servers", task["bootstrap"])
        frame = reader.option("subscribe", task["topic"]).option("startingOffsets", "earliest").load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", task["checkpoint"])
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return {"records": sum(progress.numInputRows for progress in query.recentProgress)}

    return measured(work)


def windowed(spark: SparkSession, task: dict[str, Any]) -> dict[str, Any]:
    """Orders summed up by window and city, as a pipeline reads them, or as one does with Spark's own connector."""
    from pyspark.sql import functions as F

    def orders() -> DataFrame:
        if task["format"] == "strandline":
            from strandline.pipelines.language.model import Source
            from strandline.pipelines.run.inputs import Reader

            source = Source("orders", task["topic"], schema=ORDER, options={"columns": "timestamp"})
            return Reader(spark, task["bootstrap"], group="bench", options={}).source(source, as_changes=False)
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", task["bootstrap"])
        read = reader.option("subscribe", task["topic"]).option("startingOffsets", "earliest").load()
        parsed = F.from_json(F.col("value").cast("string"), ORDER).alias("parsed")
        return read.select(parsed, "timestamp").select("parsed.*", "timestamp")

    def work() -> dict[str, Any]:
        keys = [F.window("timestamp", "10 seconds"), F.col("city")]
        sums = [F.count("*").alias("orders"), F.sum("cents").alias("cents")]
        frame = orders().withWatermark("timestamp", "1 minute").groupBy(*keys).agg(*sums)
        writer = frame.writeStream.format("memory").outputMode("complete").queryName("windowed")
        query = writer.option("checkpointLocation", task["checkpoint"]).trigger(availableNow=True).start()
        query.awaitTermination()
        return {}

    result = measured(work)
    found = spark.table("windowed").selectExpr("sum(orders) as records", "sum(cents) as cents").collect()[0].asDict()
    return result | found


def make_rows(spark: SparkSession, task: dict[str, Any]) -> dict[str, Any]:
    """Files for a sink to write, of which a batch takes one."""
    value = f"encode(rpad(sha2(cast(id as string), 256), {task['value_bytes']}, 'x'), 'utf-8') as value"
    frame = spark.range(task["count"]).selectExpr("cast(id as string) as key", value)
    frame.repartition(task["files"]).write.parquet(task["path"])
    return spark.read.parquet(task["path"]).selectExpr(*CHECKS).collect()[0].asDict()


def write(spark: SparkSession, task: dict[str, Any]) -> dict[str, Any]:
    """Write the files, `tasks` tasks a batch. Of batches the first is left out: it starts workers and clients."""

    def work() -> dict[str, Any]:
        rows = spark.readStream.schema("key string, value binary").option("maxFilesPerTrigger", 1)
        frame = rows.parquet(task["path"]).repartition(task["tasks"])
        writer = frame.writeStream.format(task["format"]).option("kafka.bootstrap.servers", task["bootstrap"])
        writer = writer.option("topic", task["topic"]).option("checkpointLocation", task["checkpoint"])
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        batches = [progress for progress in query.recentProgress if progress.numInputRows > 0][1:]
        ends = _last_jobs_ended_ms(spark)
        return {
            "records": sum(progress.numInputRows for progress in batches),
            "batch_s": sum(progress.durationMs["triggerExecution"] for progress in batches) / 1000,
            "commit_ms": [_commit_ms(progress, ends) for progress in batches],
        }

    return measured(work)


def copy_start(spark: SparkSession, task: dict[str, Any]) -> dict[str, Any]:
    """Start a stream that copies a topic into another, one micro-batch after the other."""
    reader = spark.readStream.format(task["format"]).option("kafka.bootstrap.servers", task["bootstrap"])
    frame = reader.option("subscribe", task["topic"]).option("startingOffsets", "earliest").load()
    writer = frame.select("key", "value").writeStream.format(task["format"])
    writer = writer.option("kafka.bootstrap.servers", task["bootstrap"]).option("topic", task["out"])
    writer.option("checkpointLocation", task["checkpoint"]).start()
    return {}


def copy_stop(spark: SparkSession, task: dict[str, Any]) -> dict[str, Any]:
    (query,) = spark.streams.active
    query.stop()
    return {"batches": sum(progress.numInputRows > 0 for progress in query.recentProgress)}


def _last_jobs_ended_ms(spark: SparkSession) -> list[int]:
    """When each job ended, oldest first."""
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    ended = [jobs.apply(at).completionTime() for at in range(jobs.size())]
    return sorted(each.get().getTime() for each in ended if each.isDefined())


def _commit_ms(progress: Any, job_ends_ms: list[int]) -> float:
    """From the end of a batch's last job to the end of its `addBatch`: what the sink's own commit took."""
    from datetime import datetime

    begun_ms = datetime.fromisoformat(progress.timestamp).timestamp() * 1000
    added_ms = begun_ms + progress.durationMs["triggerExecution"] - progress.durationMs["commitOffsets"]
    last_ms = max((end for end in job_ends_ms if begun_ms <= end <= added_ms), default=begun_ms)
    return float(added_ms - last_ms)


TASKS: dict[str, Callable[[SparkSession, dict[str, Any]], dict[str, Any]]] = {
    "read": read,
    "check": check,
    "available_now": available_now,
    "windowed": windowed,
    "make_rows": make_rows,
    "write": write,
    "copy_start": copy_start,
    "copy_stop": copy_stop,
}


def main() -> None:
    options = json.loads(sys.argv[1])
    settings = {"spark.sql.shuffle.partitions": 2, "spark.local.dir": options["local_dir"], **options["settings"]}
    if options["own_connector"]:
        settings["spark.jars"] = spark_jars_setting()
    spark = strandline.spark.session("bench", master=MASTER, **settings)
    print(READY, flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        print(json.dumps(TASKS[task["do"]](spark, task)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
