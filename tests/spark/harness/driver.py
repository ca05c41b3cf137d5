"""A Spark driver in a process of its own: told by lines of JSON to start and stop one query, and saying what it does.

    {"do": "start", ...}   the query goes from topic to topic, its rows spread over so many tasks
    {"do": "stop"}

It is made to be killed at any time, in part (its Java process, a worker) or as a whole.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

import strandline.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AS_SHUFFLED = 0
"""Tasks: as many as `spark.sql.shuffle.partitions` says."""
ATTEMPTS = 5

_says = threading.Lock()


def say(what: str, **facts: Any) -> None:
    with _says:
        print(json.dumps({"said": what, **facts}), flush=True)


def listen(spark: SparkSession) -> None:
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Teller(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            pass

        def onQueryProgress(self, event: Any) -> None:
            say("batch", id=event.progress.batchId, rows=event.progress.numInputRows)

        def onQueryTerminated(self, event: Any) -> None:
            say("ended", run_id=str(event.runId), error=event.exception)

    spark.streams.addListener(Teller())


def start(spark: SparkSession, task: dict[str, Any]) -> Any:
    reader = spark.readStream.format(task["source_format"]).option("kafka.bootstrap.servers", task["bootstrap"])
    reader = reader.option("subscribe", task["source"]).option("startingOffsets", "earliest")
    rows = reader.option("maxOffsetsPerTrigger", task["limit"]).load().selectExpr("key", "value")
    # By key a few rows leave tasks empty; without one they go round robin, so to other tasks with each attempt.
    tasks = () if task["tasks"] == AS_SHUFFLED else (task["tasks"],)
    rows = rows.repartition(*tasks, "key") if task["by_key"] or not tasks else rows.repartition(*tasks)
    writer = rows.writeStream.format("strandline").option("kafka.bootstrap.servers", task["bootstrap"])
    writer = writer.option("topic", task["target"]).option("transactionTimeoutMs", task["transaction_timeout_ms"])
    writer = writer.option("checkpointLocation", task["checkpoint"])
    return writer.trigger(**({"availableNow": True} if task["to_the_end"] else {"processingTime": "0 seconds"})).start()


def started(spark: SparkSession, task: dict[str, Any]) -> Any:
    """Start it; again if Spark met what is left of a Python process that was killed, and gave up."""
    for _ in range(ATTEMPTS - 1):
        try:
            return start(spark, task)
        except Py4JJavaError as error:
            if "Stream closed" not in str(error):
                raise
    return start(spark, task)


def main() -> None:
    options = json.loads(sys.argv[1])
    spark = strandline.spark.session("harness", master=options["master"], **options["settings"])
    listen(spark)
    assert spark.sparkContext._gateway is not None
    java = spark.sparkContext._gateway.proc
    say("ready", java_pid=java.pid if java is not None else 0)
    query: Any = None
    for line in sys.stdin:
        task = json.loads(line)
        if task["do"] == "start":
            query = started(spark, task)
            say("started", query_id=query.id, run_id=str(query.runId))
        elif task["do"] == "stop" and query is not None:
            query.stop()
            say("stopped")
    spark.stop()


if __name__ == "__main__":
    main()
