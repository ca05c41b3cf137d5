"""The record of a run: written again and again while it lives, so that readers see that it does.

A cluster that does not answer for a while is no reason to end: queries wait for it, too. Then the record grows old, and
another process may take the pipeline over.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from strandline.pipelines.versions.state import FAILED, STOPPED, QueryProgress, RunState
from strandline.pipelines.versions.version_store import Registry, RegistryFailed

HEARTBEAT_S: Final = 3.0
LISTEN_S: Final = 1.0
"""How often the registry is read."""
LAST_WORD_S: Final = 5.0
"""How long a run that ends waits until it is known. Its user has pressed Ctrl-C, and librdkafka does not hear that."""


class RunRecord:
    def __init__(
        self, registry: Registry, state: RunState, progress: Callable[[], Mapping[str, QueryProgress]]
    ) -> None:
        self.state = state
        self._registry = registry
        self._progress = progress
        self._ended = threading.Event()
        self._lock = threading.Lock()
        threading.Thread(target=self._beat, name="pipeline-heartbeat", daemon=True).start()

    def say(self, state: str) -> None:
        with self._lock:
            self._say(state, None)

    def end(self, state: str, failure: str | None = None) -> None:
        """Write the last record of the run, unless another process runs it by now. A second call does nothing.

        A cluster that does not take it is not waited for: readers then find a record that has grown old.
        """
        if self._ended.is_set():
            return
        self._ended.set()
        saying = threading.Thread(target=self._say_last, args=(state, failure), name="pipeline-last-word", daemon=True)
        saying.start()
        saying.join(LAST_WORD_S)

    def successor(self) -> RunState | None:
        """Return the run that has taken this one's place, if one has."""
        run = self._registry.run(self.state.pipeline, self.state.version)
        return run if run is not None and run.owner != self.state.owner else None

    def _beat(self) -> None:
        while not self._ended.wait(LISTEN_S):
            with contextlib.suppress(RegistryFailed):
                self._registry.refresh()
                with self._lock:
                    is_due = now_ms() - self.state.heartbeat_ms >= HEARTBEAT_S * 1000
                    if is_due and not self._ended.is_set() and self.successor() is None:
                        self._say(self.state.state, None)

    def _say_last(self, state: str, failure: str | None) -> None:
        with self._lock, contextlib.suppress(RegistryFailed):
            if self.successor() is None:
                self._say(state, failure)

    def _say(self, state: str, failure: str | None) -> None:
        queries = {**self.state.queries, **self._progress()}
        if state in (STOPPED, FAILED):
            queries = {
                name: each if each.state == FAILED else replace(each, state=STOPPED, rows_per_second=0.0)
                for name, each in queries.items()
            }
        self.state = replace(self.state, state=state, failure=failure, heartbeat_ms=now_ms(), queries=queries)
        self._registry.put_run(self.state)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
