"""`strandline serve --brokers N`: several broker processes of one machine by one command, in the form of one broker."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.asking import Question
from bench.brokers import CREATE_TIMEOUT_S, SOURCE, START_TIMEOUT_S, Broker, BrokerFailed, python_path, wait_or_discard
from bench.wire import Connection
from strandline.local.free_ports import free_port


@dataclass
class LocalBrokers(Broker):
    """One process that watches over the brokers; CPU and memory are those of all of them together."""

    def wait_until_answering(self) -> None:
        deadline = self.started_at + START_TIMEOUT_S
        while not any(line.startswith("ready ") for line in self.log.read_text().splitlines()):
            if self.process.poll() is not None or time.perf_counter() > deadline:
                raise BrokerFailed(f"{self.name} did not come up: {self.last_words()}")
            time.sleep(0.02)

    def create_topic(self, topic: str, partitions: int = 1, settings: Mapping[str, str] | None = None) -> None:
        """Create the topic and wait until each partition is served by the broker that leads it."""
        with self.connect(timeout_s=CREATE_TIMEOUT_S) as connection:
            connection.create_topic(topic, partitions, settings or {}, timeout_ms=int(CREATE_TIMEOUT_S * 1000))
        deadline = time.perf_counter() + CREATE_TIMEOUT_S
        while self._served(topic, partitions) < partitions:
            if self.process.poll() is not None or time.perf_counter() > deadline:
                raise BrokerFailed(f"it does not serve all of {topic}: {self.last_words(1)}")
            time.sleep(0.02)

    def _served(self, topic: str, partitions: int) -> int:
        served = 0
        for host, port in self._addresses().values():
            with Connection(host, port) as connection:
                served += connection.serving_partitions(topic, partitions)
        return served

    def _addresses(self) -> dict[int, tuple[str, int]]:
        with Question("127.0.0.1", self.port) as question:
            return question.brokers()

    def addresses_of(self, topic: str) -> list[str]:
        addresses = {node_id: f"{host}:{port}" for node_id, (host, port) in self._addresses().items()}
        with Question("127.0.0.1", self.port) as question:
            states = sorted(question.partitions([topic]), key=lambda state: state.partition)
        return [addresses[state.leader] for state in states]


def start_local_brokers(
    root: Path, count: int, *, name: str, settings: Mapping[str, str], source: Path = SOURCE
) -> LocalBrokers:
    """Run `strandline serve --brokers COUNT` in an empty directory, on free ports."""
    root.mkdir(parents=True)
    port, data, log = _free_ports(count), root / "data", root / "server.log"
    options = [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]
    command = [sys.executable, "-m", "strandline", "serve", "--brokers", str(count), "--data", str(data)]
    command += ["--listen", f"127.0.0.1:{port}", *options]
    started_at = time.perf_counter()
    with log.open("w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, text=True, env={**os.environ, **python_path(source)}
        )
    brokers = LocalBrokers(name, data, port, process, command, log, started_at)
    wait_or_discard(brokers)
    return brokers


def _free_ports(count: int) -> int:
    """Return the first of so many consecutive ports that are free now."""
    while True:
        first = free_port()
        try:
            for port in range(first, first + count):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue  # One of them is taken: look elsewhere.
        return first
