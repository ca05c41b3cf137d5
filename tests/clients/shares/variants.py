"""The clients of the table of share groups."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.clients.groups.variants import go_program
from tests.clients.java_driver import JavaDriver
from tests.clients.program_driver import ProgramDriver

GO_SOURCES = Path(__file__).resolve().parent / "franz-go"


@dataclass(frozen=True)
class ShareClient:
    """How one process of a client is started for a bootstrap address and a directory, and when it is tried."""

    start: Callable[[str, Path], ProgramDriver]
    marks: tuple[pytest.MarkDecorator, ...] = ()


def _confluent(bootstrap: str, logs: Path) -> ProgramDriver:
    command = [sys.executable, "-m", "tests.clients.shares.confluent_program", bootstrap]
    return ProgramDriver(command, logs / "program.err")


def _franz_go(bootstrap: str, logs: Path) -> ProgramDriver:
    return ProgramDriver([go_program(GO_SOURCES, "sharing"), bootstrap], logs / "program.err")


CLIENTS: dict[str, ShareClient] = {
    "confluent-kafka": ShareClient(_confluent),
    "franz-go": ShareClient(_franz_go, (pytest.mark.slow,)),
    "java": ShareClient(JavaDriver, (pytest.mark.slow, pytest.mark.java)),
}
