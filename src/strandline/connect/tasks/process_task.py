"""The task of a sink whose records do not pass through the worker: a process of its own reads them and writes them.

The process gets its work as a line of JSON, and ends when its standard input does: so it ends with the worker, too,
whatever becomes of that. It tells what it has done in lines of JSON. It must be safe to kill at any moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import Any, Final

from strandline.client.security import spark_options_of
from strandline.connect.failures import ConnectFailed, FencedOut, RetriableFailure
from strandline.connect.records import TopicPosition
from strandline.connect.sink import Sink
from strandline.connect.tasks.task import ConnectTask, TaskContext

FAILURES: Final[dict[str, type[ConnectFailed]]] = {
    "retriable": RetriableFailure,
    "fenced": FencedOut,
    "failed": ConnectFailed,
}
END_S: Final = 3.0
"""How long the process may take to end when it is asked to."""
LINE_BYTES_MAX: Final = 16 << 20


class ProcessTask(ConnectTask):
    """Runs the process of a sink, and tells of it."""

    connector: Sink

    def __init__(self, context: TaskContext, connector: Sink, module: str) -> None:
        super().__init__(context, connector)
        self._module = module
        self._behind: dict[TopicPosition, int] = {}
        self._has_read_all = False
        self._failure: ConnectFailed | None = None

    @property
    def is_done(self) -> bool:
        return self._has_read_all

    def lag(self) -> dict[TopicPosition, int]:
        return dict(self._behind)

    async def run(self) -> None:
        while not self._is_stopping.is_set():
            await self._wait_unless_paused()
            if not self._is_stopping.is_set():
                await self._run_process()

    async def _wait_unless_paused(self) -> None:
        stopping = asyncio.ensure_future(self._is_stopping.wait())
        going_on = asyncio.ensure_future(self._may_run.wait())
        try:
            await asyncio.wait((stopping, going_on), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            going_on.cancel()

    async def _run_process(self) -> None:
        """Run the process until the task stops or is paused. Raise what it says when it fails."""
        self._failure = None
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            self._module,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
            start_new_session=True,
        )
        assert process.stdin is not None
        halted = [asyncio.ensure_future(each.wait()) for each in (self._is_stopping, self._is_paused)]
        heard = asyncio.ensure_future(self._listen(process))
        try:
            process.stdin.write(json.dumps(self._job()).encode() + b"\n")
            with contextlib.suppress(ConnectionError):
                await process.stdin.drain()
            await asyncio.wait((heard, *halted), return_when=asyncio.FIRST_COMPLETED)
            # The task may be resumed before the process has ended.
            was_halted = any(each.done() for each in halted)
        finally:
            for each in halted:
                each.cancel()
            await self._end(process, heard)
        if was_halted or self._is_stopping.is_set():
            return
        if self._failure is not None:
            raise self._failure
        raise RetriableFailure(f"the process of {self.context.id} ended by itself, with {process.returncode}")

    def _job(self) -> dict[str, Any]:
        """Return what the process needs to know; secrets in it go through the pipe only."""
        context = self.context
        return {
            "connector": context.id.connector,
            "class": context.class_name,
            "kafka": spark_options_of(context.bootstrap),
            "properties": dict(context.properties),
            "allowed_modules": list(context.allowed_modules),
            "allowed_paths": self.connector.paths.allowed,
        }

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            try:
                told = json.loads(line)
            except ValueError:
                # Spark and its libraries print what they like.
                continue
            if isinstance(told, dict):
                self._take(told)

    def _take(self, told: dict[str, Any]) -> None:
        match told.get("event"):
            case "committed":
                self.metrics.records += told["records"]
                self.metrics.bytes += told["bytes"]
                self.metrics.batches += 1
                self.metrics.commits += 1
                self._has_read_all = False
            case "position":
                self._behind = {TopicPosition(topic, at): behind for topic, at, behind in told["behind"]}
                self._has_read_all = not any(self._behind.values())
                for topic in {each.topic for each in self._behind}:
                    self._uses(topic)
            case "note":
                self.context.on_note(told["text"])
            case "failed":
                self._failure = FAILURES[told["kind"]](told["text"])

    async def _end(self, process: asyncio.subprocess.Process, heard: asyncio.Future[None]) -> None:
        """Have the process end. What it was about to write is not committed, and written by the next one."""
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), END_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        # A process of Java may keep the pipe open for a while.
        heard.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await heard
