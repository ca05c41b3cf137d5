"""Bytes that can be read from any position: those of a file or of an object."""

from __future__ import annotations

import io
import os
from typing import Protocol
from zlib import crc32


class ByteSource(Protocol):
    """A file or an object."""

    @property
    def name(self) -> str:
        """What messages call it."""

    def size(self) -> int: ...

    def read_at(self, position: int, length: int) -> bytes:
        """Return the bytes from a position on; fewer than `length` only at the end."""


class DescriptorBytes:
    """An open file. Several threads may read it."""

    def __init__(self, name: str, descriptor: int) -> None:
        self.name = name
        self.descriptor = descriptor

    def size(self) -> int:
        return os.fstat(self.descriptor).st_size

    def read_at(self, position: int, length: int) -> bytes:
        return os.pread(self.descriptor, length, position)


class SeekableBytes(io.RawIOBase):
    """A source as a file object, for libraries that want one. Its size is that of the moment when it was made."""

    def __init__(self, source: ByteSource) -> None:
        super().__init__()
        self._source = source
        self._size = source.size()
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        length = min(len(buffer), self._size - self._position)
        if length <= 0:
            return 0
        found = self._source.read_at(self._position, length)
        buffer[: len(found)] = found
        self._position += len(found)
        return len(found)


def checksum(source: ByteSource, position: int, length: int) -> str:
    """Return a checksum of some bytes as text."""
    return f"{crc32(source.read_at(position, length)):08x}"
