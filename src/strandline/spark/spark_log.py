"""The directory of Spark's logs, which is named when something fails and removed at the end otherwise.

`spark.log` is what Spark logs, bounded; `stderr` is what the Java process and the Python workers print.
"""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
from pathlib import Path
from typing import Final

SPARK_LOG_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of `spark.log`; one older file of the same size is kept beside it."""

QUOTED_BYTES_MAX: Final = 64 * 1024
"""How much of the end of `stderr` is searched for why a Java process ended."""

_LAYOUT: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.old
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = {size}
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 1
# Whether a standalone master took us is said here and nowhere else.
logger.client.name = org.apache.spark.deploy.client
logger.client.level = info
logger.backend.name = org.apache.spark.scheduler.cluster.StandaloneSchedulerBackend
logger.backend.level = info
"""

# Java's own words for why it does not start, and those of Spark's launcher.
_TELLING: Final = re.compile(
    r"^(?:Error occurred during initialization of VM\n(.+)|((?:Error|Exception|Invalid|Unrecognized|Conflicting)\b.*)"
    r"|# (There is insufficient memory.+))$",
    re.MULTILINE,
)


_running: SparkLog | None = None
"""That of the Java process which this Python process has: there is never more than one."""


def where_to_read_more() -> str:
    """The end of a sentence about a failure that only Spark's log explains; empty if there is none."""
    return "" if _running is None else f"; {_running.told()}"


def running_log() -> Path | None:
    """Return the file that this process's Java logs to; None if there is none, or it logs to the terminal."""
    return None if _running is None else _running.path


class SparkLog:
    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="strandline-spark-"))
        self.path = self.directory / "spark.log"
        self.stderr = self.directory / "stderr"
        self._was_told = False
        self._layout = self.directory / "log4j2.properties"
        self._layout.write_text(_LAYOUT.format(log=self.path, size=SPARK_LOG_BYTES_MAX))
        atexit.register(self._discard)

    def begin(self) -> None:
        """A Java process is started that writes here."""
        global _running
        _running = self

    @property
    def java_options(self) -> str:
        # Why a Java process cannot start would go to the user's standard output, and why it crashed to where they are.
        crash = self.directory / "crash-%p.log"
        return f"-XX:+DisplayVMOutputToStderr -XX:ErrorFile={crash} -Dlog4j2.configurationFile=file:{self._layout}"

    def told(self) -> str:
        """Return where the log is, for the end of a sentence. From now on the directory outlives this process."""
        self._was_told = True
        return f"Spark's log is in {self.directory}"

    def reason(self) -> str:
        """The line in which the Java process said why it ended, if it did."""
        text = self.stderr.read_bytes()[-QUOTED_BYTES_MAX:].decode(errors="replace") if self.stderr.exists() else ""
        found = _TELLING.search(text)
        return next(group for group in found.groups() if group).strip() if found else ""

    def text(self) -> str:
        return self.path.read_text(errors="replace") if self.path.exists() else ""

    def _discard(self) -> None:
        if not self._was_told:
            # The Java process may be writing its last words into it right now.
            shutil.rmtree(self.directory, ignore_errors=True)
