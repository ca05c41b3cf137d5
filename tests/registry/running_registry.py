"""A registry in a process of its own beside a broker, and requests to it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

TIMEOUT_S = 60


class RunningRegistry:
    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url

    def ask(
        self, method: str, path: str, body: Any = None, *, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """Return the status and the JSON of an answer; the path goes out as it is."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/vnd.schemaregistry.v1+json"} | (headers or {})
        request = Request(self.url + path, data, sent, method=method)
        try:
            with urlopen(request, timeout=TIMEOUT_S) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except HTTPError as error:
            return error.code, json.loads(error.read() or b"null")

    def register(self, subject: str, schema: Any, **more: Any) -> tuple[int, Any]:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return self.ask("POST", f"/subjects/{quote(subject, safe='')}/versions", {"schema": text, **more})

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def serve_command(bootstrap: str) -> list[str]:
    return [sys.executable, "-m", "strandline", "registry", "serve", "-b", bootstrap, "--listen", "127.0.0.1:0"]


def start_registry(bootstrap: str, *arguments: str) -> RunningRegistry:
    process = subprocess.Popen([*serve_command(bootstrap), *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("ready http://"), line
    return RunningRegistry(process, line.split()[1])


@contextmanager
def running_registry(bootstrap: str, *arguments: str) -> Iterator[RunningRegistry]:
    registry = start_registry(bootstrap, *arguments)
    try:
        yield registry
    finally:
        registry.process.terminate()
        try:
            registry.process.wait(TIMEOUT_S)
        finally:
            registry.process.kill()
            registry.process.wait()
            assert registry.process.stdout is not None
            registry.process.stdout.close()
