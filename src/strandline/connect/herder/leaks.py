"""What connectors leave behind: threads, open files and memory, and a worker that runs out of them.

One process runs connectors of many authors, and Python cannot tell what belongs to which. So a connector is named only
on evidence: its task began three times, nothing else began or stopped in between, and each time there was more than
before. Whatever grows, and whichever connector it is: at its limits the worker hands its tasks over and starts afresh.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from strandline.connect.failures import InvalidConnectorConfig
from strandline.connect.herder.config_state import TaskId
from strandline.connect.herder.worker_settings import WorkerSettings
from strandline.runtime.process import open_descriptors, resident_bytes

RUNS: Final = 3
"""Runs of a task, each of which has left something, before the connector is named."""
MEMORY_BYTES_MIN: Final = 64 << 20
"""Less may be caches, and what the allocator keeps."""
LEFT_S: Final = 10.0
"""A call into a connector may take so long to return after its task was stopped."""
_LOOK_S: Final = 1.0
_WORDS: Final = {"threads": "threads", "files": "open files"}

log = logging.getLogger("strandline.connect")


class Usage(NamedTuple):
    """What the process has now."""

    threads: int
    files: int
    memory: int

    @classmethod
    def now(cls) -> Usage:
        # Threads of asyncio's pool are made when they are needed, and stay.
        threads = sum(not each.name.startswith("asyncio_") for each in threading.enumerate())
        return cls(threads, open_descriptors() or 0, resident_bytes())


@dataclass
class _Runs:
    """The runs of one task, one behind the other."""

    before: Usage
    is_alone: bool = True
    """Whether nothing else began or stopped since the last run began."""
    grown: dict[str, int] = field(default_factory=dict)
    """Of each kind in how many runs it grew, one behind the other."""
    collected: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Of each kind how much there was, and in which run, when the garbage was collected first in these runs."""
    count: int = 0


class LeakWatch:
    """Compares what the process has, and says which connector leaks, and when the worker has too much."""

    def __init__(
        self, settings: WorkerSettings, on_leak: Callable[[TaskId, str], None], on_full: Callable[[str], None]
    ) -> None:
        self._settings = settings
        self._on_leak = on_leak
        self._on_full = on_full
        self._runs: dict[TaskId, _Runs] = {}
        self._next_look: asyncio.TimerHandle | None = None
        self.left: dict[tuple[str, str], int] = {}
        """What was left behind, by connector and kind."""

    def check_limits(self) -> None:
        """Raise InvalidConnectorConfig if a worker without tasks has more than its limits."""
        sentence = self._excess()
        if sentence is not None:
            raise InvalidConnectorConfig(f"{sentence}, though it runs nothing yet: raise the limit")

    def watch(self) -> None:
        """Look at the limits from now on, until one is reached or `stop`."""
        sentence = self._excess()
        if sentence is None:
            self._next_look = asyncio.get_running_loop().call_later(_LOOK_S, self.watch)
            return
        named = sorted({f"{connector} ({kind})" for connector, kind in self.left})
        ran = ", ".join(sorted({each.connector for each in self._runs}))
        suspects = f"left behind by {', '.join(named)}" if named else f"no connector can be named, of {ran or 'none'}"
        self._on_full(f"{sentence} ({suspects}): it hands its tasks over, and starts again")

    def stop(self) -> None:
        """Look no more."""
        if self._next_look is not None:
            self._next_look.cancel()

    def began(self, task_id: TaskId) -> None:
        """Compare with what there was when the task began before."""
        self._disturb(task_id)
        now, runs = Usage.now(), self._runs.get(task_id)
        if runs is None:
            self._runs[task_id] = _Runs(now)
            return
        runs.count += 1
        if runs.is_alone:
            for kind, before, after in zip(Usage._fields, runs.before, now, strict=True):
                runs.grown[kind] = runs.grown.get(kind, 0) + 1 if after > before else 0
            if any(count >= RUNS for count in runs.grown.values()):
                now = self._judge(task_id, runs)
        runs.before, runs.is_alone = now, True

    def stopped(self, task_id: TaskId, *, is_gone: bool) -> None:
        """Look later whether calls into the connector have returned. A task that is gone begins no more."""
        self._disturb(task_id)
        if is_gone:
            self._runs.pop(task_id, None)
        names = f"{task_id}-connector", f"{task_id}-client"
        inside = [each for each in threading.enumerate() if each.name in names]
        if inside:
            asyncio.get_running_loop().call_later(LEFT_S, self._look_back, task_id, inside)

    def _disturb(self, task_id: TaskId) -> None:
        for each, runs in self._runs.items():
            if each != task_id:
                runs.is_alone = False

    def _judge(self, task_id: TaskId, runs: _Runs) -> Usage:
        """Name the connector for what each run has left. Return what there is now.

        What is there the first time may have been made once, by the first run. It is where counting begins.
        """
        # A failure keeps the clients of its task in a circle, until the garbage collector comes by.
        gc.collect()
        now = Usage.now()
        for kind, number in now._asdict().items():
            if runs.grown[kind] < RUNS:
                continue
            runs.grown[kind] = 0
            base, since = runs.collected.setdefault(kind, (number, runs.count))
            total, count = number - base, runs.count - since
            if total < count:
                runs.collected[kind] = number, runs.count
            elif count and (kind != "memory" or total >= MEMORY_BYTES_MIN):
                what = f"{total >> 20} MiB of memory" if kind == "memory" else f"{total} {_WORDS[kind]}"
                self._name(task_id, kind, total, f"its last {count} runs have left {what}")
        return now

    def _look_back(self, task_id: TaskId, inside: list[threading.Thread]) -> None:
        count = sum(each.is_alive() for each in inside)
        if count:
            left = self.left.get((task_id.connector, "threads"), 0) + count
            self._name(task_id, "threads", left, f"a call has not returned {LEFT_S:g} s after task {task_id} stopped")

    def _name(self, task_id: TaskId, kind: str, number: int, words: str) -> None:
        key = task_id.connector, kind
        is_new = number >= 2 * self.left.get(key, 0)
        self.left[key] = number
        sentence = f"the connector {task_id.connector} leaks: {words}"
        if is_new:
            log.warning("%s", sentence)
        self._on_leak(task_id, sentence)

    def _excess(self) -> str | None:
        now = Usage.now()
        for name, limit, found in (
            ("worker.memory.bytes.max", self._settings.worker_memory_bytes_max, now.memory),
            ("worker.open.files.max", self._settings.worker_open_files_max, now.files),
        ):
            if limit and found > limit:
                return f"the worker is above {name}={limit} with {found}"
        return None
