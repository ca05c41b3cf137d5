"""What a store was asked for and what it cost, as plain numbers that metrics read."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Sequence
from pathlib import Path
from typing import TypeVar

from strandline.runtime.runtime import Runtime
from strandline.tiers.store.failures import StoreFailed
from strandline.tiers.store.interface import DELETE_KEYS_MAX, ObjectStore, StoredObject, requests_of_put

T = TypeVar("T")

KINDS = ("put", "create", "read", "head", "delete", "list")
LIST_PAGE: int = 1000


class StoreCounters:
    """Totals since the start. `requests` is what a store bills: a create is a write and a read of its own."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = dict.fromkeys(KINDS, 0)
        self.requests: dict[str, int] = dict.fromkeys(KINDS, 0)
        self.latency_ns: dict[str, int] = dict.fromkeys(KINDS, 0)
        """The sum over calls, without the wait for the budget. Divide by `calls`."""
        self.failures: Counter[str] = Counter()
        """Failed attempts by class of failure."""
        self.written_bytes = 0
        self.read_bytes = 0
        self.retries = 0


class CountedStore:
    """A store that counts each attempt. `inner` may be exchanged; calls that are under way end on the old one."""

    def __init__(self, inner: ObjectStore, runtime: Runtime, counters: StoreCounters) -> None:
        self.inner = inner
        self._runtime = runtime
        self._counters = counters

    def __repr__(self) -> str:
        return f"CountedStore({self.inner!r})"

    @property
    def name(self) -> str:
        return self.inner.name

    async def put(self, key: str, body: bytes | memoryview | Path, *, deadline_s: float) -> StoredObject:
        found = await self._counted("put", self.inner.put(key, body, deadline_s=deadline_s))
        self._counters.requests["put"] += requests_of_put(found.size) - 1
        self._counters.written_bytes += found.size
        return found

    async def create(self, key: str, body: bytes, *, nonce: str, deadline_s: float) -> bool:
        self._counters.requests["read"] += 1
        is_mine = await self._counted("create", self.inner.create(key, body, nonce=nonce, deadline_s=deadline_s))
        if is_mine:
            self._counters.written_bytes += len(body)
        return is_mine

    async def read(self, key: str, start: int, length: int, *, deadline_s: float) -> bytes | memoryview:
        found = await self._counted("read", self.inner.read(key, start, length, deadline_s=deadline_s))
        self._counters.read_bytes += len(found)
        return found

    async def read_whole(self, key: str, *, deadline_s: float) -> bytes:
        found = await self._counted("read", self.inner.read_whole(key, deadline_s=deadline_s))
        self._counters.read_bytes += len(found)
        return found

    async def head(self, key: str, *, deadline_s: float) -> StoredObject | None:
        return await self._counted("head", self.inner.head(key, deadline_s=deadline_s))

    async def delete(self, keys: Sequence[str], *, deadline_s: float) -> None:
        self._counters.requests["delete"] += max(0, -(-len(keys) // DELETE_KEYS_MAX) - 1)
        await self._counted("delete", self.inner.delete(keys, deadline_s=deadline_s))

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[StoredObject]:
        self._counters.calls["list"] += 1
        self._counters.requests["list"] += 1
        listed = 0
        try:
            async for each in self.inner.list(prefix, after=after):
                listed += 1
                if listed > LIST_PAGE and listed % LIST_PAGE == 1:
                    self._counters.requests["list"] += 1
                yield each
        except StoreFailed as error:
            self._counters.failures[type(error).__name__] += 1
            raise

    async def _counted(self, kind: str, call: Awaitable[T]) -> T:
        counters = self._counters
        counters.calls[kind] += 1
        counters.requests[kind] += 1
        begun_ns = self._runtime.monotonic_ns()
        try:
            return await call
        except StoreFailed as error:
            counters.failures[type(error).__name__] += 1
            raise
        finally:
            counters.latency_ns[kind] += self._runtime.monotonic_ns() - begun_ns
