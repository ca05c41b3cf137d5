"""Walking from batch to batch of a segment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from strandline.codec.record_batch import HEADER, HEADER_SIZE, PREFIX_SIZE, BatchHeader
from strandline.errors import CorruptLog


def headers_in(path: Path, chunk: bytes, position: int) -> Iterator[tuple[BatchHeader, int]]:
    """Yield the headers of the batches that begin in `chunk`, read at `position` of `path`, and where they lie."""
    unpack = HEADER.unpack_from
    at = 0
    while len(chunk) - at >= HEADER_SIZE:
        header = BatchHeader._make(unpack(chunk, at))
        if header.length < HEADER_SIZE - PREFIX_SIZE:
            raise CorruptLog(f"{path}: batch length {header.length} at position {position + at}")
        yield header, position + at
        at += header.length + PREFIX_SIZE
    if at == 0:
        raise CorruptLog(f"{path}: {len(chunk)} bytes at position {position} are no record batch")
