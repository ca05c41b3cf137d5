"""The JVM with the workers of one broker: `bench/java`, asked line by line in JSON."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from bench.amqp_jars import amqp_class_path
from bench.client_process import ClientFailed
from bench.java_sources import compiled
from bench.kafka_jars import CACHE, kafka_class_path

SHARE = "share"
AMQP = "amqp"
NO_POISON = -1
_SOURCES = Path(__file__).resolve().parent / "java"
_ANSWER_S_MAX = 400.0


class QueueServer(Protocol):
    """A broker whose queue is measured."""

    name: str

    @property
    def bootstrap(self) -> str: ...

    def cpu_seconds(self) -> float: ...


class QueueClient:
    """One JVM of workers and a producer. It lives as long as its broker, so that both are warm when it counts."""

    def __init__(self, kind: str, bootstrap: str, root: Path) -> None:
        root.mkdir(parents=True)
        jars = f"{kafka_class_path()}:{amqp_class_path()}"
        classes = compiled(_SOURCES, jars, name="queue")
        settings = [f"-Dkafka.logs.dir={root}", f"-Dlog4j2.configurationFile={CACHE / 'log4j2.properties'}"]
        self._said = (root / "client.err").open("w+")
        self._process = subprocess.Popen(
            ["java", "-Xmx768m", *settings, "-cp", f"{classes}:{jars}", "QueueClient", kind, bootstrap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
        )

    def __enter__(self) -> QueueClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._said):
            assert pipe is not None
            pipe.close()

    def open(
        self,
        queue: str,
        *,
        workers: int,
        prefetch: int,
        partitions: int,
        linger_ms: int = 5,
        wait_ms: int = 200,
        lock_ms: int = 0,
    ) -> None:
        """Create a queue, and wait until every worker is ready for its tasks.

        `wait_ms` is how long a fetch waits for tasks. All but the first two are for share groups only.
        """
        options = {"workers": workers, "prefetch": prefetch, "partitions": partitions}
        self._ask("open", queue=queue, linger_ms=linger_ms, wait_ms=wait_ms, lock_ms=lock_ms, **options)

    def run(
        self, *, count: int, size_bytes: int, rate: int = 0, skip: int = 0, poison: int = NO_POISON, lock_ms: int = 0
    ) -> dict[str, float]:
        """Publish tasks while the workers work on them, and return when each was acknowledged."""
        options = {"count": count, "bytes": size_bytes, "rate": rate, "skip": skip}
        return self._ask("run", poison=poison, lock_ms=lock_ms, **options)

    def hold(self, *, count: int, size_bytes: int, held_min: int) -> int:
        """Publish tasks, and let each worker hold a poll of at least `held_min` until `release`; return how many."""
        return int(self._ask("hold", count=count, bytes=size_bytes, rate=0, held_min=held_min)["held"])

    def release(self) -> None:
        self._ask("release")

    def close(self) -> None:
        """Let the workers leave, and delete the queue."""
        self._ask("close")

    def _ask(self, do: str, **request: Any) -> dict[str, float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
        self._process.stdin.flush()
        patience = threading.Timer(_ANSWER_S_MAX, self._process.kill)
        patience.start()
        line = self._process.stdout.readline()
        patience.cancel()
        answer: dict[str, Any] = json.loads(line) if line else {"failure": "the process has ended"}
        if "failure" in answer:
            self._said.seek(0)
            raise ClientFailed(f"queue client, {do}: {answer['failure']}\n{self._said.read()[-4000:]}")
        return answer
