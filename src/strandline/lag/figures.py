"""Computes lag, rates and the time until unread records are deleted from the window of one position.

Retention deletes whole segments, and never the active one. So records live up to a segment longer than the figures
here say, and never shorter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from strandline.lag.samples import NO_POSITION, UNKNOWN, Sample, Window

NEVER: Final = math.inf
"""The time until an event that the present rates never reach."""

RATE_SPAN_MS_MIN: Final = 1_000
"""Samples closer together than this give no rate."""
GROWTH_SHARE_MIN: Final = 0.02
"""A lag that grows by less than this share of the write rate does not grow: commits come a little early or late."""


@dataclass(frozen=True, slots=True)
class TopicRetention:
    """The limits after which a topic deletes records; None means no limit."""

    time_ms: int | None = None
    size_bytes: int | None = None

    @classmethod
    def of(cls, *, cleanup_policy: str, retention_ms: int, retention_bytes: int) -> TopicRetention:
        """Return the limits of a topic's settings. There are none unless `cleanup.policy` names `delete`."""
        if "delete" not in (word.strip() for word in cleanup_policy.split(",")):
            return cls()
        return cls(retention_ms if retention_ms >= 0 else None, retention_bytes if retention_bytes >= 0 else None)


@dataclass(frozen=True, slots=True)
class Figures:
    """The state of one position. None means not known yet."""

    committed: int | None
    log_start: int
    end: int
    lag: int | None
    """Records from the position on; from the log start, where the position lies below it. See `is_counted`."""
    lost: int
    """Offsets between the position and the log start: deleted before the group read them."""
    beyond: int
    """How far the position lies beyond the end of the log."""
    lag_s: float | None
    consumed_per_s: float | None
    produced_per_s: float | None
    time_to_loss_s: float | None
    """Time until retention reaches the position, at the present rates."""
    span_ms: int
    """The time over which rates were measured."""
    waiting_ms: int
    """How long records were unread while the position did not move."""
    lag_trend: int
    """Since the group last was caught up: 1 if the lag rose from its lowest to its highest, -1 if it shrank, else 0."""
    trend_ms: int
    """The time over which the trend was measured."""
    is_counted: bool = False
    """Whether `lag` counts records. If not, it counts offsets, and some offsets may have no record."""
    undecided: int = 0
    """Records after those that belong to open transactions, or that wait for one."""


def figures(window: Window, retention: TopicRetention) -> Figures:
    """Compute the figures of a window with at least one sample."""
    last = window.last
    has_position = last.committed != NO_POSITION
    lag = unread(last) if has_position else None
    consumed, produced = _rate(window, "committed"), _rate(window, "end")
    trend, trend_ms = _lag_trend(window) if has_position else (0, 0)
    return Figures(
        committed=last.committed if has_position else None,
        log_start=last.log_start,
        end=last.end,
        lag=lag,
        lost=max(0, last.log_start - last.committed) if has_position else 0,
        beyond=max(0, last.committed - last.end),
        lag_s=_age_s(last, lag),
        consumed_per_s=consumed if has_position else None,
        produced_per_s=produced,
        time_to_loss_s=_time_to_loss_s(window, retention, lag),
        span_ms=window.span_ms,
        waiting_ms=window.waiting_ms(),
        lag_trend=trend,
        trend_ms=trend_ms,
        is_counted=has_position and last.records != UNKNOWN,
        undecided=last.undecided,
    )


def unread(sample: Sample) -> int:
    """Return the lag of a position: records where the leader counted them, else offsets from the log start on."""
    if sample.records != UNKNOWN:
        return sample.records
    return max(0, sample.end - max(sample.committed, sample.log_start))


def _age_s(sample: Sample, lag: int | None) -> float | None:
    if lag is None:
        return None
    if lag == 0:
        return 0.0
    return None if sample.age_ms == UNKNOWN else max(0, sample.age_ms) / 1000


