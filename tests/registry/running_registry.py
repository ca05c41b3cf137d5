"""A registry in a process of its own beside a broker, and requests to it."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

TIMEOUT_S = 60

User = tuple[str, str]
"""A name and a password."""


class RunningRegistry:
    def __init__(self, process: subprocess.Popen[str], url: str, context: ssl.SSLContext | None = None) -> None:
        self.process = process
        self.url = url
        self._context = context

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        user: User | None = None,
    ) -> tuple[int, Any]:
        """Return the status and the JSON of an answer; the path goes out as it is."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/vnd.schemaregistry.v1+json"} | (headers or {})
        if user is not None:
            sent["Authorization"] = "Basic " + base64.b64encode(":".join(user).encode()).decode()
        request = Request(self.url + path, data, sent, method=method)
        try:
            with urlopen(request, timeout=TIMEOUT_S, context=self._context) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except HTTPError as error:
            return error.code, json.loads(error.read() or b"null")

    def register(self, subject: str, schema: Any, *, user: User | None = None, **more: Any) -> tuple[int, Any]:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        path = f"/subjects/{quote(subject, safe='')}/versions"
        return self.ask("POST", path, {"schema": text, **more}, user=user)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def serve_command(bootstrap: str) -> list[str]:
    return [sys.executable, "-m", "strandline", "registry", "serve", "-b", bootstrap, "--listen", "127.0.0.1:0"]


def start_registry(bootstrap: str, *arguments: str) -> RunningRegistry:
    return start([*serve_command(bootstrap), *arguments])


def start(command: list[str], context: ssl.SSLContext | None = None) -> RunningRegistry:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("ready http"), line
    return RunningRegistry(process, line.split()[1], context)


@contextmanager
def running_registry(bootstrap: str, *arguments: str) -> Iterator[RunningRegistry]:
    with stopped(start_registry(bootstrap, *arguments)) as registry:
        yield registry


@contextmanager
def stopped(registry: RunningRegistry) -> Iterator[RunningRegistry]:
    """Stop a registry when the block ends."""
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


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.05)
