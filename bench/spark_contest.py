"""Two ways into and out of Spark in one session: our format on our broker, Spark's own connector on Kafka's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.brokers import STRANDLINE, Broker
from bench.client_process import READY, ClientFailed, run_measured
from bench.clients.produce import CHUNK, VALUES
from bench.figures import Figure, ratio_at_least
from bench.stage import Stage, beside_kafka

PARTITIONS = 4
_ROOT = Path(__file__).resolve().parent.parent


class SparkProcess:
    """The session in a process of its own, as any client of the bench."""

    def __init__(self, directory: Path, *, own_connector: bool, settings: dict[str, str] | None = None) -> None:
        local_dir = directory / "spark-local"
        local_dir.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        paths = [str(_ROOT), str(_ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        options = {"local_dir": str(local_dir), "own_connector": own_connector, "settings": settings or {}}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.clients.spark", json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        if self._line() != READY:
            raise ClientFailed("the Spark session said something else than that it is ready")

    def __enter__(self) -> SparkProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def do(self, task: str, **options: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": task, **options}) + "\n")
        self.process.stdin.flush()
        result: dict[str, Any] = json.loads(self._line())
        return result

    def new_directory(self, name: str) -> str:
        return tempfile.mkdtemp(prefix=f"{name}-", dir=self.directory)

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise ClientFailed(f"the Spark session left with status {self.process.wait()}")
        return line.rstrip("\n")


@contextmanager
def spark_session(stage: Stage) -> Iterator[SparkProcess]:
    directory = Path(tempfile.mkdtemp(prefix="spark-", dir=stage.root))
    with SparkProcess(directory, own_connector=stage.with_kafka) as spark:
        yield spark


def format_of(broker: Broker) -> str:
    """What reads and writes in the broker's column."""
    return "strandline" if broker.name == STRANDLINE else "kafka"


def filled(
    spark: SparkProcess, broker: Broker, topic: str, *, count: int, value_bytes: int, values: str = "random"
) -> None:
    """A topic with records, all of which the contender of this broker was seen to read."""
    broker.create_topic(topic, PARTITIONS)
    task = {"topic": topic, "count": count, "value_bytes": value_bytes, "values": values}
    run_measured(broker, [("produce", task)])
    found = spark.do("check", format=format_of(broker), bootstrap=broker.bootstrap, topic=topic)
    crc = sum(map(zlib.crc32, VALUES[values](value_bytes))) * (count // CHUNK)
    expect(found, records=count, bytes=count * value_bytes, crc=crc)


def expect(found: dict[str, Any], **expected: int) -> None:
    """A figure of records that are not the right ones is none."""
    wrong = {name: (found[name], wanted) for name, wanted in expected.items() if found[name] != wanted}
    if wrong:
        raise ClientFailed(f"Spark found something else than was written (found, written): {wrong}")


def reading_figures(
    stage: Stage,
    *,
    name: str,
    label: str,
    note: str,
    sizes: Mapping[str, tuple[int, int, int, float]],
    read: Callable[[SparkProcess, Broker, str, int, int], dict[str, Any]],
    values: str = "random",
) -> list[Figure]:
    """Both contenders read topics of these sizes in turn: bytes of a value, records, records with --quick, the target.

    `read` is given the session, the broker, the topic, how many records it holds and the bytes of each value.
    """
    brokers = stage.shared_pair()
    figures = []
    with spark_session(stage) as spark:
        for size, (value_bytes, full, quick, bound) in sizes.items():
            count, topic = stage.scaled(full, quick), f"{name}-{value_bytes}"
            for broker in brokers:
                filled(spark, broker, topic, count=count, value_bytes=value_bytes, values=values)

            def work(
                broker: Broker, topic: str = topic, count: int = count, value_bytes: int = value_bytes
            ) -> dict[str, float]:
                got = read(spark, broker, topic, count, value_bytes)
                return {"per_cpu_s": count / got["cpu_s"], "per_s": count / got["seconds"]}

            samples = stage.take_turns(brokers, work)
            for broker in brokers:
                broker.delete_topic(topic)
            target = ratio_at_least(bound)
            figures.append(beside_kafka(samples, "per_cpu_s", f"{label}, {size}", "rec/CPU-s", target, note))
            figures.append(beside_kafka(samples, "per_s", f"{label}, {size}", "rec/s", None))
    return figures
