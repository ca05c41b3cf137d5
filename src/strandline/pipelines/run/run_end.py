"""How a run ends: by the user, another command, a rebuild, or a process that has taken over."""

from __future__ import annotations

import threading
from enum import Enum

from strandline.pipelines.failures import PipelineRefused
from strandline.pipelines.rebuild.phases import is_switching
from strandline.pipelines.run.run_record import RunRecord
from strandline.pipelines.versions.state import STOP, Command
from strandline.pipelines.versions.version_store import Registry


class Outcome(Enum):
    DONE = "done"
    """With `once`: everything that was there has been written."""
    STOPPED = "stopped"
    ASKED = "asked to stop"
    HANDED_OVER = "handed over"
    """A rebuild switches to another version; the process runs that one when the switch is done."""


class Ended(Exception):
    """An end that was asked for, wherever the run is at that moment, also while its queries start."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.value)
        self.outcome = outcome


def command_id_of(registry: Registry, pipeline: str) -> str | None:
    """Return the newest command there is: one that was given before a run began is not for that run."""
    told = registry.command(pipeline)
    return None if told is None else told.id


def end_if_asked(
    registry: Registry, record: RunRecord, stop: threading.Event, *, known_command: str | None, rebuilds: bool
) -> None:
    """Raise `Ended` if this run is to end, `PipelineRefused` if another process has taken it over."""
    name, version = record.state.pipeline, record.state.version
    if stop.is_set():
        raise Ended(Outcome.STOPPED)
    command = registry.command(name)
    if command is not None and command.id != known_command and _means(command, version):
        raise Ended(Outcome.ASKED)
    if (other := record.successor()) is not None:
        raise PipelineRefused(f"{name} was taken over by process {other.pid} on {other.host}; this one has stopped")
    state = registry.pipeline(name)
    if state is not None and is_switching(state.rebuild) and not rebuilds:
        raise Ended(Outcome.HANDED_OVER)


def _means(command: Command, version: int) -> bool:
    return command.verb == STOP and command.version in (None, version)