def _rate(window: Window, field: str) -> float | None:
    if window.span_ms < RATE_SPAN_MS_MIN:
        return None
    first, last = window.samples[0], window.last
    if first.committed == NO_POSITION:
        # The position was first committed within the window.
        known = [sample for sample in window.samples if sample.committed != NO_POSITION]
        first = known[0] if known and field == "committed" else first
        if last.at_ms - first.at_ms < RATE_SPAN_MS_MIN:
            return None
    moved: int = getattr(last, field) - getattr(first, field)
    return moved * 1000 / (last.at_ms - first.at_ms)


def _lag_trend(window: Window) -> tuple[int, int]:
    """Return the trend of the lag since the reader last was at the end, and the time that it covers."""
    since: list[Sample] = []
    for sample in reversed(window.samples):
        if sample.committed == NO_POSITION or not sample.lag:
            break
        since.append(sample)
    if not since:
        return 0, 0
    lags = _lags(since[::-1])
    span_ms = since[0].at_ms - since[-1].at_ms
    if lags[-1] < lags[0]:
        return -1, span_ms
    # A growing lag may shrink between two samples, because commits come in steps.
    grew = lags[0] == min(lags) < max(lags) == lags[-1]
    return int(grew), span_ms


def _lags(samples: Sequence[Sample]) -> list[int]:
    """Return the lags in records if all were counted, else in offsets, because the two must not be compared."""
    if all(sample.records != UNKNOWN for sample in samples):
        return [sample.records for sample in samples]
    return [sample.offsets for sample in samples]


def _time_to_loss_s(window: Window, retention: TopicRetention, lag: int | None) -> float | None:
    """Return the time until the record at the position is deleted, at the present rates of reads and writes."""
    last = window.last
    if lag is None:
        return None
    if last.committed < last.log_start:
        return 0.0
    if lag == 0:
        return NEVER
    times = [_until_too_old_s(window, retention.time_ms), _until_too_large_s(window, retention.size_bytes)]
    known = [time_s for time_s in times if time_s is not None]
    # A limit with an unknown time may be the first that is reached.
    if len(known) < len(times) and min(known, default=NEVER) == NEVER:
        return None
    return min(known)


def _until_too_old_s(window: Window, limit_ms: int | None) -> float | None:
    if limit_ms is None:
        return NEVER
    last = window.last
    if last.age_ms == UNKNOWN:
        return None
    # The age of a position that does not move grows by a second each second; of one that moves, by less.
    growth = _growth(window, "age_ms")
    growth_per_s = 1000.0 if growth is None else min(growth, 1000.0)
    return _until_s(limit_ms - last.age_ms, growth_per_s if growth_per_s > 1000.0 * GROWTH_SHARE_MIN else 0.0)


def _until_too_large_s(window: Window, limit_bytes: int | None) -> float | None:
    if limit_bytes is None:
        return NEVER
    last = window.last
    if last.size_bytes == UNKNOWN:
        return None
    if last.size_bytes >= limit_bytes:
        return 0.0
    growth, lag_growth, produced = _growth(window, "size_bytes"), _growth(window, "offsets"), _rate(window, "end")
    if growth is None or lag_growth is None or produced is None:
        return None
    return _until_s(limit_bytes - last.size_bytes, growth if lag_growth > produced * GROWTH_SHARE_MIN else 0.0)


def _growth(window: Window, field: str) -> float | None:
    """Return the growth of a figure per second, from the first sample that has it to the last."""
    last = window.last
    first = next(
        (each for each in window.samples if getattr(each, field) != UNKNOWN and each.committed != NO_POSITION), last
    )
    elapsed_ms = last.at_ms - first.at_ms
    if elapsed_ms < RATE_SPAN_MS_MIN:
        return None
    grown: int = getattr(last, field) - getattr(first, field)
    return grown * 1000 / elapsed_ms


def _until_s(room: float, growth_per_s: float) -> float:
    if room <= 0:
        return 0.0
    return room / growth_per_s if growth_per_s > 0 else NEVER
