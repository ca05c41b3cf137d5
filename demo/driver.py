"""`strandline pipeline run`, as a user starts it, and as a crash ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

FILE = Path("demo", "shop_pipeline.py")
STOP_S_MAX = 120.0


class Driver:
    """The Spark driver: a Python process, the Java process below it, and the workers below that."""

    def __init__(self, bootstrap: str, home: Path) -> None:
        self._bootstrap = bootstrap
        self._home = home
        self._process: subprocess.Popen[bytes] | None = None
        self._log = home / "pipeline.log"
        self._told = 0

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def start(self, *, again: bool = False) -> None:
        command = [*cli(), "pipeline", "run", str(FILE), "--bootstrap", self._bootstrap]
        command += ["--checkpoints", str(self._home / "checkpoints"), "--master", "local[2]"]
        command += ["--set", "spark.sql.shuffle.partitions=2", "--set", "spark.ui.enabled=false"]
        # Its heartbeat is not yet old enough to tell that the process before it is dead.
        command += ["--takeover"] if again else []
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def new_lines(self) -> Iterator[str]:
        """What it has said since it was asked last, whole lines."""
        text = self._log.read_bytes()[self._told :] if self._log.exists() else b""
        whole = text[: text.rfind(b"\n") + 1]
        self._told += len(whole)
        yield from whole.decode("utf-8", "replace").splitlines()

    def kill(self) -> None:
        """SIGKILL to Python and Java at one blow. Workers find out by themselves that they are alone."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def stop(self) -> bool:
        """As Ctrl-C does; whether it ended well."""
        assert self._process is not None
        self._process.terminate()
        try:
            return self._process.wait(STOP_S_MAX) == 0
        except subprocess.TimeoutExpired:
            return False

    def last_words(self) -> str:
        return self._log.read_text(errors="replace")[-2000:] if self._log.exists() else ""


def cli() -> list[str]:
    return [sys.executable, "-m", "strandline"]
