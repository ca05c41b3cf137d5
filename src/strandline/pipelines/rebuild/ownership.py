"""One process at a time works on a rebuild: its owner in the registry, which says every few seconds that it is alive.

pipeline/<name>     the rebuild with its owner; every change is made only if the owner is still this process
rebuild/<name>      when the owner was last alive
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from strandline.errors import WorldError
from strandline.pipelines.rebuild import phases
from strandline.pipelines.rebuild.phases import RebuildRefused
from strandline.pipelines.run.run_record import now_ms
from strandline.pipelines.versions.state import PipelineState
from strandline.pipelines.versions.version_lease import is_process
from strandline.pipelines.versions.version_store import Registry

HEARTBEAT_S: Final = 3.0


class Ownership:
    def __init__(self, registry: Registry, name: str) -> None:
        self.owner = f"{platform.node()}/{os.getpid()}/{uuid.uuid4().hex}"
        self._registry = registry
        self._name = name

    def state(self) -> PipelineState:
        """As it is now."""
        state = self._registry.refresh().pipeline(self._name)
        if state is None:
            raise RebuildRefused(f"Pipeline {self._name} was removed meanwhile.")
        return state

    def take(self) -> None:
        """Become the owner, unless the rebuild has come to its end meanwhile; RebuildRefused if another is alive."""

        def taken(told: PipelineState | None) -> PipelineState:
            assert told is not None
            if told.rebuild is None:
                return told
            self._check_free(told)
            return self._owned(told)

        self._registry.change(self._name, taken)

    def begin(self, change: Callable[[PipelineState], PipelineState]) -> None:
        """Make a change that begins a rebuild, if there is none."""

        def begun(told: PipelineState | None) -> PipelineState:
            assert told is not None
            if told.rebuild is not None:
                self._check_free(told)
                raise RebuildRefused(f"Another process has begun to rebuild {self._name}: try again to take it up.")
            return self._owned(change(told))

        self._registry.change(self._name, begun)

    def change(self, change: Callable[[PipelineState], PipelineState]) -> PipelineState:
        changed = self._registry.change(self._name, lambda told: change(phases.check_owned(told, self.owner)))
        assert changed is not None
        return changed

    def let_go(self) -> None:
        """Others need not wait until the heartbeat is old."""

        def left(told: PipelineState | None) -> PipelineState:
            assert told is not None
            if told.rebuild is None or told.rebuild.owner != self.owner:
                return told
            return replace(told, rebuild=replace(told.rebuild, owner="", heartbeat_ms=0))

        # A cluster that is gone hears of nothing; the heartbeat grows old then.
        with contextlib.suppress(WorldError):
            rebuild = self.state().rebuild
            if rebuild is not None and rebuild.owner == self.owner:
                self._registry.change(self._name, left)

    @contextlib.contextmanager
    def heartbeat(self) -> Iterator[None]:
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(HEARTBEAT_S):
                # What is written next says what is wrong with the cluster; until then it may come back.
                with contextlib.suppress(WorldError):
                    self._beat()

        thread = threading.Thread(target=beat, name="rebuild-heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _beat(self) -> None:
        state = self._registry.pipeline(self._name)
        if state is not None and state.rebuild is not None and state.rebuild.owner == self.owner:
            said = json.dumps({"owner": self.owner, "heartbeat_ms": now_ms()})
            self._registry.put(f"rebuild/{self._name}", said)

    def _owned(self, state: PipelineState) -> PipelineState:
        assert state.rebuild is not None
        return replace(state, rebuild=replace(state.rebuild, owner=self.owner, heartbeat_ms=now_ms()))

    def _check_free(self, state: PipelineState) -> None:
        assert state.rebuild is not None
        if not _is_dead(state.rebuild.owner):
            phases.check_free(state, self.owner, self._last_heard(state), now_ms())

    def _last_heard(self, state: PipelineState) -> int:
        told = self._registry.entries("rebuild/").get(self._name, {})
        is_owners = state.rebuild is not None and told.get("owner") == state.rebuild.owner
        return int(told.get("heartbeat_ms", 0)) if is_owners else 0


def _is_dead(owner: str) -> bool:
    """Who was killed on this machine need not be waited for until the heartbeat is old."""
    host, _, rest = owner.partition("/")
    pid = rest.partition("/")[0]
    return host == platform.node() and pid.isdigit() and not is_process(int(pid))
