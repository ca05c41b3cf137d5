"""A store in memory with the rules of the others. A call ends without waiting: one event of the simulator."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Final

from strandline.tiers.store.failures import ObjectDamaged, ObjectMissing, StoreFull
from strandline.tiers.store.interface import StoredObject, below, check_key, check_nonce, check_range


class MemoryStore:
    """Objects of one process. `read_file` reads bodies that are given as paths, and the simulator passes its own."""

    def __init__(
        self,
        name: str = "memory://",
        *,
        bytes_max: int | None = None,
        read_file: Callable[[Path], bytes] = Path.read_bytes,
    ) -> None:
        self.name: Final = name
        self.bytes_max = bytes_max
        self.objects: dict[str, bytes] = {}
        """The bytes by key; a test may damage them."""
        self._read_file = read_file
        self._versions: dict[str, int] = {}
        self._version = 0
        self._size = 0

    def __repr__(self) -> str:
        return f"MemoryStore({self.name!r})"

    async def put(self, key: str, body: bytes | memoryview | Path, *, deadline_s: float) -> StoredObject:
        check_key(key)
        # A copy, because the caller's buffer may change after the call.
        return self._write(key, self._read_file(body) if isinstance(body, Path) else bytes(body))

    async def create(self, key: str, body: bytes, *, nonce: str, deadline_s: float) -> bool:
        check_key(key)
        check_nonce(body, nonce)
        if key not in self.objects:
            self._write(key, body)
        return self.objects[key] == body

    async def read(self, key: str, start: int, length: int, *, deadline_s: float) -> bytes:
        check_range(start, length)
        found = self._found(key)[start : start + length]
        if len(found) != length:
            raise ObjectDamaged(f"{self.name} holds {key} shorter than expected; run `strandline storage check`")
        return found

    async def read_whole(self, key: str, *, deadline_s: float) -> bytes:
        return self._found(key)

    async def head(self, key: str, *, deadline_s: float) -> StoredObject | None:
        check_key(key)
        return self._described(key) if key in self.objects else None

    async def delete(self, keys: Sequence[str], *, deadline_s: float) -> None:
        for key in keys:
            check_key(key)
        for key in keys:
            self._size -= len(self.objects.pop(key, b""))

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[StoredObject]:
        folder = below(prefix)
        for key in sorted(each for each in self.objects if each.startswith(folder) and each > after):
            # It may be deleted while its predecessor is handled.
            if key in self.objects:
                yield self._described(key)

    def _write(self, key: str, body: bytes) -> StoredObject:
        size = self._size - len(self.objects.get(key, b"")) + len(body)
        if self.bytes_max is not None and size > self.bytes_max:
            raise StoreFull(f"{self.name} did not write {key}: it has no room left; free some or raise the quota")
        self._size = size
        self._version += 1
        self.objects[key] = body
        self._versions[key] = self._version
        return self._described(key)

    def _found(self, key: str) -> bytes:
        found = self.objects.get(check_key(key))
        if found is None:
            raise ObjectMissing(
                f"{self.name} has no object {key}; if it was deleted by hand, run `strandline storage check`"
            )
        return found

    def _described(self, key: str) -> StoredObject:
        return StoredObject(key, len(self.objects[key]), str(self._versions[key]))
