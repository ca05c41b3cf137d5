"""The `.digest` file beside a segment with gaps: checksums of those bytes of its batches that no CRC covers.

    byte  0  "SLdg"
          4  version            uint16   1
          6  number of blocks   uint32
         10  size of the log    uint64   of another size it is another log's, and counts for nothing
         18  blocks             8 bytes each: where it begins uint32, CRC-32C uint32 of bytes 0 to 16 of its batches
             CRC-32C            uint32   of all of this before it

Where records follow each other without a gap, neighbours hold an offset in its place. Where the cleaner took some, only
this does. It is written by the first scrub that meets the segment, and Kafka passes over it.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import Final

from strandline.codec.checksum import crc32c
from strandline.codec.record_batch import CRC_POSITION, PREFIX, PREFIX_SIZE, Buffer

DIGEST_SUFFIX: Final = ".digest"
BLOCK_BYTES: Final = 64 * 1024
_HEAD: Final = struct.Struct(">4sHIQ")
_BLOCK: Final = struct.Struct(">II")
_MAGIC: Final = b"SLdg"
_VERSION: Final = 1


class Digest:
    """Blocks of whole batches, each with the checksum of what the CRCs leave out."""

    __slots__ = ("checksums", "size_bytes", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.checksums: list[int] = []
        self.size_bytes = 0

    def add(self, batches: Buffer) -> None:
        """Add the next whole batches."""
        view = memoryview(batches)
        at = 0
        while at < len(view):
            if not self.starts or self.size_bytes - self.starts[-1] >= BLOCK_BYTES:
                self.starts.append(self.size_bytes)
                self.checksums.append(0)
            self.checksums[-1] = crc32c(view[at : at + CRC_POSITION], self.checksums[-1])
            size = PREFIX.unpack_from(view, at)[1] + PREFIX_SIZE
            self.size_bytes += size
            at += size

    def block_at(self, position: int) -> tuple[int, int, int]:
        """Return (where the block of `position` begins, where it ends, its checksum)."""
        at = bisect_right(self.starts, position) - 1
        end = self.starts[at + 1] if at + 1 < len(self.starts) else self.size_bytes
        return self.starts[at], end, self.checksums[at]

    def to_bytes(self) -> bytes:
        head = _HEAD.pack(_MAGIC, _VERSION, len(self.starts), self.size_bytes)
        content = head + b"".join(map(_BLOCK.pack, self.starts, self.checksums))
        return content + int(crc32c(content)).to_bytes(4, "big")

    @classmethod
    def parse(cls, content: bytes, *, size_bytes: int) -> Digest | None:
        """None if it is not whole, or not of a log of that size."""
        if len(content) < _HEAD.size + 4 or int.from_bytes(content[-4:], "big") != crc32c(content[:-4]):
            return None
        magic, version, count, size = _HEAD.unpack_from(content)
        if (magic, version, size) != (_MAGIC, _VERSION, size_bytes):
            return None
        if count == 0 or len(content) != _HEAD.size + count * _BLOCK.size + 4:
            return None
        digest = cls()
        digest.size_bytes = size
        for start, checksum in _BLOCK.iter_unpack(content[_HEAD.size : -4]):
            digest.starts.append(start)
            digest.checksums.append(checksum)
        return digest


def checksum_of(batches: Buffer) -> int:
    """Return the checksum of one block, whose batches were found sound."""
    view = memoryview(batches)
    at = checksum = 0
    while at < len(view):
        checksum = crc32c(view[at : at + CRC_POSITION], checksum)
        at += PREFIX.unpack_from(view, at)[1] + PREFIX_SIZE
    return checksum
