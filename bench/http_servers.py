"""Processes that serve HTTP, and one connection of a browser that measures them."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import measure

_ROOT = Path(__file__).resolve().parent.parent


@dataclass
class HttpServer:
    """A process that serves HTTP."""

    name: str
    bootstrap: str
    """Its address, or that of a broker: what its line `ready` has said."""
    process: subprocess.Popen[str]
    ready_s: float = 0.0
    """From the start of the process to that line."""

    def cpu_seconds(self) -> float:
        return measure.cpu_seconds(self.process.pid)

    def get(self, path: str) -> tuple[float, bytes]:
        """Return the milliseconds that a page took on a connection of its own, and what came. Raise if it failed."""
        connection = http.client.HTTPConnection(self.bootstrap, timeout=60)
        began = time.perf_counter()
        try:
            connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        took_ms = (time.perf_counter() - began) * 1000
        if answer.status != 200:
            raise RuntimeError(f"{path} was answered with {answer.status}")
        return took_ms, body


@contextmanager
def served(name: str, module: Sequence[str]) -> Iterator[HttpServer]:
    """Run a module, whose first line is `ready ADDRESS`, and end it."""
    paths = [str(_ROOT), str(_ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", *module],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("ready "), line
        address = line.split()[1].removeprefix("http://")
        yield HttpServer(name, address, process, time.perf_counter() - began)
    finally:
        process.terminate()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
