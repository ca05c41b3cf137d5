"""How much of a log may be cleaned, and whether it is worth it: the policy of compaction, by facts in memory.

A log that is compacted has a clean part, which the cleaner has been at, a dirty one, and one that it may not touch yet:
from the active segment on, from the first transaction that is open, from what is not committed or not flushed, and from
the first dirty segment with a record younger than `min.compaction.lag.ms`. Whole segments only. As in Kafka, the log
with the largest share of dirty bytes is cleaned first, if that is above `min.cleanable.dirty.ratio`; or if its oldest
dirty record is older than `max.compaction.lag.ms`.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from strandline.config.settings import LONG_MAX
from strandline.log.maintenance.retention import newest_ms

if TYPE_CHECKING:
    from strandline.log.cleaning.job import CleaningResult
    from strandline.log.partition_log import PartitionLog
    from strandline.log.segment.segment import Segment

ACTIVE, TRANSACTION, HIGH_WATERMARK, RECOVERY_POINT, LAG = (
    "active",
    "transaction",
    "high watermark",
    "recovery point",
    "lag",
)
"""Why cleaning stops where it does."""


class Cleanable(NamedTuple):
    first_dirty: int
    """Below it the log is clean."""
    first_uncleanable: int
    """From it on the log may not be cleaned yet; the base of a segment, or `first_dirty`."""
    because: str
    until_ms: int
    """When the first segment that is too young may be cleaned; -1 if that is not what is waited for, or not known."""
    segments: int
    """From the log's first on, how many may be cleaned."""
    clean_bytes: int
    cleanable_bytes: int
    due_ms: int
    """When the oldest dirty record, of the active segment too, must be cleaned; -1 if never, or not known."""
    is_overdue: bool
    """Whether that is over for a record that may be cleaned."""
    must_roll: bool
    """Whether it is over for one in the active segment."""
    unknown: tuple[Segment, ...]
    """Sealed segments whose times decide something, and only the disk knows them."""
    is_reset: bool
    """Whether the noted first dirty offset is impossible: the log was truncated, or restarted."""

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, ratio_min: float) -> bool:
        return self.cleanable_bytes > 0 and (self.is_overdue or self.dirty_ratio > ratio_min)


class Cleaned(NamedTuple):
    """How a cleaning ended well."""

    result: CleaningResult
    size_bytes_before: int
    size_bytes_after: int
    ended_ms: int
    took_s: float


def cleanable(
    log: PartitionLog, noted: int | None, *, high_watermark: int, stable_offset: int, now_ms: int
) -> Cleanable:
    """Return what may be cleaned of a log that was cleaned up to `noted` (None: never)."""
    config, segments, bases = log.config, log.segments, log.base_offsets
    first_dirty = log.log_start_offset if noted is None else noted
    is_reset = not log.log_start_offset <= first_dirty <= log.log_end_offset
    if is_reset:
        first_dirty = log.log_start_offset
    limit, because = min(
        (bases[-1], ACTIVE),
        (stable_offset, TRANSACTION if stable_offset < high_watermark else HIGH_WATERMARK),
        (log.flushed_offset, RECOVERY_POINT),
    )
    dirty_at = max(0, bisect_right(bases, first_dirty) - 1)
    # The segment that `limit` lies in is left alone, and everything behind it.
    end_at = min(bisect_right(bases, limit) - 1, len(bases) - 1)
    until_ms = -1
    unknown: list[Segment] = []
    if config.min_compaction_lag_ms > 0:
        for at in range(dirty_at, end_at):
            newest = newest_ms(segments[at])
            if newest is None:
                unknown.append(segments[at])
            if newest is None or newest > now_ms - config.min_compaction_lag_ms:
                end_at, because = at, LAG
                until_ms = -1 if newest is None else newest + config.min_compaction_lag_ms
                break
    due_ms, is_overdue, must_roll = -1, False, False
    if config.max_compaction_lag_ms < LONG_MAX:
        oldest = [segments[at].first_timestamp_ms for at in range(dirty_at, len(bases) - 1)]
        unknown += [segments[at] for at, first in enumerate(oldest, dirty_at) if first < 0 and segments[at].size_bytes]
        known = [first for first in oldest if first >= 0]
        overdue_before = now_ms - config.max_compaction_lag_ms
        is_overdue = any(0 <= first < overdue_before for first in oldest[: max(0, end_at - dirty_at)])
        active = segments[-1]
        if active.size_bytes:
            # Records of long ago that were written just now have not been waiting: or the log would roll at every look.
            first = active.first_timestamp_ms
            began = max(first, active.created_ms) if first <= now_ms else active.created_ms
            known.append(began)
            must_roll = began < overdue_before
        due_ms = min(known) + config.max_compaction_lag_ms if known else -1
    end_at = max(end_at, dirty_at)
    return Cleanable(
        first_dirty=first_dirty,
        first_uncleanable=max(first_dirty, bases[end_at]),
        because=because,
        until_ms=until_ms,
        segments=end_at,
        clean_bytes=sum(segment.size_bytes for segment in segments[:dirty_at]),
        cleanable_bytes=sum(segment.size_bytes for segment in segments[dirty_at:end_at]),
        due_ms=due_ms,
        is_overdue=is_overdue,
        must_roll=must_roll,
        unknown=tuple(unknown),
        is_reset=is_reset,
    )
