"""Seeded faults in front of a store: delays, overload, conflicts, lost answers, cut uploads, bad ranges, late lists.

All it needs is a `Runtime`, so it works in the simulator. What it draws depends on its own source of randomness alone.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from strandline.runtime.runtime import Runtime
from strandline.tiers.store.failures import ObjectDamaged, StoreDenied, StoreUnavailable, StoreUnsure
from strandline.tiers.store.interface import ObjectStore, StoredObject
from strandline.tiers.store.waiting import Deadline, pause

T = TypeVar("T")


@dataclass
class StoreFaults:
    """Chances of each fault, from 0 to 1. They may be changed while the store works."""

    delay_s: float = 0.0
    """Each call takes up to so long, drawn."""
    unavailable: float = 0.0
    """503: nothing is done. 1 is an outage."""
    conflict: float = 0.0
    """409 to a create: nothing is done, and the caller cannot know."""
    lost: float = 0.0
    """The work is done, and its answer is lost."""
    cut: float = 0.0
    """An upload breaks off: nothing is stored."""
    short_range: float = 0.0
    """A read returns too little, which the store itself notices."""
    wrong_range: float = 0.0
    """A read returns as many bytes as asked for, of another place. Only a checksum notices."""
    late_list_s: float = 0.0
    """A list does not show what was written within this time before it, with even chances."""
    listed_twice: float = 0.0
    denied: float = 0.0
    """The credentials have expired: nothing is done."""


class FaultyStore:
    """A store with faults. `injected` counts them by name."""

    def __init__(self, inner: ObjectStore, runtime: Runtime, chance: random.Random, faults: StoreFaults) -> None:
        self.inner = inner
        self.faults = faults
        self.injected: Counter[str] = Counter()
        self._runtime = runtime
        self._chance = chance
        self._written_at: dict[str, float] = {}

    @property
    def name(self) -> str:
        return self.inner.name

    async def put(self, key: str, body: bytes | memoryview | Path, *, deadline_s: float) -> StoredObject:
        async def work() -> StoredObject:
            if self._hits("cut", self.faults.cut):
                raise StoreUnavailable(f"{self.name} did not write {key}: the upload was cut")
            self._written_at[key] = self._runtime.monotonic()
            return await self.inner.put(key, body, deadline_s=deadline_s)

        return await self._faulty("write", key, deadline_s, work)

    async def create(self, key: str, body: bytes, *, nonce: str, deadline_s: float) -> bool:
        async def work() -> bool:
            if self._hits("conflict", self.faults.conflict):
                raise StoreUnsure(f"whether {self.name} created {key} is unknown (409)")
            self._written_at.setdefault(key, self._runtime.monotonic())
            return await self.inner.create(key, body, nonce=nonce, deadline_s=deadline_s)

        try:
            return await self._faulty("create", key, deadline_s, work)
        except StoreUnavailable as error:
            raise StoreUnsure(f"whether {self.name} created {key} is unknown ({error})") from None

    async def read(self, key: str, start: int, length: int, *, deadline_s: float) -> bytes:
        async def work() -> bytes:
            found = bytes(await self.inner.read(key, start, length, deadline_s=deadline_s))
            if self._hits("short_range", self.faults.short_range):
                raise ObjectDamaged(f"{self.name} returned fewer bytes of {key}")
            if self._hits("wrong_range", self.faults.wrong_range):
                place = self._chance.randrange(length)
                return found[:place] + bytes([found[place] ^ (1 << self._chance.randrange(8))]) + found[place + 1 :]
            return found

        return await self._faulty("read", key, deadline_s, work)

    async def read_whole(self, key: str, *, deadline_s: float) -> bytes:
        return await self._faulty("read", key, deadline_s, lambda: self.inner.read_whole(key, deadline_s=deadline_s))

    async def head(self, key: str, *, deadline_s: float) -> StoredObject | None:
        return await self._faulty("describe", key, deadline_s, lambda: self.inner.head(key, deadline_s=deadline_s))

    async def delete(self, keys: Sequence[str], *, deadline_s: float) -> None:
        await self._faulty(
            "delete", keys[0] if keys else "", deadline_s, lambda: self.inner.delete(keys, deadline_s=deadline_s)
        )

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[StoredObject]:
        begun = self._runtime.monotonic()
        self._check_credentials("list", prefix)
        if self._hits("unavailable", self.faults.unavailable):
            raise StoreUnavailable(f"{self.name} did not list {prefix}: 503")
        async for each in self.inner.list(prefix, after=after):
            if self._hits("unavailable", self.faults.unavailable):
                raise StoreUnavailable(f"{self.name} did not list {prefix}: 503")
            is_new = begun - self._written_at.get(each.key, begun - 1e9) < self.faults.late_list_s
            if is_new and self._hits("late_list", 0.5):
                continue
            yield each
            if self._hits("listed_twice", self.faults.listed_twice):
                yield each

    async def _faulty(self, action: str, key: str, deadline_s: float, work: Callable[[], Awaitable[T]]) -> T:
        deadline = Deadline(self._runtime, deadline_s)
        self._check_credentials(action, key)
        if self.faults.delay_s:
            # A part before the work and a part after it, so that calls overtake each other.
            await self._wait(self._chance.uniform(0.0, self.faults.delay_s / 2), deadline, action, key)
        if self._hits("unavailable", self.faults.unavailable):
            raise StoreUnavailable(f"{self.name} did not {action} {key}: 503")
        result = await work()
        if self.faults.delay_s:
            await self._wait(self._chance.uniform(0.0, self.faults.delay_s / 2), deadline, action, key)
        if self._hits("lost", self.faults.lost):
            raise StoreUnavailable(f"{self.name} did not {action} {key}: the answer was lost")
        return result

    def _check_credentials(self, action: str, key: str) -> None:
        if self._hits("denied", self.faults.denied):
            what = f"{self.name} did not {action} {key}"
            raise StoreDenied(f"{what}: the credentials have expired; renew them", "expired")

    async def _wait(self, seconds: float, deadline: Deadline, action: str, key: str) -> None:
        left_s = deadline.left_s
        await pause(self._runtime, min(seconds, left_s))
        if seconds >= left_s:
            self.injected["late"] += 1
            raise StoreUnavailable(f"{self.name} did not {action} {key} in time")

    def _hits(self, name: str, probability: float) -> bool:
        if probability <= 0.0 or self._chance.random() >= probability:
            return False
        self.injected[name] += 1
        return True
