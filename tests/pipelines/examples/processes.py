"""`strandline pipeline run` as a process of its own, made to be killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.measure import process_family
from tests.pipelines.examples.checks import EXAMPLES

from strandline.pipelines.versions.state import checkpoint_of

WAIT_S_MAX = 600.0
LOOK_S = 0.02


class PipelineProcess:
    def __init__(self, example: str, bootstrap: str, home: Path, *arguments: str, master: str = "local[2]") -> None:
        self._pipeline = Path(example).stem
        self._checkpoints = home / "checkpoints"
        self._log = home / f"{self._pipeline}.log"
        command = [sys.executable, "-m", "strandline", "pipeline", "run", str(EXAMPLES / example)]
        command += ["--bootstrap", bootstrap, "--checkpoints", str(self._checkpoints), "--master", master]
        command += ["--set", "spark.sql.shuffle.partitions=2", *arguments]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, cwd=home, stdout=log, stderr=log, start_new_session=True)
        self._family = {self._process.pid}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()

    def wait_for_batch(self, dataset: str, batch: int) -> None:
        """Until it has begun."""
        begun = Path(checkpoint_of(str(self._checkpoints), self._pipeline, 1, dataset), "offsets", str(batch))
        self.wait_until(begun.exists, f"batch {batch} of {dataset} begins")

    def wait_until(self, condition: Callable[[], bool], what: str, *, every_s: float = LOOK_S) -> None:
        deadline = time.monotonic() + WAIT_S_MAX
        while not condition():
            assert self._process.poll() is None, f"it ended before {what}: {self.last_words()}"
            assert time.monotonic() < deadline, f"{what}: not within {WAIT_S_MAX:g} s: {self.last_words()}"
            time.sleep(every_s)

    def kill(self) -> None:
        """The driver and its Java at one blow, with all that hangs on them."""
        if self._process.poll() is None:
            self._family |= set(process_family(self._process.pid))
        for pid in self._family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        self._family |= set(process_family(self._process.pid))
        self._process.terminate()
        self.wait_well()

    def wait_well(self) -> None:
        """Until it ends by itself, content."""
        code = self._process.wait(WAIT_S_MAX)
        assert code == 0, f"it left with {code}: {self.last_words()}"

    def last_words(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]
