"""Calls that are made again, with a random pause that grows, until their deadline."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from strandline.runtime.runtime import Runtime
from strandline.tiers.store.counters import StoreCounters
from strandline.tiers.store.failures import ObjectDamaged, StoreFailed, StoreUnsure
from strandline.tiers.store.interface import ObjectStore, StoredObject, size_of
from strandline.tiers.store.waiting import Deadline, pause

T = TypeVar("T")


@dataclass(frozen=True)
class RetryRules:
    """When and how often a call is made again."""

    pause_s: float = 0.1
    """The longest first pause; each next one may be twice as long. A pause is drawn between a quarter of it and all."""
    pause_s_max: float = 10.0
    attempt_s: float = 20.0
    """What one attempt may take, beside the time for its bytes; at least half of what is left of the deadline."""
    bytes_per_s_min: int = 1 << 20
    """The slowest transfer that is waited for."""
    damaged_tries_max: int = 3
    """Attempts of a read that returns too little, because an answer can be cut on its way."""
    list_tries_max: int = 8
    """Attempts of a list that does not go on. A list has no deadline."""


class RetryingStore:
    """A store that makes failed calls again. A create is repeated with its nonce, so a lost answer is found out."""

    def __init__(
        self,
        inner: ObjectStore,
        runtime: Runtime,
        rules: RetryRules | None = None,
        *,
        counters: StoreCounters | None = None,
    ) -> None:
        self._inner = inner
        self._runtime = runtime
        self._rules: Final = rules or RetryRules()
        self.counters: Final = counters or StoreCounters()

    def __repr__(self) -> str:
        return f"RetryingStore({self._inner!r})"

    @property
    def name(self) -> str:
        return self._inner.name

    async def put(self, key: str, body: bytes | memoryview | Path, *, deadline_s: float) -> StoredObject:
        size = 0 if isinstance(body, Path) else size_of(body)
        # The size of a file is not asked for here: its upload may take what is left.
        extra_s = deadline_s if isinstance(body, Path) else size / self._rules.bytes_per_s_min
        return await self._retried(lambda left_s: self._inner.put(key, body, deadline_s=left_s), deadline_s, extra_s)

    async def create(self, key: str, body: bytes, *, nonce: str, deadline_s: float) -> bool:
        unsure: StoreUnsure | None = None

        async def attempt(left_s: float) -> bool:
            nonlocal unsure
            try:
                return await self._inner.create(key, body, nonce=nonce, deadline_s=left_s)
            except StoreUnsure as error:
                unsure = error
                raise

        try:
            return await self._retried(attempt, deadline_s)
        except ObjectDamaged:
            raise
        except StoreFailed as error:
            # What an earlier attempt did is not known, whatever stopped the last one.
            if unsure is not None and error is not unsure:
                raise unsure from error
            raise

    async def read(self, key: str, start: int, length: int, *, deadline_s: float) -> bytes | memoryview:
        extra_s = length / self._rules.bytes_per_s_min
        return await self._retried(
            lambda left_s: self._inner.read(key, start, length, deadline_s=left_s), deadline_s, extra_s, is_read=True
        )

    async def read_whole(self, key: str, *, deadline_s: float) -> bytes:
        return await self._retried(
            lambda left_s: self._inner.read_whole(key, deadline_s=left_s), deadline_s, deadline_s, is_read=True
        )

    async def head(self, key: str, *, deadline_s: float) -> StoredObject | None:
        return await self._retried(lambda left_s: self._inner.head(key, deadline_s=left_s), deadline_s)

    async def delete(self, keys: Sequence[str], *, deadline_s: float) -> None:
        await self._retried(lambda left_s: self._inner.delete(keys, deadline_s=left_s), deadline_s, deadline_s)

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[StoredObject]:
        tried = 0
        while True:
            try:
                async for each in self._inner.list(prefix, after=after):
                    tried = 0
                    after = max(after, each.key)
                    yield each
                return
            except StoreFailed as error:
                tried += 1
                if not error.is_retriable or tried >= self._rules.list_tries_max:
                    raise
            self.counters.retries += 1
            await pause(self._runtime, self._pause_s(tried))

    async def _retried(
        self,
        attempt: Callable[[float], Awaitable[T]],
        deadline_s: float,
        extra_s: float = 0.0,
        *,
        is_read: bool = False,
    ) -> T:
        deadline = Deadline(self._runtime, deadline_s)
        tried = 0
        while True:
            left_s = deadline.left_s
            tried += 1
            try:
                return await attempt(min(left_s, max(self._rules.attempt_s + extra_s, left_s / 2)))
            except StoreFailed as error:
                is_cut = is_read and isinstance(error, ObjectDamaged) and tried < self._rules.damaged_tries_max
                if not error.is_retriable and not is_cut:
                    raise
                pause_s = self._pause_s(tried)
                if pause_s >= deadline.left_s:
                    raise
            self.counters.retries += 1
            await pause(self._runtime, pause_s)

    def _pause_s(self, tried: int) -> float:
        longest = min(self._rules.pause_s_max, self._rules.pause_s * 2.0 ** min(tried - 1, 30))
        return longest * self._runtime.random.uniform(0.25, 1.0)
