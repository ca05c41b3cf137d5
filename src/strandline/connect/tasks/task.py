"""What every task has: its place, its config, and how it is asked to pause and to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from strandline.connect.herder.config_state import TaskId
from strandline.connect.herder.offset_store import OffsetState
from strandline.connect.herder.state_topics import StateReader
from strandline.connect.records import TopicPosition
from strandline.connect.tasks.calls import TaskThreads
from strandline.connect.tasks.metrics import TaskMetrics
from strandline.connect.tasks.settings import ConnectTaskSettings


@dataclass(frozen=True)
class TaskContext:
    """What a worker gives to a task."""

    id: TaskId
    bootstrap: str
    group: str
    """Of the workers."""
    properties: Mapping[str, str]
    """The config of the task, over that of the connector, over the worker's defaults; secrets are resolved."""
    class_name: str
    offsets_topic: str
    offsets: Callable[[], tuple[StateReader, OffsetState]]
    """Returns the reader of the offsets topic; it is started by the first source."""
    session_timeout_ms: int
    """After this silence of a worker others have its tasks, and the partitions of its sinks."""
    allowed_modules: tuple[str, ...] = ()
    on_topic: Callable[[str], None] = lambda topic: None
    """Learns a topic that the task uses, once for each."""
    on_note: Callable[[str | None], None] = lambda note: None
    """Takes a sentence about what the task waits for; None if it goes on."""


class ConnectTask:
    """Base of the tasks of sources and sinks."""

    def __init__(self, context: TaskContext, connector: Any) -> None:
        self.context = context
        self.connector = connector
        self.settings = ConnectTaskSettings(context.properties)
        self.metrics = TaskMetrics()
        self.threads = TaskThreads(str(context.id))
        self._topics_used: set[str] = set()
        self._is_stopping = asyncio.Event()
        self._is_paused = asyncio.Event()
        self._may_run = asyncio.Event()
        self._may_run.set()

    async def run(self) -> None:
        """Work until `stop`, or until a failure is raised."""
        raise NotImplementedError

    @property
    def is_done(self) -> bool:
        """Whether there is nothing to do for now: the source has ended, or the sink has written all there is."""
        raise NotImplementedError

    def lag(self) -> dict[TopicPosition, int] | None:
        """Return how many offsets a sink is behind in each partition; None for a source."""
        return None

    def pause(self) -> None:
        self._may_run.clear()
        self._is_paused.set()

    def resume(self) -> None:
        self._is_paused.clear()
        self._may_run.set()

    def stop(self) -> None:
        """Have `run` end what it has begun, and return."""
        self._is_stopping.set()
        self.connector.stopping.set()

    def _uses(self, topic: str) -> bool:
        """Tell that the task uses a topic; return whether that is new."""
        if topic in self._topics_used:
            return False
        self._topics_used.add(topic)
        self.context.on_topic(topic)
        return True

    async def _sleep(self, pause_s: float) -> None:
        """Sleep, or until the task is to stop."""
        try:
            await asyncio.wait_for(self._is_stopping.wait(), pause_s)
        except TimeoutError:
            return
