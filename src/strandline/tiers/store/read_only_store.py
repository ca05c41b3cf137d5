"""A store that nothing is written to, for a cluster that reads the objects of another."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from strandline.tiers.store.failures import StoreDenied
from strandline.tiers.store.interface import ObjectStore, StoredObject


class ReadOnlyStore:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"ReadOnlyStore({self.name!r})"

    @property
    def name(self) -> str:
        return self._store.name

    def close(self) -> None:
        close = getattr(self._store, "close", None)
        if close is not None:
            close()

    async def put(self, key: str, body: bytes | memoryview | Path, *, deadline_s: float) -> StoredObject:
        raise self._denied("written")

    async def create(self, key: str, body: bytes, *, nonce: str, deadline_s: float) -> bool:
        raise self._denied("written")

    async def delete(self, keys: Sequence[str], *, deadline_s: float) -> None:
        raise self._denied("deleted")

    async def read(self, key: str, start: int, length: int, *, deadline_s: float) -> bytes | memoryview:
        return await self._store.read(key, start, length, deadline_s=deadline_s)

    async def read_whole(self, key: str, *, deadline_s: float) -> bytes:
        return await self._store.read_whole(key, deadline_s=deadline_s)

    async def head(self, key: str, *, deadline_s: float) -> StoredObject | None:
        return await self._store.head(key, deadline_s=deadline_s)

    def list(self, prefix: str, *, after: str = "") -> AsyncIterator[StoredObject]:
        return self._store.list(prefix, after=after)

    def _denied(self, what: str) -> StoreDenied:
        return StoreDenied(
            f"{self.name} is read-only by strandline.remote.store.read.only, so nothing is {what} there", "rights"
        )
