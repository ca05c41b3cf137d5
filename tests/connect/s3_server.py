"""A real process that speaks S3: versitygw, from PATH or built once by `go install` into the user's cache directory."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from strandline.local.free_ports import free_port

VERSION: Final = "v1.8.0"
BUILDS_WITHIN_S: Final = 1200.0
STARTS_WITHIN_S: Final = 60.0
BUCKET: Final = "lake"
_KEY: Final = "tester"
_SECRET: Final = "tester-secret"


class S3Unavailable(Exception):
    """There is no program that speaks S3, and none can be built."""


class S3Server:
    """A server with one bucket. Its objects are files of a directory and stay over `kill` and `start`."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.port = free_port()
        self._options = options
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        for each in (f"objects/{BUCKET}", "metadata"):
            (directory / each).mkdir(parents=True)

    def start(self) -> S3Server:
        """Start the server, also again after `kill`. Return when it accepts connections."""
        command = [program(), "--access", _KEY, "--secret", _SECRET, "--port", f"127.0.0.1:{self.port}"]
        command += self._options
        # Beside the objects, because not every file system has extended attributes.
        command += ["posix", "--sidecar", str(self._directory / "metadata"), str(self._directory / "objects")]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._directory)
        deadline = time.monotonic() + STARTS_WITHIN_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 5).close()
            except OSError:
                assert self._process.poll() is None, self.log()
                assert time.monotonic() < deadline, self.log()
                time.sleep(0.02)
            else:
                return self

    def kill(self) -> None:
        """End the server with SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def log(self) -> str:
        return (self._directory / "log").read_text(errors="replace")[-3000:]

    @property
    def properties(self) -> dict[str, str]:
        """The settings of connectors for its bucket."""
        return {
            "store.url": f"s3://{BUCKET}/data",
            "store.endpoint": f"http://127.0.0.1:{self.port}",
            "store.allow.http": "true",
            "store.region": "us-east-1",
            "store.access.key.id": _KEY,
            "store.secret.access.key": _SECRET,
        }


def needs_s3() -> None:
    """Skip the test if there is no server."""
    pytest.importorskip("obstore")
    try:
        program()
    except S3Unavailable as reason:
        pytest.skip(str(reason))


@cache
def program() -> str:
    """Return the path of the server's program."""
    found = shutil.which("versitygw")
    if found is not None:
        return found
    cached = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "strandline-tests" / VERSION
    if (cached / "versitygw").exists():
        return str(cached / "versitygw")
    if shutil.which("go") is None:
        raise S3Unavailable("needs versitygw, or Go to build it")
    command = ["go", "install", f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"]
    try:
        done = subprocess.run(
            command,
            env=os.environ | {"GOBIN": str(cached)},
            cwd=Path.home(),
            capture_output=True,
            text=True,
            timeout=BUILDS_WITHIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise S3Unavailable(f"Go did not build versitygw within {BUILDS_WITHIN_S:.0f} s") from None
    if done.returncode != 0:
        raise S3Unavailable(f"Go could not build versitygw: {done.stderr[-500:]}")
    return str(cached / "versitygw")
