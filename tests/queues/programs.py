"""Programs of their own that tests start, listen to, and kill."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent


class Program:
    """A process and the lines that it has printed so far."""

    def __init__(self, name: str, *arguments: str) -> None:
        root = HERE.parents[1]
        paths = os.pathsep.join((str(root / "src"), str(root), os.environ.get("PYTHONPATH", "")))
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / name), *arguments],
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": paths},
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.decode().strip())

    def kill(self) -> None:
        """End it as a power cut would; all that it printed is in `lines` afterwards."""
        self.process.kill()
        self.wait()

    def wait(self) -> None:
        self.process.wait(60)
        self._reader.join(30)
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def running(name: str, *arguments: str) -> Iterator[Program]:
    program = Program(name, *arguments)
    try:
        yield program
    finally:
        if program.process.poll() is None:
            program.kill()
        elif program.process.stdout is not None and not program.process.stdout.closed:
            program.wait()
