"""A task that is a process of its own: what it tells is believed, and it ends with the task."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from strandline.connect.config import Config
from strandline.connect.failures import ConnectFailed, FencedOut, RetriableFailure
from strandline.connect.herder.config_state import TaskId
from strandline.connect.paths import PathRules
from strandline.connect.records import TopicPosition
from strandline.connect.sink import Sink
from strandline.connect.tasks.process_task import ProcessTask
from strandline.connect.tasks.task import TaskContext

COMMITTED = {"event": "committed", "records": 7, "bytes": 70}
BEHIND = {"event": "position", "behind": [["orders", 0, 3], ["orders", 1, 0]]}
AT_THE_END = {"event": "position", "behind": [["orders", 0, 0], ["orders", 1, 0]]}


def task_telling(home: Path, *told: dict[str, Any], notes: list[str | None] | None = None, **more: str) -> ProcessTask:
    properties = {"topics": "orders", "home": str(home), "tells": json.dumps(told), **more}
    context = TaskContext(
        TaskId("lake", 0),
        "127.0.0.1:9",
        "workers",
        properties,
        "module:Class",
        "offsets",
        lambda: pytest.fail("a sink has no offsets topic"),
        10_000,
        ("allowed",),
        on_note=(notes if notes is not None else []).append,
    )
    sink = Sink(Config(properties))
    sink.paths = PathRules([home])
    return ProcessTask(context, sink, "tests.connect.told_process")


async def until(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not check():  # noqa: ASYNC110  # what it waits for is in another process
            await asyncio.sleep(0.01)


def is_running(home: Path) -> bool:
    try:
        os.kill(int((home / "pid").read_text()), 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Workers that serve REST run on the loop of uvloop, which starts processes by itself."""
    found: Callable[[Coroutine[Any, Any, None]], None] = request.param
    return found


def test_what_a_process_tells_is_counted_and_it_ends_when_the_task_stops(
    run: Callable[[Coroutine[Any, Any, None]], None], tmp_path: Path
) -> None:
    async def story() -> None:
        notes: list[str | None] = []
        task = task_telling(tmp_path, COMMITTED, BEHIND, {"event": "note", "text": "slow"}, notes=notes)
        running = asyncio.create_task(task.run())
        await until(lambda: bool(notes))
        assert (task.metrics.records, task.metrics.bytes, task.metrics.commits) == (7, 70, 1)
        assert task.lag() == {TopicPosition("orders", 0): 3, TopicPosition("orders", 1): 0}
        assert not task.is_done
        assert is_running(tmp_path)
        task.stop()
        await running
        assert (tmp_path / "ended").exists()
        assert not is_running(tmp_path)
        work = json.loads((tmp_path / "work").read_text())
        assert (work["connector"], work["allowed_modules"]) == ("lake", ["allowed"])
        assert work["allowed_paths"] == [str(tmp_path)]
        assert work["kafka"] == {"kafka.bootstrap.servers": "127.0.0.1:9"}

    run(story())


def test_a_paused_task_has_no_process(tmp_path: Path) -> None:
    async def story() -> None:
        task = task_telling(tmp_path, AT_THE_END)
        running = asyncio.create_task(task.run())
        await until(lambda: task.is_done)
        task.pause()
        await until(lambda: (tmp_path / "ended").exists() and not is_running(tmp_path))
        (tmp_path / "pid").unlink()
        task.resume()
        await until((tmp_path / "pid").exists)
        task.stop()
        await running

    asyncio.run(story())


@pytest.mark.parametrize(
    ("kind", "error"), [("retriable", RetriableFailure), ("fenced", FencedOut), ("failed", ConnectFailed)]
)
def test_what_a_process_fails_with_is_the_failure_of_the_task(
    kind: str, error: type[ConnectFailed], tmp_path: Path
) -> None:
    task = task_telling(tmp_path, {"event": "failed", "kind": kind, "text": "the table is away"}, ends="at once")
    with pytest.raises(error, match="the table is away") as raised:
        asyncio.run(task.run())
    assert type(raised.value) is error


def test_a_process_that_ends_without_a_word_is_started_again(tmp_path: Path) -> None:
    with pytest.raises(RetriableFailure, match="the process of lake-0 ended by itself, with 0"):
        asyncio.run(task_telling(tmp_path, COMMITTED, ends="at once").run())
