"""Starts and stops the two servers, each with its stock settings, and tells what they use.

Both look the same from outside: an address, a process, a data directory, `create_topic` and `stop`.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Protocol

from bench.kafka_jars import CACHE, kafka_class_path
from bench.measure import cpu_seconds, resident_mb
from bench.wire import Connection, PeerClosed
from strandline.local.free_ports import free_port

SECOND = "SECOND"
STRANDLINE = "strandline"
KAFKA = "kafka"
BEFORE = "before"
"""Strandline at an earlier commit, measured in turn with the tree as it is."""
SOURCE = Path(__file__).resolve().parent.parent / "src"

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
CREATE_TIMEOUT_S = 240.0
"""Thousands of partitions take their time ..."""
STANDSTILL_S = 20.0
"""... but a broker that stops making progress will not begin again."""

# The scripts of the distribution start the broker with these.
_KAFKA_JVM = (
    "-Xmx1g",
    "-Xms1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)

# What config/server.properties of the distribution sets; the rest is Kafka's built-in default.
_KAFKA_STOCK: dict[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "inter.broker.listener.name": "PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "2",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}


_COMPLAINT = re.compile(r"\b(ERROR|FATAL|CRITICAL|Traceback)\b|Too many open files|^strandline: ")
_STALLS = re.compile(r"loop stalls above \d+ ms: (\d+), .*")
_EXPLAINED = re.compile(r"the loop stood still .*")


class BrokerFailed(Exception):
    """The server did not start, or left before it was asked to."""


class Server(Protocol):
    """What a scenario works with: one broker, or a cluster of them. `name` is its column in the report."""

    name: str

    @property
    def bootstrap(self) -> str: ...

    @property
    def command(self) -> Sequence[str]: ...

    def cpu_seconds(self) -> float: ...

    def resident_mb(self) -> float: ...

    def create_topic(self, topic: str, partitions: int = 1, settings: Mapping[str, str] | None = None) -> None: ...

    def delete_topic(self, topic: str) -> None: ...

    def addresses_of(self, topic: str) -> list[str]:
        """Where each partition of the topic is led, in order; one address alone stands for all."""
        ...

    def stalls(self) -> str: ...

    def stop(self) -> None: ...

    def discard(self) -> None: ...


@dataclass
class Broker:
    """One running server. `name` is its column in the report."""

    name: str
    data: Path
    port: int
    process: subprocess.Popen[str]
    command: Sequence[str]
    log: Path
    started_at: float
    second_port: int = 0
    """Of the second listener, if there is one: `SECOND`, with another protocol."""

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self.process.pid

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pid)

    def resident_mb(self) -> float:
        return resident_mb(self.pid)

    def connect(self, *, timeout_s: float = 30.0) -> Connection:
        return Connection("127.0.0.1", self.port, timeout_s=timeout_s)

    def create_topic(self, topic: str, partitions: int = 1, settings: Mapping[str, str] | None = None) -> None:
        """Create the topic and wait until every partition is served."""
        with self.connect(timeout_s=CREATE_TIMEOUT_S) as connection:
            connection.create_topic(topic, partitions, settings or {}, timeout_ms=int(CREATE_TIMEOUT_S * 1000))
            most, moved_at = 0, time.perf_counter()
            while (serving := connection.serving_partitions(topic, partitions)) < partitions:
                if serving > most:
                    most, moved_at = serving, time.perf_counter()
                if self.process.poll() is not None or time.perf_counter() - moved_at > STANDSTILL_S:
                    raise BrokerFailed(f"it serves {most:,} of {partitions:,} partitions: {self.last_words(1)}")
                time.sleep(0.02)

    def addresses_of(self, topic: str) -> list[str]:
        return [self.bootstrap]

    def delete_topic(self, topic: str) -> None:
        with self.connect() as connection:
            connection.delete_topic(topic)

    def started_again(self) -> Broker:
        """The same server on the same files, after a stop or a kill."""
        process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, text=True)
        again = replace(self, process=process, started_at=time.perf_counter())
        again.wait_until_answering()
        return again

    def wait_until_answering(self) -> None:
        """Return once a request is answered, not merely when the port is open."""
        deadline = self.started_at + START_TIMEOUT_S
        while True:
            try:
                with self.connect(timeout_s=5.0) as connection:
                    connection.api_versions()
                    if connection.broker_count() > 0:
                        return
            except (OSError, PeerClosed):
                pass  # Not there yet: this is the state that the loop waits out, up to its deadline.
            if self.process.poll() is not None or time.perf_counter() > deadline:
                raise BrokerFailed(f"{self.name} did not come up: {self.last_words()}")
            time.sleep(0.02)

    def last_words(self, lines: int = 8) -> str:
        """The last errors in the broker's log, or its last lines if it named none."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        errors = [line for line in text.splitlines() if _COMPLAINT.search(line)]
        return "\n".join((errors or text.splitlines())[-lines:]) or "(it said nothing)"

    def stalls(self) -> str:
        """What the broker's watchdog said of its loop when it stopped, if there was a stall; the report repeats it."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        said = _STALLS.search(text)
        if not said or int(said[1]) == 0:
            return ""
        return "; ".join([said[0], *_EXPLAINED.findall(text)])

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def discard(self) -> None:
        """Stop the server and remove its data."""
        self.stop()
        shutil.rmtree(self.data.parent, ignore_errors=True)


def _spawn(
    command: Sequence[str], log: IO[str], open_files_max: int | None, environment: dict[str, str]
) -> subprocess.Popen[str]:
    def limit_open_files() -> None:
        soft = open_files_max or resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, open_files_max or soft))

    return subprocess.Popen(
        command, stdout=log, stderr=subprocess.STDOUT, text=True, preexec_fn=limit_open_files, env=environment
    )


def start_strandline(
    root: Path,
    *,
    settings: Mapping[str, str] | None = None,
    open_files_max: int | None = None,
    name: str = STRANDLINE,
    wait: bool = True,
    second: str = "",
    source: Path = SOURCE,
) -> Broker:
    """Start one node in an empty directory. `second` is the protocol of a second listener."""
    root.mkdir(parents=True)
    port, data, log = free_port(), root / "data", root / "server.log"
    second_port = free_port() if second else 0
    wanted = {"listeners": f"PLAINTEXT://127.0.0.1:{port}", **(settings or {})}
    if second:
        wanted["listeners"] += f",{SECOND}://127.0.0.1:{second_port}"
        wanted["listener.security.protocol.map"] = f"PLAINTEXT:PLAINTEXT,{SECOND}:{second}"
        wanted["inter.broker.listener.name"] = "PLAINTEXT"
    options = [word for key, value in wanted.items() for word in ("-X", f"{key}={value}")]
    command = [sys.executable, "-m", "strandline.broker", "--data", str(data), *options]
    environment = {**os.environ, **python_path(source)}
    started_at = time.perf_counter()
    with log.open("w") as output:
        process = _spawn(command, output, open_files_max, environment)
    broker = Broker(name, data, port, process, command, log, started_at, second_port)
    if wait:
        wait_or_discard(broker)
    return broker


def python_path(source: Path) -> dict[str, str]:
    """Return the environment in which Python imports Strandline from this source tree."""
    return {"PYTHONPATH": os.pathsep.join([str(source), os.environ.get("PYTHONPATH", "")])}


def start_kafka(
    root: Path,
    *,
    settings: Mapping[str, str] | None = None,
    open_files_max: int | None = None,
    name: str = KAFKA,
    wait: bool = True,
    second: str = "",
    plugins: Path | None = None,
) -> Broker:
    """Format an empty directory and start one combined node of Apache Kafka in it.

    `second` is the protocol of a second listener; `plugins` holds further classes.
    """
    root.mkdir(parents=True)
    class_path = kafka_class_path() if plugins is None else f"{kafka_class_path()}{os.pathsep}{plugins}"
    port, controller_port, data, log = free_port(), free_port(), root / "data", root / "server.log"
    second_port = free_port() if second else 0
    listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}"
    protocols = _KAFKA_STOCK["listener.security.protocol.map"]
    if second:
        listeners += f",{SECOND}://127.0.0.1:{second_port}"
        protocols += f",{SECOND}:{second}"
    addresses = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": protocols,
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
        "log.dirs": str(data),
    }
    properties = root / "server.properties"
    lines = {**_KAFKA_STOCK, **addresses, **(settings or {})}
    properties.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    java = [
        "java",
        "-cp",
        class_path,
        f"-Dkafka.logs.dir={root}",
        f"-Dlog4j2.configurationFile={CACHE / 'log4j2.properties'}",
    ]
    cluster_id = "c3RyYW5kbGluZS1iZW5jaA"
    formatted = subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", "--standalone", "-t", cluster_id, "-c", str(properties)],
        capture_output=True,
        text=True,
        check=False,
    )
    if formatted.returncode != 0:
        raise BrokerFailed(f"kafka: format failed: {formatted.stdout}{formatted.stderr}")
    command = [*java, *_KAFKA_JVM, "kafka.Kafka", str(properties)]
    started_at = time.perf_counter()
    with (root / "console.log").open("w") as output:
        process = _spawn(command, output, open_files_max, dict(os.environ))
    broker = Broker(name, data, port, process, command, log, started_at, second_port)
    if wait:
        wait_or_discard(broker)
    return broker


def wait_or_discard(broker: Broker) -> None:
    """Wait until the broker answers; discard it if that fails or the bench is ended meanwhile."""
    try:
        broker.wait_until_answering()
    except BaseException:  # Also Ctrl-C and SIGTERM, because no stage knows the broker yet.
        broker.discard()
        raise
