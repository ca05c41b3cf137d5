"""What `cleanup.policy=delete` says of a log: which segments at its front go now, and when the next one will.

Only whole segments, oldest first, up to the first that stays: by size, then by time, as Kafka does. A segment goes when
its newest record is older than `retention.ms`, whatever was read of it; by wall time, so records from the future stay
until their time has come and passed. `strandline.retention.lock.ms` keeps what size or time would let go. Nothing above
the high watermark goes, nor what the disk is not known to hold: a power cut in between could else leave a log that goes
back to offsets it gave away. The active segment is rolled first.

Nothing here changes a log or reads a file. The newest time of a segment that an earlier process filled is in its time
index: `segment_times` reads that in a thread, and until then the segment stays.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from strandline.config.topic_config import TopicConfig
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.segment import Segment

Because = Literal["time", "size"]


class RetentionDecision(NamedTuple):
    """What is to be done with a log now."""

    leaves: int = 0
    """Segments at the front that go."""
    start_offset: int = 0
    """Where the log starts without them."""
    rolls: bool = False
    """The active segment is to go, too: it is rolled first, and goes when it is on disk."""
    waits_for_flush: bool = False
    """More would go if the disk held it."""
    unknown: Segment | None = None
    """More may go: a thread is to find out the newest time of this one."""


KEEP = RetentionDecision()


class LocalPolicy(NamedTuple):
    """The limits of the local part of a tiered log."""

    retention_ms: int
    retention_bytes: int
    end_offset_max: int
    """No segment that ends above this offset goes: the store lacks it."""


class Outlook(NamedTuple):
    """What becomes of the oldest segment of a log, if nothing is appended."""

    next_segment_base: int
    next_segment_end: int
    """The first offset behind it."""
    next_segment_bytes: int
    is_active: bool
    """It is the last one, too: it is rolled when its time has come."""
    newest_ms: int | None
    """The time of its newest record, by which it is judged; None if that has not been read yet."""
    deletes_at_ms: int | None
    """From when on the policy lets it go, which may be past: the next look deletes it. None: never, by itself."""
    because: Because | None
    size_bytes: int
    """Of the whole log."""
    bytes_until: int | None
    """How much the log has to grow before `retention.bytes` lets the segment go; None where that is no limit."""
    is_held: bool
    """It lies above the high watermark, or is not known to be on disk: it stays for as long, whatever the policy."""


def newest_ms(segment: Segment) -> int | None:
    """The time by which a segment is judged: of its newest record, or of its last change where records have none.

    None if only the disk knows.
    """
    if segment.max_timestamp_ms >= 0:
        return segment.max_timestamp_ms
    read = segment.newest_read
    return read[1] if read is not None and read[0] == segment.size_bytes else None


def is_locked(segment: Segment, config: TopicConfig, now_ms: int) -> bool:
    """Return whether `strandline.retention.lock.ms` keeps a segment; also if its newest time is not known yet."""
    if not config.retention_lock_ms:
        return False
    newest = newest_ms(segment)
    return newest is None or now_ms - newest <= config.retention_lock_ms


def judge(
    log: PartitionLog, *, high_watermark: int, now_ms: int, policy: LocalPolicy | None = None
) -> RetentionDecision:
    """Return which segments are deleted now. `policy` is that of a tiered log, whose active segment stays."""
    config = log.config
    if "delete" not in config.cleanup_policy and policy is None:
        return KEEP
    segments, last = log.segments, len(log.segments) - 1
    retention_ms, retention_bytes, end_offset_max = policy or (
        config.retention_ms,
        config.retention_bytes,
        high_watermark,
    )
    end_offset_max = min(end_offset_max, high_watermark)
    excess = log.size_bytes() - retention_bytes if retention_bytes >= 0 else -1
    count, waits, unknown = 0, False, None
    while _end_of(log, count) <= end_offset_max:
        segment = segments[count]
        if count == last and (policy is not None or not segment.size_bytes):
            break
        if config.retention_lock_ms and (newest_ms(segment) is None or is_locked(segment, config, now_ms)):
            unknown = segment if newest_ms(segment) is None else None
            break
        if excess >= segment.size_bytes:
            excess -= segment.size_bytes
        else:
            # From the first that size lets stay, it is time alone that counts.
            excess = -1
            if retention_ms < 0:
                break
            newest = newest_ms(segment)
            if newest is None:
                unknown = segment
                break
            if now_ms - newest <= retention_ms:
                break
        if count == last:
            # It goes when what follows it is on disk: see above. Those before it go now: a full disk has no room for
            # another segment until they have.
            return RetentionDecision(count, log.base_offsets[count], rolls=True)
        if _end_of(log, count) > log.flushed_offset:
            waits = True
            break
        count += 1
    return RetentionDecision(count, log.base_offsets[count], waits_for_flush=waits, unknown=unknown)


def outlook(log: PartitionLog, *, high_watermark: int, now_ms: int) -> Outlook:
    """Return what becomes of the oldest segment."""
    config, segment = log.config, log.segments[0]
    size_bytes, newest = log.size_bytes(), newest_ms(segment)
    is_active = len(log.segments) == 1
    deletes_at_ms: int | None = None
    bytes_until: int | None = None
    because: Because | None = None
    if "delete" in config.cleanup_policy and (segment.size_bytes or not is_active):
        if config.retention_ms >= 0:
            because = "time"
            if newest is not None:
                deletes_at_ms = newest + config.retention_ms + 1
        if config.retention_bytes >= 0:
            bytes_until = max(0, config.retention_bytes + segment.size_bytes - size_bytes)
            if bytes_until == 0 and (deletes_at_ms is None or deletes_at_ms > now_ms):
                deletes_at_ms, because = now_ms, "size"
            elif because is None:
                because = "size"
        if deletes_at_ms is not None and config.retention_lock_ms:
            deletes_at_ms = None if newest is None else max(deletes_at_ms, newest + config.retention_lock_ms + 1)
    return Outlook(
        segment.base_offset,
        _end_of(log, 0),
        segment.size_bytes,
        is_active,
        newest,
        deletes_at_ms,
        because,
        size_bytes,
        bytes_until,
        is_held=_end_of(log, 0) > min(high_watermark, log.flushed_offset),
    )


def _end_of(log: PartitionLog, at: int) -> int:
    """Return the first offset behind segment `at`."""
    return log.base_offsets[at + 1] if at + 1 < len(log.segments) else log.log_end_offset
