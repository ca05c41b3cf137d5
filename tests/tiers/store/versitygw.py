"""versitygw, the S3 server that judges fencing: built once into `.cache` of the repository, and started for a test."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
from tests.connect import s3_server

CACHE: Final = Path(__file__).parents[3] / ".cache" / f"versitygw-{s3_server.VERSION}"
BUILDS_WITHIN_S: Final = 1500.0


def program() -> str:
    """Return the path of the program, or skip the test with the reason why there is none."""
    found = shutil.which("versitygw")
    if found is not None:
        return found
    path = CACHE / "versitygw"
    if path.exists():
        return str(path)
    if shutil.which("go") is None:
        pytest.skip("needs versitygw, or Go to build it")
    # One core at the lowest priority: it takes minutes, and others work on this machine.
    command = ["nice", "-n", "19", "go", "install", f"github.com/versity/versitygw/cmd/versitygw@{s3_server.VERSION}"]
    environment = os.environ | {"GOBIN": str(CACHE), "GOMAXPROCS": "1", "GOFLAGS": "-buildvcs=false -p=1"}
    try:
        # What was compiled stays in Go's cache, so that a build that took too long goes on the next time.
        done = subprocess.run(
            command,
            env=environment,
            cwd=Path.home(),
            capture_output=True,
            text=True,
            timeout=BUILDS_WITHIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"Go did not build versitygw within {BUILDS_WITHIN_S:.0f} s")
    if done.returncode != 0:
        pytest.skip(f"Go could not build versitygw: {done.stderr[-500:]}")
    return str(path)


def gateway(directory: Path, monkeypatch: pytest.MonkeyPatch) -> s3_server.S3Server:
    """Start a gateway with one bucket, whose objects are files below `directory`."""
    path = program()
    monkeypatch.setattr(s3_server, "program", lambda: path)
    return s3_server.S3Server(directory).start()


def options_of(port: int) -> dict[str, str]:
    """Return the options of a store at a port, which may be that of a proxy."""
    return {
        "aws_endpoint": f"http://127.0.0.1:{port}",
        "aws_allow_http": "true",
        "aws_region": "us-east-1",
        "aws_access_key_id": "tester",
        "aws_secret_access_key": "tester-secret",
    }
