"""A client in a process of its own, so that its work never shows in the broker's figures.

The client prints one line when it is connected, waits for a line on its standard input, works, and prints its result as
JSON. Between the two lines lies the measured span, free of interpreter start and connection set-up.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.brokers import Server

READY = "ready"
_ROOT = Path(__file__).resolve().parent.parent


class ClientFailed(Exception):
    """A client left without a result."""


class ClientProcess:
    def __init__(self, client: str, **task: Any) -> None:
        """Start `bench.clients.<client>`; its task travels as JSON in the only argument."""
        paths = [str(_ROOT), str(_ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        self.client = client
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"bench.clients.{client}", json.dumps(task)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def __enter__(self) -> ClientProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def wait_ready(self) -> None:
        if self._line() != READY:
            raise ClientFailed(f"{self.client} was not ready")

    def tell(self) -> None:
        """Give the sign: the first starts the work, a second one ends work that has no end of its own."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def result(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(self._line())
        return result

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise ClientFailed(f"{self.client} left with status {self.process.wait()}")
        return line.rstrip("\n")


def run_measured(
    broker: Server, tasks: Sequence[tuple[str, Mapping[str, Any]]]
) -> tuple[float, float, list[dict[str, Any]]]:
    """Run clients side by side; return the broker's CPU seconds, the elapsed seconds and each client's result."""
    clients = [ClientProcess(client, bootstrap=broker.bootstrap, **task) for client, task in tasks]
    try:
        for client in clients:
            client.wait_ready()
        cpu, start = broker.cpu_seconds(), time.perf_counter()
        for client in clients:
            client.tell()
        results = [client.result() for client in clients]
        return broker.cpu_seconds() - cpu, time.perf_counter() - start, results
    finally:
        for client in clients:
            client.__exit__(None, None, None)
