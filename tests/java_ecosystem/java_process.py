"""Kafka Connect with Debezium inside, and MirrorMaker 2, as processes that tests kill and start again."""

from __future__ import annotations

import http.client
import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from bench.cdc_engine.jars import DEBEZIUM_VERSION
from bench.kafka_jars import CACHE, KAFKA_VERSION, KafkaUnavailable, kafka_class_path
from bench.maven import Artifact, MavenFailed, copy_jars, pom
from tests.connect.running import wait_until

from strandline.local.free_ports import free_port

WAIT_S: Final = 300.0
"""A JVM takes a minute to start on a machine that is busy."""
_OPTIONS: Final = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LOG4J: Final = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""


def debezium_plugins() -> Path:
    """Return the plugin path with Debezium's connector for PostgreSQL, fetching it on first use."""
    root = CACHE.parent / f"connect-debezium-{DEBEZIUM_VERSION}"
    _bring(root, "debezium", [("io.debezium", "debezium-connector-postgres", DEBEZIUM_VERSION)])
    return root / "plugins"


def mirror_class_path() -> str:
    """Return the class path of MirrorMaker 2, fetching its jars on first use."""
    root = CACHE.parent / f"connect-mirror-{KAFKA_VERSION}"
    names = ("connect-mirror", "connect-mirror-client")
    _bring(root, "mirror", [("org.apache.kafka", name, KAFKA_VERSION) for name in names], alone=True)
    return f"{root / 'plugins' / 'mirror'}/*:{kafka_class_path()}"


def _bring(root: Path, name: str, artifacts: Sequence[Artifact], *, alone: bool = False) -> None:
    kafka_class_path()
    complete = root / "complete"
    if complete.exists():
        return
    project = pom(name, artifacts, alone=alone)
    try:
        copy_jars(project, root / "plugins" / name)
    except MavenFailed as said:
        raise KafkaUnavailable(f"Maven could not bring {artifacts[0][1]}: {said}") from said
    # Written last, so that an interrupted download is repeated and not mistaken for a whole one.
    complete.write_text(project)


class JavaProcess:
    """A Java program with a file of properties. `kill` and `start` may follow each other."""

    def __init__(self, directory: Path, class_path: str, main: str, properties: Mapping[str, str]) -> None:
        directory.mkdir(parents=True)
        file, log4j = directory / "given.properties", directory / "log4j2.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        log4j.write_text(_LOG4J)
        self._directory = directory
        self._command = ["java", *_OPTIONS, f"-Dlog4j2.configurationFile={log4j}", "-cp", class_path, main, str(file)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the program and do not wait."""
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=self._directory
            )

    def kill(self) -> None:
        """End the program with SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            assert process.poll() is None, f"it had ended by itself: {self.log()}"
            process.kill()
            process.wait()

    def log(self) -> str:
        """Return the end of what the program has logged."""
        file = self._directory / "log"
        return file.read_text(errors="replace")[-6000:] if file.exists() else ""

    def __enter__(self) -> JavaProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"{self._directory.name} said:\n{self.log()}")
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


class KafkaConnect(JavaProcess):
    """A distributed worker of Kafka Connect, whose sources write exactly once."""

    def __init__(self, bootstrap: str, directory: Path, plugins: Path, *, replicas: int) -> None:
        self.port = free_port()
        converter = "org.apache.kafka.connect.json.JsonConverter"
        properties = {
            "bootstrap.servers": bootstrap,
            "group.id": "connect",
            "listeners": f"http://127.0.0.1:{self.port}",
            "rest.advertised.host.name": "127.0.0.1",
            "exactly.once.source.support": "enabled",
            # One that was killed is gone for good, and no other worker waits for it.
            "scheduled.rebalance.max.delay.ms": "0",
            "plugin.path": str(plugins),
            "plugin.discovery": "hybrid_warn",
        }
        for kind in ("config", "offset", "status"):
            properties[f"{kind}.storage.topic"] = f"connect-{kind}"
            properties[f"{kind}.storage.replication.factor"] = str(replicas)
        for kind in ("key", "value"):
            properties[f"{kind}.converter"] = converter
            properties[f"{kind}.converter.schemas.enable"] = "false"
        super().__init__(directory, kafka_class_path(), "org.apache.kafka.connect.cli.ConnectDistributed", properties)

    def create(self, name: str, config: Mapping[str, str]) -> None:
        """Make a connector as soon as the worker takes it."""

        def is_made() -> bool:
            status, _ = self.ask("POST", "/connectors", {"name": name, "config": dict(config)})
            assert status in (0, 201, 404, 409, 500, 503), self.log()
            return status == 201

        wait_until(is_made, f"the connector {name} is made", WAIT_S)

    def states(self, name: str) -> list[str]:
        """Return the states of the connector and its tasks; empty if the worker does not answer."""
        status, body = self.ask("GET", f"/connectors/{name}/status")
        return [] if status != 200 else [body["connector"]["state"], *(each["state"] for each in body["tasks"])]

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Return status and body of an answer; the status is 0 without one."""
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.port}{path}"
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=100) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, None
        except (OSError, http.client.HTTPException):
            time.sleep(0.2)
            return 0, None
