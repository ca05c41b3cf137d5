"""The command line as a user has it: a process with pipes, or with a terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from tests.clients.broker import shared_broker
from tests.registry.running_registry import running_registry

from strandline.cli import main

TIMEOUT_S = 60
COMMAND = (sys.executable, "-m", "strandline")


@dataclass(frozen=True)
class Ended:
    status: int
    stdout: bytes
    stderr: str

    @property
    def lines(self) -> list[str]:
        return self.stdout.decode().splitlines()

    @property
    def objects(self) -> list[Any]:
        return [json.loads(line) for line in self.stdout.splitlines()]


class CommandLine:
    def __init__(self, bootstrap: str | None = None) -> None:
        self.bootstrap = bootstrap
        self.options: tuple[str, ...] = ()
        """Options of every command."""
        self.environ = os.environ | {"COLUMNS": "100"}
        self.environ.pop("NO_COLOR", None)
        if bootstrap:
            self.environ["STRANDLINE_BOOTSTRAP"] = bootstrap

    def run(self, *arguments: str, stdin: bytes = b"") -> Ended:
        """Run in this process, which spares the imports: most tests are about what is said, not about processes."""
        arguments = (*arguments, *self.options)
        stdout, stderr = io.BytesIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "environ", self.environ)
            patch.setattr(sys, "argv", ["strandline", *arguments])
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            patch.setattr(sys, "stdout", io.TextIOWrapper(stdout, write_through=True))
            patch.setattr(sys, "stderr", stderr)
            status = main(arguments)
            return Ended(status, stdout.getvalue(), stderr.getvalue())

    def ok(self, *arguments: str, stdin: bytes = b"") -> Ended:
        ended = self.run(*arguments, stdin=stdin)
        assert ended.status == 0, ended.stderr
        return ended

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environ,
        )

    def on_terminal(self, arguments: Sequence[str], *, typed: bytes = b"", **environ: str) -> Ended:
        """Run with a terminal on all three streams; what it showed is in `stdout`."""
        leader, follower = pty.openpty()
        process = subprocess.Popen(
            [*COMMAND, *arguments, *self.options],
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env=self.environ | environ,
        )
        os.close(follower)
        os.write(leader, typed)
        shown = b""
        # Linux answers EIO, not an empty read, when the last process has closed its end of a terminal.
        while piece := _read_or_end(leader):
            shown += piece
        os.close(leader)
        return Ended(process.wait(TIMEOUT_S), shown, "")


def _read_or_end(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    with shared_broker() as bootstrap:
        yield bootstrap


@pytest.fixture
def cli(bootstrap: str) -> CommandLine:
    return CommandLine(bootstrap)


@pytest.fixture(scope="session")
def registry_url(bootstrap: str) -> Iterator[str]:
    """A registry beside the broker that all tests share; each uses subjects of its own."""
    with running_registry(bootstrap) as registry:
        yield registry.url


@pytest.fixture
def registry_cli(bootstrap: str, registry_url: str) -> CommandLine:
    """A command line that knows a registry, too."""
    command_line = CommandLine(bootstrap)
    command_line.environ["STRANDLINE_REGISTRY"] = registry_url
    # A registry answers a write when its transaction has ended, and the machine may be busy.
    command_line.options = ("--timeout", str(TIMEOUT_S))
    return command_line


@pytest.fixture
def lonely_cli() -> CommandLine:
    """A command line without a cluster."""
    return CommandLine()


@pytest.fixture
def topic(cli: CommandLine) -> str:
    """A topic with three partitions."""
    name = f"cli-{uuid.uuid4().hex[:8]}"
    cli.ok("topic", "create", name, "--partitions", "3")
    return name
