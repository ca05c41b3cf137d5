"""A limit on the requests to a store: so many a second, and so many under way."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from strandline.runtime.runtime import Runtime, TimerHandle
from strandline.tiers.store.failures import StoreUnavailable
from strandline.tiers.store.interface import DELETE_KEYS_MAX, ObjectStore, StoredObject, requests_of_put, size_of
from strandline.tiers.store.waiting import Deadline, LateAnswer, Signal, within

T = TypeVar("T")

WAITING_MAX: Final = 10_000
LIST_PAGE: Final = 1000
LIST_WAITS_S: Final = 60.0


class _Entry:
    """A call that waits for its requests."""

    __slots__ = ("is_admitted", "requests", "signal")

    def __init__(self, requests: int, runtime: Runtime) -> None:
        self.requests = requests
        self.signal: Signal[None] = Signal(runtime)
        self.is_admitted = False


class RequestBudget:
    """A bucket of tokens and a number of places. Calls are admitted in the order in which they came.

    The bucket holds the tokens of one second. A call that needs more waits for a full bucket and leaves a debt.
    """

    def __init__(
        self, runtime: Runtime, *, requests_per_s: float, in_flight_max: int, waiting_max: int = WAITING_MAX
    ) -> None:
        if requests_per_s <= 0 or in_flight_max < 1:
            raise ValueError("a request budget must allow at least one request")
        self.requests_per_s = requests_per_s
        self.in_flight_max = in_flight_max
        self.waiting_max = waiting_max
        self.in_flight = 0
        self._runtime = runtime
        self._tokens = self._full
        self._filled_at = runtime.monotonic()
        self._waiting: deque[_Entry] = deque()
        self._timer: TimerHandle | None = None

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def _full(self) -> float:
        return max(1.0, self.requests_per_s)

    async def enter(self, requests: int, limit_s: float) -> None:
        """Take so many tokens and one place. Raise LateAnswer if there are none within the limit."""
        if len(self._waiting) >= self.waiting_max:
            raise LateAnswer
        entry = _Entry(requests, self._runtime)
        self._waiting.append(entry)
        self._admit()
        if entry.signal.done():
            return
        try:
            await within(self._runtime, limit_s, entry.signal)
        except BaseException:
            if entry.is_admitted:
                # Admitted and cancelled at one time.
                self.leave()
            else:
                self._waiting.remove(entry)
                self._admit()
            raise

    def leave(self) -> None:
        """Return the place of a call that has ended."""
        self.in_flight -= 1
        self._admit()

    def _admit(self) -> None:
        now = self._runtime.monotonic()
        self._tokens = min(self._full, self._tokens + (now - self._filled_at) * self.requests_per_s)
        self._filled_at = now
        while self._waiting and self.in_flight < self.in_flight_max:
            entry = self._waiting[0]
            missing = min(float(entry.requests), self._full) - self._tokens
            # A millionth, because sums of floats stay a little below.
            if missing > 1e-6:
                self._look_again(missing / self.requests_per_s)
                return
            self._waiting.popleft()
            self._tokens -= entry.requests
            self.in_flight += 1
            entry.is_admitted = True
            entry.signal.set(None)

    def _look_again(self, after_s: float) -> None:
        if self._timer is None:
            self._timer = self._runtime.call_later(after_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._admit()


class BudgetedStore:
    """A store whose calls wait for a budget. Several stores may share one."""

    def __init__(self, inner: ObjectStore, runtime: Runtime, budget: RequestBudget) -> None:
        self._inner = inner
        self._runtime = runtime
        self._budget = budget

    def __repr__(self) -> str:
        return f"BudgetedStore({self._inner!r})"

    @property
    def name(self) -> str:
        return self._inner.name

    async def put(self, key: str, body: bytes | memoryview | Path, *, deadline_s: float) -> StoredObject:
        # A file is rarely asked for its size here: the parts of a large one are few a second.
        requests = 1 if isinstance(body, Path) else requests_of_put(size_of(body))
        return await self._admitted(
            requests, deadline_s, "write", key, lambda left_s: self._inner.put(key, body, deadline_s=left_s)
        )

    async def create(self, key: str, body: bytes, *, nonce: str, deadline_s: float) -> bool:
        return await self._admitted(
            2, deadline_s, "create", key, lambda left_s: self._inner.create(key, body, nonce=nonce, deadline_s=left_s)
        )

    async def read(self, key: str, start: int, length: int, *, deadline_s: float) -> bytes | memoryview:
        return await self._admitted(
            1, deadline_s, "read", key, lambda left_s: self._inner.read(key, start, length, deadline_s=left_s)
        )

    async def read_whole(self, key: str, *, deadline_s: float) -> bytes:
        return await self._admitted(
            1, deadline_s, "read", key, lambda left_s: self._inner.read_whole(key, deadline_s=left_s)
        )

    async def head(self, key: str, *, deadline_s: float) -> StoredObject | None:
        return await self._admitted(
            1, deadline_s, "describe", key, lambda left_s: self._inner.head(key, deadline_s=left_s)
        )

    async def delete(self, keys: Sequence[str], *, deadline_s: float) -> None:
        # A batch each, so that a long delete leaves room for others.
        deadline = Deadline(self._runtime, deadline_s)
        for first in range(0, len(keys), DELETE_KEYS_MAX):
            await self._delete(keys[first : first + DELETE_KEYS_MAX], deadline.left_s)

    async def _delete(self, keys: Sequence[str], limit_s: float) -> None:
        await self._admitted(1, limit_s, "delete", keys[0], lambda left_s: self._inner.delete(keys, deadline_s=left_s))

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[StoredObject]:
        listed = 0
        await self._page(prefix)
        async for each in self._inner.list(prefix, after=after):
            listed += 1
            if listed > LIST_PAGE and listed % LIST_PAGE == 1:
                await self._page(prefix)
            yield each

    async def _page(self, prefix: str) -> None:
        async def no_call(_: float) -> None:
            # The place is free at once, because the reader of a list may take its time.
            return None

        await self._admitted(1, LIST_WAITS_S, "list", prefix, no_call)

    async def _admitted(
        self, requests: int, deadline_s: float, action: str, key: str, call: Callable[[float], Awaitable[T]]
    ) -> T:
        deadline = Deadline(self._runtime, deadline_s)
        try:
            await self._budget.enter(requests, deadline_s)
        except LateAnswer:
            raise StoreUnavailable(
                f"{self.name} was not asked to {action} {key}: the budget of {self._budget.requests_per_s:g} requests "
                f"a second and {self._budget.in_flight_max} at a time is used up; try again or raise it"
            ) from None
        try:
            return await call(deadline.left_s)
        finally:
            self._budget.leave()
