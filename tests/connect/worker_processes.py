"""Workers as processes, `strandline connect serve`, that can be killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.connect.running import PLUGINS, wait_until

ROOT = Path(__file__).resolve().parents[2]


class WorkerProcess:
    """One worker; `url` is its REST API."""

    def __init__(self, bootstrap: str, log: Path, **settings: str) -> None:
        given = {"plugin.modules": PLUGINS, "allowed.paths": str(log.parent)} | {
            name.replace("_", "."): value for name, value in settings.items()
        }
        self._log = log.open("ab")
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "strandline", "connect", "serve", "--verbose"),
                *("--bootstrap", bootstrap, "--listen", "127.0.0.1:0"),
                *(part for name, value in given.items() for part in ("-X", f"{name}={value}")),
            ],
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        )
        self.url = ""

    def wait_ready(self) -> WorkerProcess:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode()
        assert line.startswith("ready "), f"the worker did not start: {Path(self._log.name).read_text()[-2000:]}"
        self.url = line.split()[1]
        return self

    @property
    def worker_id(self) -> str:
        return self.url.removeprefix("http://")

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def wait_killed(self) -> int:
        """Wait until the process has ended by itself; return its status."""
        return self._process.wait(60)

    def stop(self, within_s: float = 60) -> int:
        self._process.terminate()
        return self._process.wait(within_s)

    def __enter__(self) -> WorkerProcess:
        return self.wait_ready()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Return the status and the body of an answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=100) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            with error:
                text = error.read()
            return error.code, json.loads(text) if text else None

    def create(self, name: str, **config: str) -> None:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        answers: list[Any] = []

        def is_made() -> bool:
            # While the group rebalances the answer is 409.
            answers[:] = self.ask("POST", "/connectors", {"name": name, "config": settings})
            return answers[0] != 409 or "already exists" in answers[1]["message"]

        wait_until(is_made, f"the connector {name} is made: {answers}")
        assert answers[0] in (201, 409), answers

    def running_on(self, name: str) -> dict[int, str]:
        """Return the worker of each task that runs."""
        status, body = self.ask("GET", f"/connectors/{name}/status")
        if status != 200:
            return {}
        return {each["id"]: each["worker_id"] for each in body["tasks"] if each["state"] == "RUNNING"}
