"""The interface of all object stores, and the rules of keys."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

KEY_LENGTH_MAX: Final = 800
"""S3 and Google allow 1024 bytes, and a prefix of the operator's comes in front."""
DELETE_KEYS_MAX: Final = 1000
"""Keys of one request."""
PART_BYTES: Final = 16 << 20
"""Bytes of one part. An object up to this size is written by one request; 10,000 parts allow 160 GiB."""
PARTS_MAX: Final = 10_000

_SEGMENT: Final = r"[A-Za-z0-9_=+-][A-Za-z0-9_=+.-]*"
_KEY: Final = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*")


class StoredObject(NamedTuple):
    """An object, as the store describes it."""

    key: str
    size: int
    e_tag: str | None
    modified_ms: int = 0
    """When it was written, by the clock of the store; 0 if that is not known. Nothing is ordered by it."""


class ObjectStore(Protocol):
    """An object store. `deadline_s` limits a whole call, in seconds from now; a late call raises StoreUnavailable.

    Failures are those of `failures`. An object is written whole or not at all, and a read after a write sees it.
    """

    @property
    def name(self) -> str:
        """The address of the store, for messages, without credentials."""

    async def put(self, key: str, body: bytes | memoryview | Path, *, deadline_s: float) -> StoredObject:
        """Write an object, in parts if it is large. One that exists is replaced, so give it a name of its own."""

    async def create(self, key: str, body: bytes, *, nonce: str, deadline_s: float) -> bool:
        """Write an object unless there is one, and read it back. Return whether the object is this one.

        The body contains the nonce, so that no other writer has the same body. Raise StoreUnsure if the outcome is
        unknown; the same call finds out later.
        """

    async def read(self, key: str, start: int, length: int, *, deadline_s: float) -> bytes | memoryview:
        """Return exactly `length` bytes, as a view where a library holds them.

        Raise ObjectMissing, or ObjectDamaged if there are fewer.
        """

    async def read_whole(self, key: str, *, deadline_s: float) -> bytes:
        """Return all bytes of an object, or raise ObjectMissing."""

    async def head(self, key: str, *, deadline_s: float) -> StoredObject | None:
        """Return an object without its bytes, or None if there is none."""

    async def delete(self, keys: Sequence[str], *, deadline_s: float) -> None:
        """Delete objects, `DELETE_KEYS_MAX` a request. Those that do not exist are fine."""

    def list(self, prefix: str, *, after: str = "") -> AsyncIterator[StoredObject]:
        """Yield the objects below `prefix/`, or all for an empty prefix, whose keys are greater than `after`.

        They come in the order of keys, except from S3 directory buckets. Only clean-up may depend on a list, because a
        store may show an object late or twice.
        """


def check_key(key: str) -> str:
    """Return the key, or raise ValueError if a store or a file system could read it in another way."""
    if len(key) > KEY_LENGTH_MAX or _KEY.fullmatch(key) is None:
        raise ValueError(f"{key[:100]!r} is not allowed as the key of an object")
    return key


def below(prefix: str) -> str:
    """Return what the keys below a prefix begin with."""
    return f"{check_key(prefix.rstrip('/'))}/" if prefix else ""


def check_range(start: int, length: int) -> None:
    """Raise ValueError if a range is empty or negative, which no store can read."""
    if start < 0 or length < 1:
        raise ValueError(f"a range of {length} bytes from {start} on cannot be read")


def check_nonce(body: bytes, nonce: str) -> None:
    """Raise ValueError unless the body contains the nonce."""
    if len(nonce) < 8 or nonce.encode() not in body:
        raise ValueError("the body of a conditional write must contain its nonce, of at least 8 characters")


def requests_of_put(size: int) -> int:
    """Return how many requests the upload of so many bytes takes."""
    return 1 if size <= PART_BYTES else -(-size // PART_BYTES) + 2


def size_of(body: bytes | memoryview | Path) -> int:
    """Return the number of bytes to upload. Raise OSError if a file cannot be read."""
    if isinstance(body, Path):
        return body.stat().st_size
    return body.nbytes if isinstance(body, memoryview) else len(body)
