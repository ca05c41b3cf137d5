"""Requests that wait for the transaction that holds their records: they are answered when it is committed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from strandline.connect.records import SourcePosition, SourceRecord


class WriteOutcome(Enum):
    """What became of a request, with the words for its sender."""

    COMMITTED = "committed"
    BUSY = "too many requests wait to be written"
    LATE = "the records are not committed yet"
    STOPPED = "the task stops"


@dataclass(eq=False)
class HeldRequest:
    """A request that waits. All its records are written in one batch."""

    records: Sequence[SourceRecord]
    id: str | None = None
    outcome: asyncio.Future[WriteOutcome] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def settle(self, outcome: WriteOutcome) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class HeldRequests:
    """A bounded queue of requests, and those that were taken from it, each with the number of its batch.

    Numbers grow from batch to batch and are stored as `sequence` of the position, so `committed` tells what is done.
    """

    def __init__(self, requests_max: int) -> None:
        self._requests_max = requests_max
        self._queue: deque[HeldRequest] = deque()
        self._taken: deque[tuple[int, HeldRequest]] = deque()
        self._has_some = asyncio.Event()
        self._committed = 0
        self._is_stopped = False

    async def submit(self, request: HeldRequest, timeout_s: float) -> WriteOutcome:
        """Wait until the records of a request are committed."""
        if self._is_stopped:
            return WriteOutcome.STOPPED
        if len(self._queue) + len(self._taken) >= self._requests_max:
            return WriteOutcome.BUSY
        self._queue.append(request)
        self._has_some.set()
        try:
            async with asyncio.timeout(timeout_s):
                return await request.outcome
        except TimeoutError:
            return WriteOutcome.LATE
        finally:
            # What no batch holds yet is withdrawn, because its sender is about to try again.
            if request in self._queue:
                self._queue.remove(request)

    def begin(self, committed: int) -> None:
        """Start behind a committed number. What an earlier reader took was not committed."""
        for _, request in self._taken:
            request.settle(WriteOutcome.STOPPED)
        self._taken.clear()
        self._committed = committed

    async def take(self, records_max: int) -> list[HeldRequest]:
        """Wait for requests; return the oldest, up to a number of records, and one at least."""
        while not self._queue:
            self._has_some.clear()
            await self._has_some.wait()
        found = [self._queue.popleft()]
        count = len(found[0].records)
        while self._queue and count + len(self._queue[0].records) <= records_max:
            found.append(self._queue.popleft())
            count += len(found[-1].records)
        return found

    def expect(self, request: HeldRequest, number: int) -> None:
        """Answer a request when this number is committed."""
        if number <= self._committed:
            request.settle(WriteOutcome.COMMITTED)
        else:
            self._taken.append((number, request))

    def committed(self, positions: Sequence[SourcePosition]) -> None:
        """Answer the requests up to the highest `sequence` of these positions."""
        for _, offset in positions:
            self._committed = max(self._committed, int((offset or {}).get("sequence", 0)))
        while self._taken and self._taken[0][0] <= self._committed:
            self._taken.popleft()[1].settle(WriteOutcome.COMMITTED)

    def stop(self) -> None:
        """Refuse what waits and what comes."""
        self._is_stopped = True
        for request in (*self._queue, *(each for _, each in self._taken)):
            request.settle(WriteOutcome.STOPPED)
        self._queue.clear()
        self._taken.clear()
