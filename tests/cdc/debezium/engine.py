"""A live Debezium engine: one Java process that runs one connector after another and writes their records to files."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Final

from bench.cdc_engine.jars import debezium_class_path
from bench.java_sources import compiled

_SOURCES: Final = Path(__file__).parent
_OPTIONS: Final = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


class EngineFailed(Exception):
    """What the engine said when it ended."""


class LiveDebezium:
    """The process; `directory` holds its log and the records of its connectors."""

    def __init__(self, directory: Path) -> None:
        self.log = directory / "debezium.log"
        self._directory = directory
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> LiveDebezium:
        jars = debezium_class_path()
        classes = compiled(_SOURCES, jars, name="cdc-recorder")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                ["java", *_OPTIONS, "-cp", f"{classes}:{jars}", "Recorder"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                bufsize=1,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def start(self, name: str, settings: Mapping[str, str]) -> Path:
        """Start a connector. Return the file to which its records go, one line of JSON each."""
        properties, records = self._directory / f"{name}.properties", self._directory / f"{name}.jsonl"
        lines = [f"{key}={value}".replace("\\", "\\\\") + "\n" for key, value in settings.items()]
        properties.write_text("".join(lines), encoding="utf-8")
        self._say(f"start {properties} {records}")
        self._expect("started")
        return records

    def stop(self) -> None:
        """Stop the connector. Raise EngineFailed if it had ended by itself."""
        self._say("stop")
        self._expect("stopped")

    def _say(self, line: str) -> None:
        self._pipe("stdin").write(line + "\n")

    def _expect(self, answer: str) -> None:
        failed = ""
        while True:
            line = self._pipe("stdout").readline().rstrip("\n")
            if line.startswith("ended "):
                failed = line
            elif line == answer:
                break
            elif not line:
                raise EngineFailed(self.log.read_text(errors="replace")[-4000:])
        if failed:
            raise EngineFailed(failed.removeprefix("ended "))

    def _pipe(self, name: str) -> IO[str]:
        assert self._process is not None
        pipe: IO[str] = getattr(self._process, name)
        return pipe
