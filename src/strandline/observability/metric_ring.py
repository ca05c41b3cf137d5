"""Values of named series at equal steps, for a bounded time: what a chart needs, without a program that scrapes.

    chunk of 360 steps   { "bytes_in": [1.0e6, 1.2e6, nan, ...], "produce_p99_ms": [...] }
    chunk of 360 steps   { ... }
    up to points_max / 360 + 1 chunks; the oldest is dropped whole

A series takes memory from its first value on, and none in chunks where it has no value. So a node that has just started
holds nothing, and at most `size_bytes_max` after a day. Steps count on a clock that never goes back; a wall clock that
is set moves the times of all values alike.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

CHUNK_POINTS: Final = 360
_NOTHING: Final = float("nan")
_VALUE_BYTES: Final = 4


class MetricRing:
    """Series of 32-bit floats; NaN stands for no value."""

    def __init__(self, *, step_ms: int, points_max: int, series_max: int) -> None:
        self.step_ms = step_ms
        self.series_max = series_max
        self._chunks: deque[tuple[int, dict[str, array[float]]]] = deque(maxlen=points_max // CHUNK_POINTS + 1)

    @property
    def size_bytes_max(self) -> int:
        """Bytes of values after a full turn of the ring."""
        assert self._chunks.maxlen is not None
        return self._chunks.maxlen * CHUNK_POINTS * self.series_max * _VALUE_BYTES

    @property
    def size_bytes(self) -> int:
        return sum(len(series) * CHUNK_POINTS * _VALUE_BYTES for _, series in self._chunks)

    def note(self, monotonic_ms: int, values: Mapping[str, float]) -> None:
        """Keep the values of this step. Series beyond `series_max` in one chunk are dropped; later values replace."""
        number, at = divmod(monotonic_ms // self.step_ms, CHUNK_POINTS)
        if not self._chunks or self._chunks[-1][0] < number:
            self._chunks.append((number, {}))
        series = self._chunks[-1][1]
        for name, value in values.items():
            points = series.get(name)
            if points is None:
                if len(series) >= self.series_max:
                    continue
                points = series[name] = array("f", (_NOTHING,)) * CHUNK_POINTS
            points[at] = value

    def read(
        self, monotonic_ms: int, since_ms: int, prefixes: Sequence[str] | None
    ) -> tuple[int, dict[str, array[float]]]:
        """Return the monotonic time of the first step, and every series that begins with a prefix, equally long.

        `since_ms` is monotonic. Steps up to `monotonic_ms` are there, NaN where nothing was kept.
        """
        last = monotonic_ms // self.step_ms
        oldest = self._chunks[0][0] * CHUNK_POINTS if self._chunks else last + 1
        first = max(oldest, since_ms // self.step_ms)
        wanted = tuple(prefixes) if prefixes is not None else ("",)
        found: dict[str, array[float]] = {}
        count = max(0, last + 1 - first)
        for number, series in self._chunks:
            begin = number * CHUNK_POINTS
            low, high = max(first, begin), min(last + 1, begin + CHUNK_POINTS)
            if low >= high:
                continue
            for name, points in series.items():
                if name.startswith(wanted):
                    whole = found.get(name)
                    if whole is None:
                        whole = found[name] = array("f", (_NOTHING,)) * count
                    whole[low - first : high - first] = points[low - begin : high - begin]
        return first * self.step_ms, found


def quantile(counts: Sequence[int], share: float) -> float:
    """Return a quantile of times in bucket `b`: from 2^(b-1) up to 2^b - 1; NaN if nothing was counted.

    Within a bucket times are taken for spread evenly on a logarithmic scale.
    """
    total = sum(counts)
    if total <= 0:
        return _NOTHING
    wanted, below = share * total, 0
    for bits, count in enumerate(counts):
        if count > 0 and below + count >= wanted:
            return float(2.0 ** (bits - 1 + (wanted - below) / count)) if bits else 0.0
        below += count
    return _NOTHING
