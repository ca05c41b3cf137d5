"""A cluster that says nothing any more keeps nobody who wants to leave: the last word of a run is not waited for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from strandline.pipelines.run import launching, run_record
from strandline.pipelines.run.launching import Launch
from strandline.pipelines.run.local_node import Ground
from strandline.pipelines.run.run_record import RunRecord
from strandline.pipelines.versions.state import FAILED, STOPPED, RunState


class SilentRegistry:
    """Whoever asks it something waits until it is let go, as librdkafka waits for a broker: half a minute and more."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked = threading.Event()
        self.written: list[RunState] = []

    def refresh(self) -> SilentRegistry:
        self._wait()
        return self

    def run(self, name: str, version: int) -> RunState | None:
        return None

    def put_run(self, run: RunState) -> None:
        self._wait()
        self.written.append(run)

    def close(self) -> None:
        self._wait()

    def _wait(self) -> None:
        self.asked.set()
        assert self.answers.wait(120)


@pytest.fixture
def registry() -> Iterator[SilentRegistry]:
    registry = SilentRegistry()
    yield registry
    registry.answers.set()


def test_a_run_ends_although_nobody_takes_its_last_word(
    registry: SilentRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_record, "LAST_WORD_S", 0.05)
    anything: Any = registry
    record = RunRecord(anything, RunState("shop", 1, "me"), dict)
    record.end(FAILED, "no cluster")
    assert registry.asked.is_set()
    assert not registry.answers.is_set(), "it was not waited for"
    record.end(STOPPED)
    registry.answers.set()
    for each in threading.enumerate():
        if each.name == "pipeline-last-word":
            each.join()
    assert [(each.state, each.failure) for each in registry.written] == [(FAILED, "no cluster")]


def test_a_command_ends_although_its_registry_is_held(
    registry: SilentRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launching, "CLOSE_S", 0.05)
    launch = Launch.__new__(Launch)
    launch._spark, launch.ground = None, Ground("127.0.0.1:9")
    launch._registry = registry  # type: ignore[assignment]
    launch.close()
    assert registry.asked.is_set()
    assert not registry.answers.is_set()
