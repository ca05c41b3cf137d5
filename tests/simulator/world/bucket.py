"""The object store of a simulated world: one bucket in memory, and the way that each node has to it.

A request travels to the bucket, takes effect there at one moment, and its answer travels back. So a node that is
killed, paused or out of patience in between leaves work that is done all the same, perhaps later than it believes.
Faults of the service itself (503, lost answers, cut uploads, late lists, expired credentials) are those of
`FaultyStore`, in front of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tests.tiers.store.faulty_store import FaultyStore, StoreFaults

from strandline.tiers.store.failures import StoreUnavailable
from strandline.tiers.store.interface import StoredObject
from strandline.tiers.store.memory_store import MemoryStore
from strandline.tiers.store.waiting import LateAnswer, Signal, within

if TYPE_CHECKING:
    from tests.simulator.world.cluster import SimNode
    from tests.simulator.world.disk import SimDisk
    from tests.simulator.world.loop import SimLoop
    from tests.simulator.world.runtime import SimRuntime

    from strandline.runtime.runtime import Runtime

T = TypeVar("T")

TRAVEL_S: Final = 0.004
"""What a request takes to the bucket, and its answer back, about."""
LANDS_SHARE: Final = 0.5
"""Of the requests whose sender died on the way, how many had left it whole."""


class SimBucket(MemoryStore):
    """The objects, and what became of requests."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__("memory://bucket")
        self.loop = loop
        self.random = loop.derive("bucket")
        self.counts: Counter[str] = Counter()
        """Requests that took effect, by kind."""
        self.late: set[str] = set()
        """Objects whose writer did not wait any more, or was dead, when the bucket wrote them."""
        self.on_deleted: list[Callable[[Sequence[str]], object]] = []
        """Called before objects go that are there."""

    def opener(self, node: SimNode, life: int) -> Callable[[str, Mapping[str, str], Runtime], FaultyStore]:
        """Return what opens the bucket for one life of a node."""

        def open_store(_: str, __: Mapping[str, str], runtime: Runtime) -> FaultyStore:
            assert node.runtime is not None
            way = BucketWay(self, node.runtime, node.disk)
            return FaultyStore(way, runtime, self.loop.derive(f"store of {node.name} {life}"), node.store_faults)

        return open_store

    async def delete(self, keys: Sequence[str], *, deadline_s: float) -> None:
        there = [key for key in keys if key in self.objects]
        for each in self.on_deleted if there else ():
            each(there)
        await super().delete(keys, deadline_s=deadline_s)


class BucketWay:
    """The way of one life of a node to the bucket."""

    def __init__(self, bucket: SimBucket, runtime: SimRuntime, disk: SimDisk) -> None:
        self._bucket = bucket
        self._runtime = runtime
        self._disk = disk

    @property
    def name(self) -> str:
        return self._bucket.name

    async def put(self, key: str, body: bytes | memoryview | Path, *, deadline_s: float) -> StoredObject:
        sent = self._disk.read_whole(body) if isinstance(body, Path) else bytes(body)
        bucket = self._bucket
        return await self._ask("put", [key], lambda: bucket.put(key, sent, deadline_s=0.0), deadline_s)

    async def create(self, key: str, body: bytes, *, nonce: str, deadline_s: float) -> bool:
        bucket = self._bucket
        return await self._ask(
            "create", [key], lambda: bucket.create(key, body, nonce=nonce, deadline_s=0.0), deadline_s
        )

    async def read(self, key: str, start: int, length: int, *, deadline_s: float) -> bytes:
        bucket = self._bucket
        return await self._ask("read", [key], lambda: bucket.read(key, start, length, deadline_s=0.0), deadline_s)

    async def read_whole(self, key: str, *, deadline_s: float) -> bytes:
        return await self._ask("read", [key], lambda: self._bucket.read_whole(key, deadline_s=0.0), deadline_s)

    async def head(self, key: str, *, deadline_s: float) -> StoredObject | None:
        return await self._ask("head", [key], lambda: self._bucket.head(key, deadline_s=0.0), deadline_s)

    async def delete(self, keys: Sequence[str], *, deadline_s: float) -> None:
        await self._ask("delete", keys, lambda: self._bucket.delete(keys, deadline_s=0.0), deadline_s)

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[StoredObject]:
        async def listed() -> list[StoredObject]:
            return [each async for each in self._bucket.list(prefix, after=after)]

        for each in await self._ask("list", [prefix], listed, 60.0):
            yield each

    async def _ask(
        self, kind: str, keys: Sequence[str], work: Callable[[], Coroutine[Any, Any, T]], deadline_s: float
    ) -> T:
        if self._runtime.actor.is_dead:
            # Its coroutines are collected, and clean up: a process that was killed does not get there.
            raise GeneratorExit
        bucket, answer = self._bucket, Signal[T](self._runtime)
        bucket.loop.call_in(self._travel_s(), self._arrive, kind, keys, work, answer)
        try:
            return await within(self._runtime, deadline_s, answer)
        except LateAnswer:
            raise StoreUnavailable(f"{self.name} did not {kind} {keys[0]} in time") from None

    def _arrive(
        self, kind: str, keys: Sequence[str], work: Callable[[], Coroutine[Any, Any, T]], answer: Signal[T]
    ) -> None:
        """Do the work: an event of the bucket, whatever its sender does meanwhile."""
        bucket, sender = self._bucket, self._runtime.actor
        if sender.is_dead and bucket.random.random() >= LANDS_SHARE:
            return
        bucket.counts[kind] += 1
        if kind in ("put", "create") and (sender.is_dead or answer.done()):
            bucket.late.update(keys)
        result: T | None = None
        error: Exception | None = None
        try:
            work().send(None)
        except StopIteration as end:
            result = end.value
        except Exception as failure:
            error = failure
        else:
            raise AssertionError("a call of the bucket waits")
        bucket.loop.call_at(bucket.loop.now + self._travel_s(), sender, self._answer, answer, result, error)

    def _answer(self, answer: Signal[Any], result: object, error: Exception | None) -> None:
        if error is None:
            answer.set(result)
        else:
            answer.fail(error)

    def _travel_s(self) -> float:
        return TRAVEL_S * self._bucket.random.expovariate(1.0)


def mend(faults: StoreFaults) -> None:
    """Take all faults away."""
    vars(faults).update(vars(StoreFaults()))
