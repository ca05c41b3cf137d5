"""A worker in a thread of the test, asked as the REST API asks it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, TypeVar

from strandline.connect.herder.administration import Administration
from strandline.connect.herder.interface import ConnectorStatus, RequestFailed, TargetState
from strandline.connect.herder.worker import ConnectWorker
from strandline.connect.herder.worker_settings import WorkerSettings

T = TypeVar("T")
WAIT_S = 60.0
PLUGINS = "tests.connect.plugins"


def wait_until(is_so: Callable[[], bool], what: str, wait_s: float = WAIT_S) -> None:
    until = time.monotonic() + wait_s
    while not is_so():
        assert time.monotonic() < until, f"it did not happen within {wait_s:g} s: {what}"
        time.sleep(0.05)


class RunningWorker:
    """A worker of its own thread and loop."""

    def __init__(self, bootstrap: str, number: int = 0, **settings: str) -> None:
        self._bootstrap = bootstrap
        self._url = f"http://worker-{number}"
        self._settings = {"plugin.modules": PLUGINS} | {
            name.replace("_", "."): value for name, value in settings.items()
        }
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.worker: ConnectWorker
        self.herder: Administration

    def __enter__(self) -> RunningWorker:
        self._thread.start()
        self.ask(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ask(self.worker.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> None:
        self.worker = ConnectWorker(self._bootstrap, WorkerSettings(self._settings), self._url, allows_all=True)
        self.herder = Administration(self.worker)
        await self.worker.start()

    def ask(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(WAIT_S)

    def lead(self) -> RunningWorker:
        wait_until(lambda: self.worker.is_leader, "the worker leads")
        return self

    def create(self, name: str, class_name: str, config: Mapping[str, str] | None = None, **settings: str) -> None:
        """Make a connector of the test's plugins, or of ours."""
        if class_name[0].isupper() and not class_name.endswith(("Source", "Sink")):
            class_name = f"{PLUGINS}:{class_name}"
        given = {key.replace("_", "."): value for key, value in settings.items()}
        self.ask(self.herder.create(name, {"name": name, "connector.class": class_name, **given, **(config or {})}))

    def set_state(self, name: str, state: TargetState) -> None:
        self.ask(self.herder.set_target_state(name, state))

    def status(self, name: str) -> ConnectorStatus | None:
        try:
            return self.herder.status(name)
        except RequestFailed:
            return None

    def wait_for(self, name: str, state: str, task: int = 0) -> str:
        """Wait for a task's state, and return the reason for it."""

        def is_so() -> bool:
            status = self.status(name)
            return status is not None and task in status.tasks and status.tasks[task].state == state

        wait_until(is_so, f"{name}-{task} is {state}: {self.status(name)}")
        status = self.status(name)
        assert status is not None
        return status.tasks[task].trace or ""
