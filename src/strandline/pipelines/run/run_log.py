"""The log files of a run, on the machine that runs it: what the run said, and what Spark logged.

    <home>/logs/<pipeline>/v<version>/run.log      lines with their time; a failure with its whole trace
                                     /run.log.1    the run before, or the lines before those that fill run.log
                                     /spark.log    Spark's log: a link while the run lives, then a copy of its end

The run's record in the registry names `run.log`, so `pipeline logs` finds it.
"""

from __future__ import annotations

import contextlib
import logging
import traceback
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from strandline.spark.spark_log import running_log

RUN_LOG_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of `run.log`; one older file of the same size is kept beside it."""
SPARK_LOG_KEPT_BYTES_MAX: Final = 1024 * 1024
"""How much of the end of Spark's log is kept when a run ends."""


class _Handler(RotatingFileHandler):
    def handleError(self, record: logging.LogRecord) -> None:
        """Drop the line: a full disk is no reason to end a run, or to cover its display with traces."""


class RunLog:
    """The log of one run, which begins a new file. OSError if there can be none."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._spark_copy = path.with_name("spark.log")
        self._spark_copy.unlink(missing_ok=True)
        self._handler = _Handler(path, maxBytes=RUN_LOG_BYTES_MAX, backupCount=1, delay=True)
        self._handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
        if path.exists():
            self._handler.doRollover()

    def line(self, words: str, at_s: float | None = None) -> None:
        """Write a line, with the time `at_s` if it was said earlier."""
        if not self._spark_copy.is_symlink():
            self._link_spark()
        record = logging.makeLogRecord({"msg": words.strip()})
        record.created = at_s or record.created
        self._handler.handle(record)

    def failure(self, error: BaseException) -> None:
        self.line("".join(traceback.format_exception(error)))

    def _link_spark(self) -> None:
        """Let readers find Spark's log, which lies in a directory of its own while Spark runs."""
        if (log := running_log()) is not None:
            with contextlib.suppress(OSError):
                self._spark_copy.symlink_to(log)

    def close(self) -> None:
        """Keep the end of Spark's log, whose directory goes with this process."""
        self._handler.close()
        if not self._spark_copy.is_symlink():
            return
        with contextlib.suppress(OSError):
            content = self._spark_copy.read_bytes()[-SPARK_LOG_KEPT_BYTES_MAX:]
            self._spark_copy.unlink()
            self._spark_copy.write_bytes(content)


def log_file_of(home: Path, pipeline: str, version: int) -> Path:
    return home.resolve() / "logs" / pipeline / f"v{version}" / "run.log"
