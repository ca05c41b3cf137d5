"""The pauses after which a runner starts a task again."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from strandline.connect.failures import RetriableFailure
from strandline.connect.herder.config_state import TaskId
from strandline.connect.herder.task_runner import TaskRunner
from strandline.connect.tasks.metrics import TaskMetrics
from strandline.connect.tasks.settings import ConnectTaskSettings
from strandline.connect.tasks.task import ConnectTask

STARTS = 4


class FailingTask:
    """A task that commits some batches and then fails for a while."""

    def __init__(self, commits: int, properties: dict[str, str]) -> None:
        self.metrics = TaskMetrics()
        self.settings = ConnectTaskSettings(properties)
        self._commits = commits

    async def run(self) -> None:
        self.metrics.commits += self._commits
        raise RetriableFailure("the database is away")

    def stop(self) -> None:
        pass


def reasons(commits: int, properties: dict[str, str]) -> list[str]:
    """Return why the first restarts of a task were made, and when."""
    found: list[str] = []

    async def run() -> None:
        is_over = asyncio.Event()

        def report(state: str, trace: str | None) -> None:
            if state == "RESTARTING":
                assert trace is not None
                found.append(trace)
                if len(found) == STARTS:
                    is_over.set()

        def make() -> ConnectTask:
            return cast(ConnectTask, FailingTask(commits, properties))

        runner = TaskRunner(TaskId("out", 0), cast(Any, properties), 1, make, report)
        await is_over.wait()
        await runner.stop(10)

    asyncio.run(run())
    return found


def test_a_pause_is_never_longer_than_the_settings_allow() -> None:
    assert reasons(0, {"errors.retry.delay.max.ms": "120"}) == [
        f"the database is away (attempt {attempt}, the next in 0.12 s)" for attempt in range(1, STARTS + 1)
    ]


def test_a_pause_of_nothing_does_not_spin() -> None:
    assert {each.rpartition("the next in ")[2] for each in reasons(0, {"errors.retry.delay.max.ms": "0"})} == {"0.1 s)"}


def test_a_task_that_committed_begins_with_the_shortest_pause_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.connect.herder.task_runner.BACKOFF_S", 0.01)
    assert set(reasons(1, {})) == {"the database is away (attempt 1, the next in 0.01 s)"}
    assert [each.rpartition("the next in ")[2] for each in reasons(0, {})] == [
        f"{0.01 * 2**attempt:g} s)" for attempt in range(STARTS)
    ]
