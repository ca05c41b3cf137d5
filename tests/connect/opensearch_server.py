"""A real OpenSearch: the small distribution that it publishes for integration tests, brought by Maven."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from bench.maven import MavenFailed, copy_jars, pom
from tests.connect.postgres_server import _as, _unprivileged

from strandline.local.free_ports import free_port

VERSION: Final = "2.19.6"
"""The last that runs on Java 17."""
STARTS_WITHIN_S: Final = 240.0
_GROUP: Final = "org.opensearch.distribution.integ-test-zip"


@cache
def _distribution() -> Path:
    """Return the archive of the server; skip the test if it cannot be had."""
    if shutil.which("mvn") is None or shutil.which("java") is None:
        pytest.skip("needs Java and Maven for OpenSearch")
    libs = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "strandline-tests" / "opensearch" / "libs"
    archive = libs / f"opensearch-{VERSION}.zip"
    if not archive.exists():
        try:
            copy_jars(pom("opensearch", [(_GROUP, "opensearch", VERSION)], alone=True, kind="zip"), libs)
        except MavenFailed as error:
            pytest.skip(f"Maven could not bring OpenSearch: {error}")
    return archive


class OpenSearchServer:
    """One node, which can be killed and started again with its data."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="opensearch-"))
        with zipfile.ZipFile(_distribution()) as archive:
            archive.extractall(self._directory)
        self._home = self._directory / f"opensearch-{VERSION}"
        for each in (self._home / "bin").iterdir():
            each.chmod(0o755)
        self.port = free_port()
        (self._home / "config" / "opensearch.yml").write_text(
            f"discovery.type: single-node\nnetwork.host: 127.0.0.1\nhttp.port: {self.port}\n"
            f"transport.port: {free_port()}\ncluster.routing.allocation.disk.threshold_enabled: false\n"
        )
        self._user = _unprivileged()
        if self._user:
            for each in (self._directory, *self._directory.rglob("*")):
                shutil.chown(each, self._user)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> OpenSearchServer:
        java = Path(os.path.realpath(shutil.which("java") or "")).parent.parent
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._home / "bin" / "opensearch"],
                stdout=log,
                stderr=log,
                cwd=self._home,
                env={**os.environ, "OPENSEARCH_JAVA_HOME": str(java), "OPENSEARCH_JAVA_OPTS": "-Xms512m -Xmx512m"},
                **_as(self._user),
            )
        deadline = time.monotonic() + STARTS_WITHIN_S
        while not self._is_ready():
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.2)
        return self

    def kill(self) -> None:
        """End the server with SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def log(self) -> str:
        return (self._directory / "log").read_text(errors="replace")[-3000:]

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def documents(self, index: str) -> dict[str, Any]:
        """Return all documents of an index by their ids."""
        self.ask("POST", f"/{index}/_refresh")
        found = self.ask("POST", f"/{index}/_search", {"size": 1000})
        return {each["_id"]: each["_source"] for each in found["hits"]["hits"]}

    def _is_ready(self) -> bool:
        try:
            return bool(self.ask("GET", "/_cluster/health")["status"] in ("green", "yellow"))
        except (OSError, urllib.error.URLError):
            return False
