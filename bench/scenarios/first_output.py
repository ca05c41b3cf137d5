"""A pipeline of three steps: how long until its first output, and until it goes on after a kill -9, part by part.

The parts are those that `strandline pipeline run` names itself. Some of them go on at the same time, so their sum is
more than the whole.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.asking import Question
from bench.brokers import SOURCE, STRANDLINE, Broker, python_path
from bench.figures import Figure, Samples, at_most
from bench.scenarios.produce_1k import produced
from bench.stage import ASYNC_FLUSH, Stage
from strandline.codec.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

NAME = "first-output"
SUMMARY = "a pipeline of three steps: first output after its start, and after kill -9 of its driver, part by part"
ORDERS, RESULT = f"{NAME}-orders", f"{NAME}-large-by-city"
RECORDS = 10_000
PARTITIONS = 4
LATEST, READ_COMMITTED = -1, 1
OUTPUT_S_MAX = 300.0
TARGETS_S = {"start": 10.0, "again": 15.0}
PARTS = {
    "before": "Python and the command",
    "PySpark": "import of PySpark",
    "file": "the pipeline's file",
    "Java": "start of the JVM",
    "Spark": "session",
    "planning": "planning",
    "topics": "topics and queries",
    "first batch": "first batch of the first step",
    "after": "from there to the output of the last step",
}
"""What the run calls each part, and what the report calls it; "before" and "after" lie around what the run times."""
_PART = re.compile(r"^  (\S.*?) {2,}(\d+\.\d) s(?:  |$)", re.MULTILINE)
_AFTER_START = re.compile(r"(\d+\.\d) s after the start")

FILE = f"""
from pyspark.sql import functions as F

from strandline import pipeline

pipeline.name("{NAME}")

orders = pipeline.source("orders", topic="{ORDERS}", schema="customer STRING, city STRING, cents BIGINT")


@pipeline.stream
def large(orders):
    return orders.where("cents > 50000")


@pipeline.stream
def named(large):
    return large.withColumn("city", F.upper("city"))


@pipeline.view(key="city", topic="{RESULT}")
def large_by_city(named):
    return named.groupBy("city").agg(F.count("*").alias("orders"), F.sum("cents").alias("cents"))
"""


def run(stage: Stage) -> list[Figure]:
    if stage.kafka_twice:
        stage.remarks.append(f"{NAME} is not run: a pipeline needs Strandline")
        return []
    stage.put_shared_pair_away()
    samples = Samples()
    for number in range(min(stage.rounds, 3)):
        broker = stage.start(STRANDLINE, settings=ASYNC_FLUSH)
        try:
            for kind, measured in _both(broker, stage.root / f"{NAME}-{number}").items():
                stage.say(f"  round {number + 1} {kind}: " + "  ".join(f"{k} {v:.1f}" for k, v in measured.items()))
                samples.add(kind, measured)
        finally:
            stage.discard(broker)
    return [
        *_figures(samples, "start", "first output of a pipeline of three steps"),
        *_figures(samples, "again", "output again after kill -9 of the driver"),
    ]


def _both(broker: Broker, home: Path) -> dict[str, dict[str, float]]:
    """Start the pipeline in an empty directory; kill its driver after the first output, and start it again."""
    home.mkdir()
    (home / "pipeline.py").write_text(FILE)
    broker.create_topic(ORDERS, PARTITIONS)
    _orders(broker)
    began = time.monotonic()
    with _driver(broker, home, "start") as process:
        start = _until_output(broker, home / "start.log", process, began=began, seen=0)
    began, seen = time.monotonic(), _written(broker)  # The driver was killed just now.
    with _driver(broker, home, "again", "--takeover") as process:
        _orders(broker)
        again = _until_output(broker, home / "again.log", process, began=began, seen=seen)
    return {"start": start, "again": again}


def _orders(broker: Broker) -> None:
    produced(broker, topic=ORDERS, count=RECORDS, value_bytes=100, values="orders")


@contextmanager
def _driver(broker: Broker, home: Path, name: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """`strandline pipeline run` for the length of a block, at whose end it is killed, and its Java with it."""
    command = [sys.executable, "-m", "strandline", "pipeline", "run", "pipeline.py", "--bootstrap", broker.bootstrap]
    command += ["--checkpoints", str(home / "checkpoints"), "--master", "local[2]", *words]
    command += ["--set", "spark.sql.shuffle.partitions=2", "--set", "spark.ui.enabled=false"]
    environ = {**os.environ, **python_path(SOURCE)}
    with (home / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=home, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ, start_new_session=True
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _until_output(
    broker: Broker, log: Path, process: subprocess.Popen[bytes], *, began: float, seen: int
) -> dict[str, float]:
    """Wait until the last step wrote something new; return the seconds of it, and of each part that the run named."""
    total_s = said_s = run_s = 0.0
    while not total_s or not said_s:
        if process.poll() is not None or time.monotonic() - began > OUTPUT_S_MAX:
            raise RuntimeError(f"the pipeline wrote nothing: {log.read_text()[-2000:]}")
        now_s = time.monotonic() - began
        if not total_s and _written(broker) > seen:
            total_s = now_s
        if not said_s and (line := _AFTER_START.search(log.read_text())):
            said_s, run_s = now_s, float(line[1])
        time.sleep(0.02)
    parts = {name: float(seconds) for name, seconds in _PART.findall(log.read_text()) if name in PARTS}
    # The run's own clock starts when Python has imported the command.
    return {"total": total_s, "before": said_s - run_s, **parts, "after": max(0.0, total_s - said_s)}


def _written(broker: Broker) -> int:
    """Return how many records of the result can be read by a consumer that reads only what is committed."""
    places = [ListOffsetsPartition(partition_index=number, timestamp=LATEST) for number in range(PARTITIONS)]
    topics = [ListOffsetsTopic(name=RESULT, partitions=places)]
    with Question("127.0.0.1", broker.port) as question:
        answer = question.ask(ListOffsetsRequest(replica_id=-1, isolation_level=READ_COMMITTED, topics=topics), 5)
    found = [state for topic in answer.topics for state in topic.partitions]
    return sum(state.offset for state in found if state.error_code == 0)


def _figures(samples: Samples, kind: str, name: str) -> list[Figure]:
    note = "start of the command to a readable record" if kind == "start" else "kill -9 to a readable record"
    figures = [Figure(name, "s", samples.of(kind, "total"), target=at_most(TARGETS_S[kind]), note=note)]
    for part, words in PARTS.items():
        if samples.of(kind, part):
            figures.append(Figure(f"of it: {words}", "s", samples.of(kind, part), note=name))
    return figures
