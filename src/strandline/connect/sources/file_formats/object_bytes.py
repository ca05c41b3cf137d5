"""Objects of a store: a listing, and the bytes of one object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import obstore
from obstore import exceptions as store_errors
from obstore.store import ObjectStore

from strandline.connect.failures import ConnectFailed
from strandline.connect.object_store import first_line, store_failure

WINDOW_BYTES: Final = 8 << 20
"""Bytes of one request: a store takes as long for a few as for these."""


class SourceObject(NamedTuple):
    """An object as it is listed. `version` changes when it is replaced."""

    name: str
    size: int
    version: str
    modified_ms: int
    e_tag: str | None


def listed(store: ObjectStore, what: str) -> Iterator[SourceObject]:
    """Yield every object, in the order of the store."""
    try:
        for page in obstore.list(store, chunk_size=1000):
            for each in page:
                tag = each["e_tag"]
                modified = each["last_modified"]
                version = tag or f"{modified.isoformat()}/{each['size']}"
                yield SourceObject(each["path"], each["size"], version, int(modified.timestamp() * 1000), tag)
    except (store_errors.BaseError, OSError) as error:
        raise store_failure(error, f"{what} was not listed") from None


class ObjectReplaced(ConnectFailed):
    """An object is gone, or is another one than was listed."""


class ObjectBytes:
    """One object. It is read in large requests, each of which makes sure that it is still the same."""

    def __init__(self, store: ObjectStore, found: SourceObject) -> None:
        self.name = found.name
        self._store = store
        self._found = found
        self._start = 0
        self._window = b""

    def size(self) -> int:
        return self._found.size

    def read_at(self, position: int, length: int) -> bytes:
        """Return the bytes from a position on; fewer than `length` only at the end."""
        end = min(position + length, self._found.size)
        if position >= end:
            return b""
        if not self._start <= position <= end <= self._start + len(self._window):
            window_end = min(max(end, position + WINDOW_BYTES), self._found.size)
            self._window, self._start = self._request(position, window_end), position
        return self._window[position - self._start : end - self._start]

    def _request(self, start: int, end: int) -> bytes:
        options: Any = {"range": (start, end)}
        if self._found.e_tag is not None:
            options["if_match"] = self._found.e_tag
        try:
            return bytes(obstore.get(self._store, self.name, options=options).bytes())
        except (FileNotFoundError, store_errors.PreconditionError) as error:
            raise ObjectReplaced(f"the object {self.name} has changed: {first_line(error)}") from None
        except (store_errors.BaseError, OSError) as error:
            raise store_failure(error, f"the object {self.name} was not read") from None
