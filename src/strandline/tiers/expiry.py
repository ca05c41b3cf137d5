"""Which segments leave the store: past retention, below the log start, or of no present leader.

Retention takes the oldest segments of the leader's lineage, in order, up to the first that stays. Times are those of
the records, by the same rule as for a local log.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from strandline.config.topic_config import TopicConfig
from strandline.log.leader_epochs import LeaderEpochs
from strandline.tiers.lineage import is_in_lineage
from strandline.tiers.records import RemoteSegment


class Expiry(NamedTuple):
    """What is to leave the store."""

    log_start_offset: int
    """Where the log starts afterwards. This is written down before anything is deleted."""
    segments: tuple[RemoteSegment, ...]


def expired(
    readable: Sequence[RemoteSegment],
    *,
    leader: LeaderEpochs,
    config: TopicConfig,
    log_start_offset: int,
    log_end_offset: int,
    local_only_bytes: int,
    now_ms: int,
) -> Expiry:
    """Return the segments that leave now. `local_only_bytes` is the size of what the store does not have."""
    lineage = [segment for segment in readable if is_in_lineage(segment, log_end_offset, leader)]
    start_offset, going = log_start_offset, []
    keeps_all = "delete" not in config.cleanup_policy
    bytes_from = _sizes(lineage) if config.retention_bytes >= 0 else None
    for segment in lineage:
        is_below = segment.end_offset < log_start_offset
        if not is_below:
            if keeps_all:
                break
            behind = -1 if bytes_from is None else bytes_from(segment.end_offset + 1) + local_only_bytes
            is_too_much = behind >= config.retention_bytes >= 0
            is_too_old = 0 <= config.retention_ms < now_ms - segment.max_timestamp_ms and segment.max_timestamp_ms >= 0
            is_locked = 0 < config.retention_lock_ms >= now_ms - segment.max_timestamp_ms
            if is_locked or not (is_too_much or is_too_old):
                break
            start_offset = max(start_offset, segment.end_offset + 1)
        going.append(segment)
    first_epoch = leader.epochs[0] if leader.epochs else None
    if first_epoch is not None:
        # What an unclean election took back, of epochs that the leader's log does not reach any more.
        going += [segment for segment in readable if segment not in going and segment.epochs[-1][0] < first_epoch]
    return Expiry(start_offset, tuple(going))


def _sizes(lineage: Sequence[RemoteSegment]) -> Callable[[int], int]:
    """Return a function of an offset: the bytes of the segments from there on.

    Two leaders may have copied the same records. They count once, or `retention.bytes` would delete too much.
    """
    ordered = sorted(lineage, key=lambda each: (each.start_offset, -each.end_offset))
    starts = [each.start_offset for each in ordered]
    sizes = [0] * (len(ordered) + 1)
    for at in range(len(ordered) - 1, -1, -1):
        sizes[at] = ordered[at].size_bytes + sizes[bisect_right(starts, ordered[at].end_offset)]
    return lambda offset: sizes[bisect_left(starts, offset)]
