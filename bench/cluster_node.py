"""One node of a cluster as a process: Apache Kafka or Strandline, in a directory, on an address, started again at will.

Both systems get the same properties. What differs is how a directory is formatted and what is executed.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bench.asking import Question
from bench.brokers import SOURCE, BrokerFailed, python_path
from bench.kafka_jars import CACHE, kafka_class_path
from bench.wire import PeerClosed

CLUSTER_ID = "c3RyYW5kbGluZS1iZW5jaA"
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 60.0
_COMPLAINT = re.compile(r"\b(ERROR|FATAL|CRITICAL|Traceback)\b|^strandline: ")


def _die_with_parent() -> None:
    """Linux kills the node when the thread that started it ends: here the main one, so nodes outlive no harness."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


class System(Protocol):
    """What formats a directory and what serves from it."""

    name: str

    def format_command(self, node: ClusterNode) -> list[str]: ...

    def serve_command(self, node: ClusterNode) -> list[str]: ...

    def properties(self) -> dict[str, str]: ...

    def environment(self) -> dict[str, str]: ...


class KafkaSystem:
    name = "kafka"

    def __init__(self, *, heap_mb: int = 1024, jvm: Sequence[str] = ()) -> None:
        self.heap_mb = heap_mb
        self.jvm = list(jvm)
        self.class_path = kafka_class_path()

    def _java(self, node: ClusterNode) -> list[str]:
        log4j = f"-Dlog4j2.configurationFile={CACHE / 'log4j2.properties'}"
        return ["java", "-cp", self.class_path, f"-Dkafka.logs.dir={node.root}", log4j]

    def format_command(self, node: ClusterNode) -> list[str]:
        tool = ["-XX:TieredStopAtLevel=1", "kafka.tools.StorageTool"]
        return [*self._java(node), *tool, "format", "-t", CLUSTER_ID, "-c", str(node.config)]

    def serve_command(self, node: ClusterNode) -> list[str]:
        heap = [f"-Xmx{self.heap_mb}m", f"-Xms{self.heap_mb}m", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
        return [*self._java(node), *heap, *self.jvm, "kafka.Kafka", str(node.config)]

    def properties(self) -> dict[str, str]:
        # What config/server.properties of the distribution sets beside addresses.
        return {"num.network.threads": "3", "num.io.threads": "8", "log.retention.hours": "168"}

    def environment(self) -> dict[str, str]:
        return {}


class StrandlineSystem:
    name = "strandline"

    def __init__(self, source: Path = SOURCE) -> None:
        self.source = source

    def format_command(self, node: ClusterNode) -> list[str]:
        return [sys.executable, "-m", "strandline", "format", "-t", CLUSTER_ID, "-c", str(node.config)]

    def serve_command(self, node: ClusterNode) -> list[str]:
        return [sys.executable, "-m", "strandline.broker", "--config", str(node.config)]

    def properties(self) -> dict[str, str]:
        return {"http.listener": "off"}

    def environment(self) -> dict[str, str]:
        return python_path(self.source)


@dataclass
class ClusterNode:
    """A place for a node: its directory, its addresses, and the process while one runs. Node ids begin with 1."""

    system: System
    node_id: int
    host: str
    port: int
    controller_port: int
    root: Path
    """Properties and logs of the process."""
    data: Path
    prefix: Sequence[str] = ()
    """What stands before the command, for example to enter a network namespace."""
    environ: Mapping[str, str] = field(default_factory=dict)
    metrics_port: int = 0
    """Where the node serves its metrics; 0 if nowhere."""
    process: subprocess.Popen[bytes] | None = None
    is_paused: bool = False
    started_at: float = 0.0

    @property
    def config(self) -> Path:
        return self.root / "server.properties"

    @property
    def log_files(self) -> list[Path]:
        return [path for path in (self.root / "console.log", self.root / "server.log") if path.exists()]

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        if self.process is None:
            raise BrokerFailed(f"node {self.node_id} does not run")
        return self.process.pid

    def configure(self, nodes: Sequence[ClusterNode], settings: Mapping[str, str]) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        voters = ",".join(f"{node.node_id}@{node.host}:{node.controller_port}" for node in nodes)
        lines = {
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{self.host}:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            # A node may have an address of its own, which only this machine reaches.
            "listener.unauthenticated.allow": "true",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.quorum.voters": voters,
            "log.dirs": str(self.data),
            "default.replication.factor": str(min(3, len(nodes))),
            "min.insync.replicas": "2" if len(nodes) >= 3 else "1",
            "offsets.topic.replication.factor": str(min(3, len(nodes))),
            "transaction.state.log.replication.factor": str(min(3, len(nodes))),
            **self.system.properties(),
            **({"http.listener": f"{self.host}:{self.metrics_port}"} if self.metrics_port else {}),
            **settings,
        }
        self.config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))

    def format(self) -> None:
        command = self.system.format_command(self)
        environment = {**os.environ, **self.system.environment()}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode != 0:
            words = f"{done.stdout}{done.stderr}".strip()[-2000:]
            raise BrokerFailed(f"{self.system.name}: format of node {self.node_id} failed: {words}")

    def spawn(self) -> None:
        """Start the process and do not wait for it."""
        if self.is_running:
            raise BrokerFailed(f"node {self.node_id} already runs")
        environment = {**os.environ, **self.system.environment(), **self.environ}
        self.started_at = time.monotonic()
        self.is_paused = False
        with (self.root / "console.log").open("ab") as output:
            self.process = subprocess.Popen(
                [*self.prefix, *self.system.serve_command(self)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                # A Ctrl-C in the terminal is for the harness, which then stops its nodes in order.
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )

    def wait_answering(self, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return once the node answers Metadata with brokers in it."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                with self.ask(timeout_s=2.0) as question:
                    if question.brokers():
                        return
            except (OSError, PeerClosed):
                pass  # Not there yet: the state that this loop waits out, up to its deadline.
            if not self.is_running:
                raise BrokerFailed(f"node {self.node_id} ended while it started: {self.last_words()}")
            if time.monotonic() > deadline:
                raise BrokerFailed(f"node {self.node_id} did not answer within {timeout_s:g} s: {self.last_words()}")
            time.sleep(0.05)

    def ask(self, *, timeout_s: float = 5.0) -> Question:
        return Question(self.host, self.port, timeout_s=timeout_s)

    def kill(self) -> None:
        """SIGKILL; nothing of the process runs any more when this returns."""
        if self.process is not None:
            if self.process.poll() is None:
                self.process.kill()
            self.process.wait()
        self.is_paused = False

    def stop(self) -> None:
        """SIGTERM, as an operator would; by force if that takes too long."""
        if self.process is None or self.process.poll() is not None:
            return
        if self.is_paused:
            self.resume()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def pause(self) -> None:
        """SIGSTOP; returns when every thread stands still."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self.is_paused = True

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)
        self.is_paused = False

    def log_text(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in self.log_files)

    def complaints(self) -> list[str]:
        return [line for line in self.log_text().splitlines() if _COMPLAINT.search(line)]

    def last_words(self, lines: int = 8) -> str:
        return "\n".join((self.complaints() or self.log_text().splitlines())[-lines:]) or "(it said nothing)"
