"""The two that capture PostgreSQL in a process of their own: Debezium's engine, and a worker of ours."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from bench.cdc_engine.jars import debezium_class_path
from bench.connect_workers import ConnectProcess, our_worker
from bench.java_sources import compiled

DEBEZIUM: Final = "debezium"
OURS: Final = "strandline"
STARTS_WITHIN_S: Final = 120.0
_SOURCES: Final = Path(__file__).parent
_OPTIONS: Final = ("-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


class CaptureProcess(Protocol):
    """A process that runs one connector at a time. Its position is kept by the name of the connector."""

    name: str

    @property
    def pid(self) -> int: ...

    def start(self, connector: str, config: Mapping[str, str]) -> None:
        """Start a connector, or start it again behind what it has captured."""

    def stop(self, connector: str) -> None:
        """Stop a connector. What it has captured is remembered."""


class DebeziumProcess:
    """Debezium's engine with a producer."""

    name = DEBEZIUM

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        jars = debezium_class_path()
        classes = compiled(_SOURCES, jars, name="cdc-engine")
        command = ["java", *_OPTIONS, "-cp", f"{classes}:{jars}", "EngineToLog", bootstrap]
        with (directory / "debezium.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self, connector: str, config: Mapping[str, str]) -> None:
        settings = {
            **config,
            "name": connector,
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": str(self._directory / f"{connector}.offsets"),
        }
        properties = self._directory / f"{connector}.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._ask(f"start {properties}", "started")

    def stop(self, connector: str) -> None:
        self._ask("stop", "stopped")

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def _ask(self, line: str, answer: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        said = self._process.stdout.readline().strip()
        assert said == answer, f"Debezium said {said!r}; its log is in {self._directory}"


class OurProcess:
    """`strandline connect serve`."""

    name = OURS

    def __init__(self, worker: ConnectProcess) -> None:
        self._worker = worker
        self._known: set[str] = set()

    @property
    def pid(self) -> int:
        return self._worker.pid

    def start(self, connector: str, config: Mapping[str, str]) -> None:
        if connector in self._known:
            self._worker.ask("PUT", f"/connectors/{connector}/resume")
            return
        self._worker.create(connector, {**config, "connector.class": "PostgresCdcSource", "tasks.max": "1"})
        self._known.add(connector)

    def stop(self, connector: str) -> None:
        self._worker.ask("PUT", f"/connectors/{connector}/stop")
        until_s = time.monotonic() + STARTS_WITHIN_S
        while (status := self._status(connector))["tasks"] or status["connector"]["state"] != "STOPPED":
            assert time.monotonic() < until_s, f"{connector} did not stop: {status}"
            time.sleep(0.05)

    def _status(self, connector: str) -> Any:
        return self._worker.ask("GET", f"/connectors/{connector}/status")


@contextlib.contextmanager
def debezium(bootstrap: str, directory: Path) -> Iterator[DebeziumProcess]:
    """Run Debezium's engine."""
    process = DebeziumProcess(bootstrap, directory)
    try:
        yield process
    finally:
        process.end()


@contextlib.contextmanager
def ours(bootstrap: str, directory: Path, group: str) -> Iterator[OurProcess]:
    """Run a worker of ours."""
    topics = {f"{each}.storage.topic": f"{group}-{each}" for each in ("config", "offset", "status")}
    with our_worker(bootstrap, directory, {"group.id": group, **topics}) as worker:
        yield OurProcess(worker)
