"""The checksum of SQLite's WAL: two running sums over pairs of 32-bit words.

A pair (x, y) turns the sums (a, b) into (a + b + x, a + 2b + x + y), modulo 2**32. That is linear, so what the words of
a frame add does not depend on the frames before it. NumPy, where it is installed, computes that for many frames at
once, about a hundred times as fast as the plain loop.
"""

from __future__ import annotations

import importlib.util
import struct
from functools import lru_cache
from typing import Any, Final

WalSum = tuple[int, int]

_MASK: Final = 0xFFFF_FFFF
_SUMMED_OF_HEADER: Final = 8
_FRAME_HEADER_BYTES: Final = 24
_WITH_NUMPY: Final = importlib.util.find_spec("numpy") is not None


def word_sums(content: bytes | memoryview, before: WalSum, *, is_big_endian: bool) -> WalSum:
    """Return the checksum that continues `before` with these bytes, of which there is a multiple of 8."""
    a, b = before
    for x, y in struct.Struct(">2I" if is_big_endian else "<2I").iter_unpack(content):
        a = (a + b + x) & _MASK
        b = (a + b + y) & _MASK
    return a, b


class FrameSums:
    """Checksums of consecutive whole frames."""

    def __init__(
        self, content: memoryview, page_bytes: int, *, is_big_endian: bool, with_numpy: bool = _WITH_NUMPY
    ) -> None:
        self._content = content
        self._frame_bytes = _FRAME_HEADER_BYTES + page_bytes
        self._is_big_endian = is_big_endian
        self._added: list[list[int]] | None = None
        if with_numpy and len(content):
            self._added = _added_sums(content, page_bytes, is_big_endian)
            self._power = _powers((_SUMMED_OF_HEADER + page_bytes) // 8)[-1]

    def after(self, frame: int, before: WalSum) -> WalSum:
        """Return the checksum of a frame of the content that follows one with the checksum `before`."""
        if self._added is None:
            content, at = self._content, frame * self._frame_bytes
            before = word_sums(content[at : at + _SUMMED_OF_HEADER], before, is_big_endian=self._is_big_endian)
            page = content[at + _FRAME_HEADER_BYTES : at + self._frame_bytes]
            return word_sums(page, before, is_big_endian=self._is_big_endian)
        (a, b), (p, q, r) = before, self._power
        x, y = self._added[frame]
        return (p * a + q * b + x) & _MASK, (q * a + r * b + y) & _MASK


@lru_cache(maxsize=16)
def _powers(pairs: int) -> list[tuple[int, int, int]]:
    """Return the powers 0 to `pairs` of the matrix (1 1; 1 2), each as (p, q; q, r)."""
    found = [(1, 0, 1)]
    for _ in range(pairs):
        p, q, r = found[-1]
        found.append(((p + q) & _MASK, (q + r) & _MASK, (q + 2 * r) & _MASK))
    return found


@lru_cache(maxsize=16)
def _weights(pairs: int) -> Any:
    """Return what each word of a frame adds to both sums at its end: x adds (x, x) to its pair, y adds (0, y)."""
    import numpy as np

    rows = []
    for p, q, r in reversed(_powers(pairs)[:-1]):
        rows += [((p + q) & _MASK, (q + r) & _MASK), (q, r)]
    return np.array(rows, dtype=np.uint32)


def _added_sums(content: memoryview, page_bytes: int, is_big_endian: bool) -> list[list[int]]:
    """Return what each frame adds to both sums. Products wrap at 2**32, as the sums do."""
    import numpy as np

    frames = np.frombuffer(content, dtype=">u4" if is_big_endian else "<u4")
    frames = frames.reshape(-1, (_FRAME_HEADER_BYTES + page_bytes) // 4).astype(np.uint32, copy=False)
    weights = _weights((_SUMMED_OF_HEADER + page_bytes) // 8)
    found: list[list[int]] = (frames[:, :2] @ weights[:2] + frames[:, 6:] @ weights[2:]).tolist()
    return found
