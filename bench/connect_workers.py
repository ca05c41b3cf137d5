"""Workers of connectors as processes: Apache Kafka Connect with its file connectors, and ours."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.kafka_jars import CACHE, KAFKA_VERSION, KafkaUnavailable, kafka_class_path
from bench.maven import MavenFailed, copy_jars, pom
from strandline.local.free_ports import free_port

START_S_MAX: Final = 90.0
_FILE_CONNECTORS: Final = CACHE.parent / f"connect-file-{KAFKA_VERSION}"
_LOG4J: Final = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""


def file_connectors() -> Path:
    """Return the plugin path with Kafka's file connectors, fetching them on first use."""
    kafka_class_path()
    complete = _FILE_CONNECTORS / "complete"
    if not complete.exists():
        project = pom("connect-file", [("org.apache.kafka", "connect-file", KAFKA_VERSION)], alone=True)
        try:
            copy_jars(project, _FILE_CONNECTORS / "plugins" / "file")
        except MavenFailed as error:
            raise KafkaUnavailable(f"Maven could not bring connect-file: {error}") from error
        complete.write_text(project)
    return _FILE_CONNECTORS / "plugins"


@contextlib.contextmanager
def live_connect(bootstrap: str, directory: Path, *, exactly_once: bool = True) -> Iterator[str]:
    """Run a distributed worker of Kafka Connect; yield its address. `directory` holds its log and settings."""
    with kafka_worker(bootstrap, directory, exactly_once=exactly_once) as worker:
        yield worker.url


@dataclass
class ConnectProcess:
    """A worker that serves REST."""

    name: str
    url: str
    pid: int

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return the answer to a request; None if it has no body. Raise HTTPError if it is refused."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=100) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def create(self, name: str, config: Mapping[str, str]) -> None:
        """Make a connector; while the group rebalances the answer is 409."""
        deadline = time.monotonic() + START_S_MAX
        while True:
            try:
                self.ask("POST", "/connectors", {"name": name, "config": dict(config)})
                return
            except urllib.error.HTTPError as error:
                if error.code != 409 or time.monotonic() > deadline:
                    raise
            time.sleep(0.1)


@contextlib.contextmanager
def our_worker(bootstrap: str, allowed: Path, settings: Mapping[str, str] | None = None) -> Iterator[ConnectProcess]:
    """Run `strandline connect serve`; yield it when it is ready."""
    given = {"allowed.paths": str(allowed), **(settings or {})}
    command = [sys.executable, "-m", "strandline", "connect", "serve", "--bootstrap", bootstrap]
    command += ["--listen", "127.0.0.1:0", *(part for each in given.items() for part in ("-X", "=".join(each)))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("ready "), "the worker did not start"
        yield ConnectProcess("strandline", line.split()[1], process.pid)
    finally:
        process.terminate()
        process.wait(30)


@contextlib.contextmanager
def kafka_worker(
    bootstrap: str, directory: Path, *, exactly_once: bool = True, heap: str = "-Xmx512m", group: str = "connect"
) -> Iterator[ConnectProcess]:
    """Run a distributed worker of Kafka Connect; yield it when it is ready."""
    directory.mkdir(parents=True, exist_ok=True)
    plugins = file_connectors()
    port = free_port()
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "listeners": f"http://127.0.0.1:{port}",
        "rest.advertised.host.name": "127.0.0.1",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "config.storage.topic": f"{group}-configs",
        "offset.storage.topic": f"{group}-offsets",
        "status.storage.topic": f"{group}-status",
        "config.storage.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "status.storage.replication.factor": "1",
        "offset.flush.interval.ms": "500",
        "plugin.path": str(plugins),
        "plugin.discovery": "hybrid_warn",
        "exactly.once.source.support": "enabled" if exactly_once else "disabled",
    }
    properties = directory / "worker.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    (directory / "log4j2.properties").write_text(_LOG4J)
    log = directory / "connect.log"
    command = ["java", *heap.split(), f"-Dlog4j2.configurationFile={directory / 'log4j2.properties'}"]
    command += ["-cp", kafka_class_path(), "org.apache.kafka.connect.cli.ConnectDistributed", str(properties)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=directory, env=os.environ)
        try:
            _wait_until_ready(process, port, log)
            yield ConnectProcess("kafka connect", f"http://127.0.0.1:{port}", process.pid)
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise KafkaUnavailable(f"Kafka Connect ended while it started:\n{log.read_text()[-3000:]}")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            # Health is served before the worker has joined its group; only then it says healthy.
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()
        time.sleep(0.2)
    raise KafkaUnavailable(f"Kafka Connect was not ready in {START_S_MAX:.0f} s:\n{log.read_text()[-3000:]}")
