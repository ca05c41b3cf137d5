"""Sealed segments in pieces of whole batches, at the pace that was asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from strandline.codec.columns.decode import payload_of
from strandline.codec.record_batch import HEADER_SIZE, PREFIX, PREFIX_SIZE, RECORD_SIZE_MIN, BatchHeader, Buffer
from strandline.errors import PeerError
from strandline.log.cleaning.job import CannotClean, CleaningStopped
from strandline.log.disk import Disk

PIECE_BYTES_MIN: Final = 64 * 1024
PAUSE_S_MIN: Final = 0.001


class Pace:
    """The pace of a cleaning: it asks whether to go on, and holds reading and writing to a rate."""

    def __init__(self, bytes_per_s: float, *, is_stopped: Callable[[], bool], sleep: Callable[[float], None]) -> None:
        self._bytes_per_s = bytes_per_s
        self.is_stopped = is_stopped
        self.sleep = sleep
        self._owed_s = 0.0

    def spend(self, size_bytes: int) -> None:
        """Count bytes that were read or written. Raises CleaningStopped if the broker cancelled the job."""
        if self.is_stopped():
            raise CleaningStopped("the cleaning was stopped")
        if self._bytes_per_s > 0:
            self._owed_s += size_bytes / self._bytes_per_s
            if self._owed_s >= PAUSE_S_MIN:
                self.sleep(self._owed_s)
                self._owed_s = 0.0


class SegmentReader:
    """The bytes of one segment, piece by piece; each begins where a batch does."""

    def __init__(self, disk: Disk, path: Path, size_bytes: int, *, piece_bytes: int, pace: Pace) -> None:
        self._file = disk.open(path)
        self.path = path
        self._size_bytes = size_bytes
        self._piece_bytes = max(piece_bytes, PIECE_BYTES_MIN)
        self._wanted_bytes = self._piece_bytes
        self._pace = pace
        self.position = 0

    def read(self) -> bytes:
        """Return the next piece; empty at the end."""
        size = min(self._wanted_bytes, self._size_bytes - self.position)
        if size <= 0:
            return b""
        piece = self._file.read_at(self.position, size)
        if len(piece) < size:
            raise CannotClean(f"{self.path.name} ends at {self.position + len(piece)}, before its {self._size_bytes}")
        self._pace.spend(size)
        return piece

    def advance(self, used_bytes: int, piece: bytes) -> None:
        """So much of `piece` was whole batches; the next begins behind them, and is longer if there was none."""
        self.position += used_bytes
        self._wanted_bytes = self._piece_bytes
        if used_bytes:
            return
        length = PREFIX.unpack_from(piece)[1] if len(piece) >= PREFIX_SIZE else -1
        size = length + PREFIX_SIZE
        if size < HEADER_SIZE or size > self._size_bytes - self.position or size <= len(piece):
            raise CannotClean(f"{self.path.name}: no whole batch at position {self.position}")
        self._wanted_bytes = size

    def close(self) -> None:
        self._file.close()


def whole_batch(piece: memoryview, position: int) -> memoryview | None:
    """Return the batch at `position`; None if the piece ends before it does."""
    if len(piece) - position < HEADER_SIZE:
        return None
    end = position + PREFIX.unpack_from(piece, position)[1] + PREFIX_SIZE
    return piece[position:end] if position + HEADER_SIZE <= end <= len(piece) else None


def open_batch(batch: memoryview, path: Path) -> tuple[BatchHeader, Buffer]:
    """The header and the inflated records of a batch whose CRC is right; CannotClean if anything is wrong with it."""
    try:
        header, payload = payload_of(batch)
    except PeerError as error:
        raise CannotClean(f"{path.name}: {error}") from error
    if header.record_count * RECORD_SIZE_MIN > len(payload):
        raise CannotClean(f"{path.name}: {header.record_count} records cannot lie in {len(payload)} bytes")
    return header, payload
