"""One task on one worker: started, restarted with back-off after what passes, and its state told."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import traceback
from collections.abc import Callable
from typing import Final

from strandline.connect.failures import ConnectFailed, FencedOut, RetriableFailure
from strandline.connect.herder.config_state import Config, TaskId
from strandline.connect.tasks.task import ConnectTask

BACKOFF_S: Final = 1.0
BACKOFF_S_MIN: Final = 0.1
"""The shortest pause, also if `errors.retry.delay.max.ms` is less."""
BACKOFF_S_MAX: Final = 60.0
"""The longest pause of a task whose settings cannot be read."""
FENCED_S: Final = 5.0
"""A task that was fenced waits for the worker to learn whether it is still its own."""
CALM_S: Final = 60.0
"""A task that has run so long, or has committed something, begins with the shortest back-off again."""

log = logging.getLogger("strandline.connect")

Report = Callable[[str, str | None], None]
"""Takes a state and the reason for it."""


class TaskRunner:
    """Runs a task until it is stopped."""

    def __init__(
        self, task_id: TaskId, config: Config, number: int, make: Callable[[], ConnectTask], report: Report
    ) -> None:
        self.id = task_id
        self.config = config
        self.number = number
        """That of the task configs: a task of an older number is out of date."""
        self.task: ConnectTask | None = None
        self.state = "UNASSIGNED"
        self._make = make
        self._report = report
        self._is_paused = False
        self._is_stopping = asyncio.Event()
        self._running = asyncio.create_task(self._run(), name=str(task_id))

    def set_paused(self, is_paused: bool) -> None:
        if is_paused == self._is_paused:
            return
        self._is_paused = is_paused
        if self.task is not None:
            (self.task.pause if is_paused else self.task.resume)()
            self._tell("PAUSED" if is_paused else "RUNNING")

    async def stop(self, graceful_s: float) -> None:
        """Stop. A task that does not end in time is left: what it writes later is fenced, or not committed."""
        self._is_stopping.set()
        if self.task is not None:
            self.task.stop()
        done, _ = await asyncio.wait([self._running], timeout=graceful_s)
        if not done:
            log.warning("task %s did not stop within %g s, and is left alone", self.id, graceful_s)
            self._running.cancel()

    def note(self, sentence: str | None) -> None:
        """Tell what a running task waits for."""
        if self.state == "RUNNING":
            self._report("RUNNING", sentence)

    async def _run(self) -> None:
        attempt = 0
        while not self._is_stopping.is_set():
            began_s = time.monotonic()
            try:
                self.task = self._make()
                if self._is_paused:
                    self.task.pause()
                self._tell("PAUSED" if self._is_paused else "RUNNING")
                await self.task.run()
                return
            except (RetriableFailure, FencedOut) as error:
                if time.monotonic() - began_s > CALM_S or self._has_committed:
                    attempt = 0
                pause_s = min(BACKOFF_S * 2 ** min(attempt, 20), self._pause_s_max)
                if isinstance(error, FencedOut):
                    pause_s = max(pause_s, FENCED_S)
                attempt += 1
                log.warning("task %s failed, and starts again in %g s: %s", self.id, pause_s, str(error))
                self._tell("RESTARTING", f"{error} (attempt {attempt}, the next in {pause_s:g} s)")
                await self._sleep(pause_s)
            except Exception as error:  # whatever a connector raises
                trace = str(error) if isinstance(error, ConnectFailed) else _trace(error)
                log.error("task %s failed: %s", self.id, trace)
                self._tell("FAILED", trace)
                return
            finally:
                self.task = None

    @property
    def _has_committed(self) -> bool:
        return self.task is not None and self.task.metrics.commits > 0

    @property
    def _pause_s_max(self) -> float:
        if self.task is None:
            return BACKOFF_S_MAX
        return max(self.task.settings.errors_retry_delay_max_ms / 1000, BACKOFF_S_MIN)

    def _tell(self, state: str, trace: str | None = None) -> None:
        self.state = state
        if not self._is_stopping.is_set():
            self._report(state, trace)

    async def _sleep(self, pause_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_stopping.wait(), pause_s)


def _trace(error: BaseException) -> str:
    """Return what an exception says, then where it came from."""
    return f"{type(error).__name__}: {error}\n{''.join(traceback.format_exception(error))}"
