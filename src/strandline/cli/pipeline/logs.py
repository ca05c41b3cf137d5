"""`strandline pipeline logs`: what the running or the last run said, and what Spark logged for it."""

from __future__ import annotations

import os
import platform
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.common.failures import CommandFailed, Interrupted, NotFound
from strandline.cli.common.options import AsJson, GroundBootstrap
from strandline.cli.common.output import Output
from strandline.cli.pipeline.reading import PipelineName, is_there, known_pipeline, registry_of

if TYPE_CHECKING:
    from strandline.pipelines.versions.state import RunState
    from strandline.pipelines.versions.version_store import Registry

LOOK_S = 0.25
ASK_S = 1.0
"""How often the registry is asked whether the run that is followed goes on."""

_TIME = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")


def logs(
    name: PipelineName,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show new lines until the run ends; Ctrl-C stops.")
    ] = False,
    last: Annotated[
        int | None, typer.Option("--last", "-n", metavar="N", min=1, help="Show only the newest N lines.")
    ] = None,
    bootstrap: GroundBootstrap = None,
    as_json: AsJson = False,
) -> None:
    """Show the log of a pipeline's current or last run: its start, its batches, failures with traces, Spark's warnings.

    The log is a file on the machine of that run: run this command there.
    """
    with registry_of(bootstrap) as registry:
        known_pipeline(registry, name)
        run = _chosen(registry, name)
        printer = _Printer(Output(as_json=as_json), run)
        tails = [Tail(kind, path) for kind, path in _files(run)]
        printer.show(merged([(tail.kind, line) for tail in tails for line in tail.read()]), last)
        if follow:
            _follow(registry, run, tails, printer)


def _chosen(registry: Registry, name: str) -> RunState:
    runs = registry.runs(name).values()
    if not runs:
        raise NotFound(f"{name} never ran", hint="`strandline pipeline run FILE` runs it")
    now_ms = time.time_ns() // 1_000_000
    return max(runs, key=lambda run: (is_there(run, now_ms), run.started_ms))


def _files(run: RunState) -> list[tuple[str, Path]]:
    """Return the files of a run on this machine; CommandFailed says where they are otherwise."""
    if not run.log:
        raise CommandFailed(
            f"process {run.pid} on {run.host}, which ran {run.pipeline}, kept no log",
            hint="`pipeline run` keeps one; a rebuild says everything on its own terminal",
        )
    if run.host != platform.node():
        raise CommandFailed(
            f"{run.pipeline} ran as process {run.pid} on {run.host}, so its log is there and not on {platform.node()}",
            hint=f"on {run.host}: `tail -f {run.log}`",
        )
    path = Path(run.log)
    if not path.exists():
        raise NotFound(f"the log {run.log} of {run.pipeline} is gone", hint="the next run begins a new one")
    return [("run", path), ("spark", path.with_name("spark.log"))]


class Tail:
    """A file that grows and may be replaced: `read` returns the lines that are new."""

    def __init__(self, kind: str, path: Path) -> None:
        self.kind = kind
        self._path = path
        self._inode = 0
        self._at = 0

    def read(self) -> list[bytes]:
        try:
            with self._path.open("rb") as file:
                told = os.fstat(file.fileno())
                if told.st_ino != self._inode or told.st_size < self._at:
                    self._inode, self._at = told.st_ino, 0
                file.seek(self._at)
                # A line that is still being written is read when it is whole.
                content, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self._at += len(content) + len(newline)
        return content.split(b"\n") if newline else []


def merged(lines: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """Return the lines of all files in the order of their times; a line without one goes with the line before it."""
    at, times = b"", []
    kind_before = ""
    for kind, line in lines:
        found = _TIME.match(line)
        at = found.group() if found else at if kind == kind_before else b""
        kind_before = kind
        times.append(at)
    order = sorted(range(len(lines)), key=lambda index: times[index])
    return [lines[index] for index in order]


class _Printer:
    def __init__(self, output: Output, run: RunState) -> None:
        self.output = output
        self._run = run

    def show(self, lines: list[tuple[str, bytes]], last: int | None = None) -> None:
        for kind, line in lines if last is None else lines[-last:]:
            if self.output.as_json:
                told = {"pipeline": self._run.pipeline, "version": self._run.version, "log": kind}
                self.output.json_line({**told, "line": line.decode(errors="replace")})
            else:
                self.output.write(line + b"\n")
        self.output.flush()


def _follow(registry: Registry, run: RunState, tails: list[Tail], printer: _Printer) -> None:
    asked_s, goes_on = 0.0, True
    try:
        while True:
            # Asked before the files are read: what the run said at its end is shown, too.
            if time.monotonic() - asked_s >= ASK_S:
                now = registry.refresh().run(run.pipeline, run.version)
                asked_s = time.monotonic()
                goes_on = now is not None and now.owner == run.owner and is_there(now, time.time_ns() // 1_000_000)
            printer.show(merged([(tail.kind, line) for tail in tails for line in tail.read()]))
            if not goes_on:
                printer.output.talk(f"the run of {run.pipeline} has ended")
                return
            time.sleep(LOOK_S)
    except Interrupted:
        return
