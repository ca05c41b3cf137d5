"""Whether retention frees room before a disk is full, and if not, when it is full (pure).

Each log that grows does so until retention takes as much as comes: what is kept by time at its rate, or what is kept by
size, and one segment more, for only whole ones go. A log without a limit grows for ever. Logs that are only compacted
are left out: the number of future keys is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

UPTIME_S_MIN: Final = 600.0
"""A rate over less than this says little about tomorrow."""


class Growth(NamedTuple):
    """One log on the disk."""

    size_bytes: int
    bytes_per_s: float
    size_bytes_final: float
    """Where it stops to grow; infinity if nothing limits it."""


class Forecast(NamedTuple):
    full_in_s: float
    bytes_per_s: float
    """At which all logs of the disk grow together, now."""
    wanted_bytes: float
    """What they would come to take in addition; infinity if one has no limit."""


def growth(
    *,
    size_bytes: int,
    bytes_per_s: float,
    cleanup_policy: str,
    retention_ms: int,
    retention_bytes: int,
    segment_ms: int,
    segment_bytes: int,
) -> Growth | None:
    """Return how a log grows by what its topic keeps; None if it does not, or if that is unknown."""
    policy = cleanup_policy.split(",")
    if bytes_per_s <= 0 or policy == ["compact"]:
        return None
    final = math.inf
    segment = min(segment_bytes, bytes_per_s * segment_ms / 1000)
    if "delete" in policy:
        if retention_ms >= 0:
            final = bytes_per_s * retention_ms / 1000 + segment
        if retention_bytes >= 0:
            final = min(final, retention_bytes + segment)
    return Growth(size_bytes, bytes_per_s, max(final, float(size_bytes)))


def forecast(logs: Iterable[Growth], usable_bytes: int) -> Forecast | None:
    """Return when the disk is full; None if retention keeps everything within the room that is left."""
    growing = sorted((each for each in logs if each.size_bytes_final > each.size_bytes), key=_grows_for_s)
    wanted = sum(each.size_bytes_final - each.size_bytes for each in growing)
    if wanted <= usable_bytes:
        return None
    at_s = 0.0
    left = float(usable_bytes)
    rate = sum(each.bytes_per_s for each in growing)
    now = rate
    for each in growing:
        # Up to the moment at which this log stops to grow, all that are left grow together.
        until_s = _grows_for_s(each)
        if (until_s - at_s) * rate >= left:
            break
        left -= (until_s - at_s) * rate
        at_s = until_s
        rate -= each.bytes_per_s
    return Forecast(at_s + left / rate, now, wanted)


def _grows_for_s(log: Growth) -> float:
    return (log.size_bytes_final - log.size_bytes) / log.bytes_per_s
