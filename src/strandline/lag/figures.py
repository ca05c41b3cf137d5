"""Lag, rates and the time until unread records are deleted, out of the window of one position.

Retention deletes whole segments, and only those that are not written to any more. So records live longer than the
figures here say, by up to a segment, and never shorter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from strandline.lag.samples import NO_POSITION, UNKNOWN, Sample, Window

NEVER: Final = math.inf
"""The time until something happens that will not, as things go."""

RATE_SPAN_MS_MIN: Final = 1_000
"""Two looks that lie closer together say nothing of a rate."""
GROWTH_SHARE_MIN: Final = 0.02
"""A reader that keeps up but for this share of what is written keeps up: it commits a little earlier or later."""


@dataclass(frozen=True, slots=True)
class TopicRetention:
    """How long a topic keeps records; None where there is no limit."""

    time_ms: int | None = None
    size_bytes: int | None = None

    @classmethod
    def of(cls, *, cleanup_policy: str, retention_ms: int, retention_bytes: int) -> TopicRetention:
        """From a topic's settings. Time and size delete nothing unless `cleanup.policy` names `delete`."""
        if "delete" not in (word.strip() for word in cleanup_policy.split(",")):
            return cls()
        return cls(retention_ms if retention_ms >= 0 else None, retention_bytes if retention_bytes >= 0 else None)


@dataclass(frozen=True, slots=True)
class Figures:
    """How one position is. None is what nobody could tell yet."""

    committed: int | None
    log_start: int
    end: int
    lag: int | None
    """Records from the position on; from the log start, where the position lies below it. See `is_counted`."""
    lost: int
    """Offsets between the position and the log start: deleted before anybody read them."""
    beyond: int
    """How far the position lies behind the end of the log, where no record is."""
    lag_s: float | None
    consumed_per_s: float | None
    produced_per_s: float | None
    time_to_loss_s: float | None
    """Until retention reaches the position, at the present rates."""
    span_ms: int
    """The time over which rates were seen."""
    waiting_ms: int
    """For how long records were unread while the position did not move."""
    lag_trend: int
    """Since it last was caught up: 1 if the lag was never lower than at first nor higher than now, -1 if it shrank."""
    trend_ms: int
    """The time over which that was seen."""
    is_counted: bool = False
    """Whether `lag` was counted, record by record. If not, it counts offsets, of which some may be no records."""
    undecided: int = 0
    """Records behind those, that a reader of committed ones gets or does not get: their transactions decide."""


def figures(window: Window, retention: TopicRetention) -> Figures:
    """What the samples of a window come to; there is at least one."""
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
    """Return the lag of a position: records where they were counted, else offsets from the first that is there on."""
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
        # It came into being within the window; before that nothing moved.
        known = [sample for sample in window.samples if sample.committed != NO_POSITION]
        first = known[0] if known and field == "committed" else first
        if last.at_ms - first.at_ms < RATE_SPAN_MS_MIN:
            return None
    moved: int = getattr(last, field) - getattr(first, field)
    return moved * 1000 / (last.at_ms - first.at_ms)


def _lag_trend(window: Window) -> tuple[int, int]:
    """Where the lag goes since the reader last was at the end, and how long that was watched."""
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
    # Commits come in steps, so a lag that grows may well shrink from one look to the next.
    grew = lags[0] == min(lags) < max(lags) == lags[-1]
    return int(grew), span_ms


def _lags(samples: Sequence[Sample]) -> list[int]:
    """In records where all of them were counted, else in offsets: from the one to the other nothing was read."""
    if all(sample.records != UNKNOWN for sample in samples):
        return [sample.records for sample in samples]
    return [sample.offsets for sample in samples]


def _time_to_loss_s(window: Window, retention: TopicRetention, lag: int | None) -> float | None:
    """Until the record at the position is deleted, if both sides go on as they did."""
    last = window.last
    if lag is None:
        return None
    if last.committed < last.log_start:
        return 0.0
    if lag == 0:
        return NEVER
    times = [_until_too_old_s(window, retention.time_ms), _until_too_large_s(window, retention.size_bytes)]
    known = [time_s for time_s in times if time_s is not None]
    # A limit of which nobody knows when it strikes may be the first to strike.
    if len(known) < len(times) and min(known, default=NEVER) == NEVER:
        return None
    return min(known)


def _until_too_old_s(window: Window, limit_ms: int | None) -> float | None:
    if limit_ms is None:
        return NEVER
    last = window.last
    if last.age_ms == UNKNOWN:
        return None
    # A reader that stands still ages by a second each second. One that moves ages slower, or grows younger.
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
    """By how much a figure grows each second, from the first sample that has it to the last."""
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
