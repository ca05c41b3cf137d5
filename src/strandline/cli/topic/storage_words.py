"""What becomes of a partition's log, in words: what is deleted and compacted next and when, what is damaged (pure).

The facts are those of DescribeStorage; `now_ms` is the clock of the broker that sent them, so that "in 3 h" is right
also on a machine whose clock is not.
"""

from __future__ import annotations

import re
import time
from typing import Final

from strandline.cli.common.plain_words import LONG_MAX, count, duration, size
from strandline.codec.messages.describe_storage_response import (
    DescribeStorageResponse,
    StoredDamage,
    StoredPartition,
    StoredSegment,
)
from strandline.lag.verdict import span

FOR_EVER: Final = 2**60
_ERRNO: Final = re.compile(r"\[Errno \d+\] ")


def offsets(base: int, end: int) -> str:
    """`0–1,203`: the first and the last offset of `base` up to `end`."""
    return f"{base:,}–{end - 1:,}" if end > base + 1 else f"{base:,}"


def clock(at_ms: int) -> str:
    """Format a moment by the clock of this machine; `?` if it is not known."""
    if at_ms < 0:
        return "?"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms / 1000))


def ago(at_ms: int, now_ms: int) -> str:
    return f"{_span_ms(now_ms - at_ms)} ago" if now_ms - at_ms >= 1000 else "just now"


def _span_ms(milliseconds: int) -> str:
    return span(max(1, milliseconds // 1000))


# Deletion


def deletion_words(part: StoredPartition, node: DescribeStorageResponse) -> str:
    """Return what retention takes next, one sentence without its end."""
    if "delete" not in part.cleanup_policy.split(","):
        return f"nothing is deleted by age or size: cleanup.policy is {part.cleanup_policy or 'empty'}"
    if is_without_limit(part.retention_ms) and is_without_limit(part.retention_bytes):
        return "nothing is deleted: neither retention.ms nor retention.bytes sets a limit"
    if not part.next_deletion_cause:
        return "nothing to delete: the log is empty" if not part.size_bytes else _nothing_yet(part)
    what = f"segment {offsets(part.next_deletion_base, part.next_deletion_end)} ({size(part.next_deletion_bytes)})"
    verb = "is rolled and deleted" if part.next_deletion_is_active else "is deleted"
    held = "; it waits until it is committed and flushed" if part.next_deletion_is_held else ""
    return f"{what} {verb} {_when_deleted(part, node)}{held}"


def _when_deleted(part: StoredPartition, node: DescribeStorageResponse) -> str:
    kept = duration(part.retention_ms)
    is_due = 0 <= part.next_deletion_ms <= node.now_ms
    if part.next_deletion_cause == "size":
        if is_due:
            return f"{_next_look(node)}: even without it the log has the {size(part.retention_bytes)} that are kept"
        return f"when {size(part.next_deletion_bytes_until)} more have come: {size(part.retention_bytes)} are kept"
    if is_due:
        return f"{_next_look(node)}: its newest record is older than {kept}"
    when = f"when its newest record is {kept} old"
    if part.next_deletion_ms >= 0:
        when = f"in {_span_ms(part.next_deletion_ms - node.now_ms)}, {when}"
    if part.next_deletion_bytes_until >= 0:
        when += f", or when {size(part.next_deletion_bytes_until)} more have come"
    return when


def is_without_limit(setting: int) -> bool:
    """-1 is Kafka's word for that, and 2^63-1 many people's."""
    return setting < 0 or setting >= FOR_EVER


def _nothing_yet(part: StoredPartition) -> str:
    if is_without_limit(part.retention_ms):
        return f"nothing before the log has more than {size(part.retention_bytes)}"
    return f"nothing before its records are {duration(part.retention_ms)} old"


def _next_look(node: DescribeStorageResponse) -> str:
    every = duration(node.retention_check_ms) if node.retention_check_ms > 0 else ""
    return f"at the next look (every {every})" if every else "at the next look"


# Compaction


def reason_words(reason: str | None) -> str:
    """Why something went wrong, without the number that only the operating system knows by heart."""
    return _ERRNO.sub("", reason) if reason else "no reason was given"


def is_compacted(part: StoredPartition) -> bool:
    return "compact" in part.cleanup_policy.split(",")


def compaction_words(part: StoredPartition, node: DescribeStorageResponse) -> str:
    """Return what the cleaner does next, and when."""
    if not is_compacted(part):
        return f"none: cleanup.policy is {part.cleanup_policy or 'empty'}"
    if part.cleaning_state == "off":
        return "the cleaner is off: log.cleaner.enable=false"
    if part.cleaning_state == "set aside":
        again = ""
        if part.retry_ms > node.now_ms:
            again = f"; it is tried again in {_span_ms(part.retry_ms - node.now_ms)}"
        return f"cleaning is set aside: {reason_words(part.cleaning_reason)}{again}"
    if part.cleaning_state == "cleaning":
        if part.cleaning_bytes_total > 0:
            share = max(0, part.cleaning_bytes) / part.cleaning_bytes_total
            return f"it is being cleaned: {share:.0%} of {size(part.cleaning_bytes_total)}"
        return "it is being cleaned"
    return _next_cleaning(part, node)


def _next_cleaning(part: StoredPartition, node: DescribeStorageResponse) -> str:
    if part.log_end_offset == part.clean_up_to or not part.size_bytes:
        return "nothing to clean: all of it is clean"
    if part.first_uncleanable <= part.clean_up_to:
        return f"nothing may be cleaned yet: {hindrance_words(part, node)}"
    words = f"{part.dirty_ratio:.0%} is dirty: cleaned {_when_cleaned(part, node)}"
    # That the active segment is not cleaned goes without saying.
    is_held = part.uncleanable_because not in ("", "active") and part.first_uncleanable < part.log_end_offset
    return f"{words}; {hindrance_words(part, node)}" if is_held else words


def _when_cleaned(part: StoredPartition, node: DescribeStorageResponse) -> str:
    least = max(part.dirty_ratio_min, 0.0)
    due = _due_words(part, node)
    if part.dirty_ratio > least or due == _NOW:
        return _next_round(node)
    words = f"when it is more than {least:.0%} (min.cleanable.dirty.ratio)"
    return f"{words}, or {due} (max.compaction.lag.ms)" if due else words


_NOW = "now"


def _due_words(part: StoredPartition, node: DescribeStorageResponse) -> str:
    if part.cleaning_due_ms < 0:
        return ""
    left_ms = part.cleaning_due_ms - node.now_ms
    return f"in {_span_ms(left_ms)}" if left_ms > 0 else _NOW


def _next_round(node: DescribeStorageResponse) -> str:
    if node.cleaner_backoff_ms > 0:
        return f"at the next look (every {duration(node.cleaner_backoff_ms)}), the dirtiest log first"
    return "at the next look, the dirtiest log first"


def hindrance_words(part: StoredPartition, node: DescribeStorageResponse) -> str:
    """Return what may not be cleaned yet, and why."""
    rest = f"offsets {offsets(part.first_uncleanable, part.log_end_offset)}"
    match part.uncleanable_because:
        case "transaction":
            return (
                f"{rest} wait for a transaction that is open since offset {part.last_stable_offset:,} "
                f"(`strandline txn why {part.topic}` says whose)"
            )
        case "lag":
            left_ms = part.uncleanable_until_ms - node.now_ms
            when = f"; the first of them may be cleaned in {_span_ms(left_ms)}" if left_ms > 0 else ""
            return f"{rest} are younger than min.compaction.lag.ms{when}"
        case "high watermark":
            return f"{rest} are not in all in-sync replicas yet"
        case "recovery point":
            return f"{rest} are not flushed yet"
        case _:
            return f"{rest} are in the active segment, which rolls {roll_words(part, node)}"


def roll_words(part: StoredPartition, node: DescribeStorageResponse) -> str:
    """Return when the active segment is closed."""
    ways = []
    if part.segment_bytes > 0:
        ways.append(f"at {size(part.segment_bytes)}")
    active = active_segment(part)
    if active is not None and active.first_timestamp_ms >= 0 and 0 < part.segment_ms < LONG_MAX:
        ways.append(_roll_time(active.first_timestamp_ms + part.segment_ms, node.now_ms))
    elif 0 < part.segment_ms < LONG_MAX:
        ways.append(f"when it is {duration(part.segment_ms)} old")
    return ", or ".join(ways)


def _roll_time(at_ms: int, now_ms: int) -> str:
    # As in Kafka a segment rolls by the time of the next record: without producers, it does not.
    if at_ms > now_ms:
        return f"with the first record after {clock(at_ms)[:16]}"
    return "with the next record"


def active_segment(part: StoredPartition) -> StoredSegment | None:
    return next((segment for segment in reversed(part.segments) if segment.is_active), None)


def cleaned_words(part: StoredPartition, node: DescribeStorageResponse) -> str:
    """Return what the last cleaning did; empty if there was none since the broker started."""
    if part.cleaned_ms < 0:
        return ""
    words = f"{ago(part.cleaned_ms, node.now_ms)}"
    if part.cleaned_bytes_before >= 0 and part.cleaned_bytes_after >= 0:
        words += f": {size(part.cleaned_bytes_before)} became {size(part.cleaned_bytes_after)}"
    if part.cleaned_records_before >= 0 and part.cleaned_records_after >= 0:
        words += f", {count(part.cleaned_records_before, 'record')} became {part.cleaned_records_after:,}"
    if part.cleaned_without_key:
        words += f"; {count(part.cleaned_without_key, 'record')} without a key removed"
    return words


# Segments and damage


def segment_state(part: StoredPartition, segment: StoredSegment) -> str:
    """`damaged` above all, `active`; `clean`, `partly clean` or `dirty`; `sealed` where nothing is compacted."""
    if any(_overlaps(damage, segment) for damage in part.damages):
        return "damaged"
    if segment.is_active:
        return "active"
    if not is_compacted(part) or part.clean_up_to < 0:
        return "sealed"
    if segment.end_offset <= part.clean_up_to:
        return "clean"
    return "partly clean" if segment.base_offset < part.clean_up_to else "dirty"


def _overlaps(damage: StoredDamage, segment: StoredSegment) -> bool:
    return damage.base_offset < segment.end_offset and segment.base_offset < max(
        damage.end_offset, damage.base_offset + 1
    )


def damage_words(damage: StoredDamage, node: DescribeStorageResponse) -> str:
    """Where, what, and what is done about it."""
    where = f"offsets {offsets(damage.base_offset, damage.end_offset)}"
    if damage.position >= 0:
        where += f", byte {damage.position:,} of the segment"
    state = f"; {damage.state}" if damage.state else ""
    found = f" (found {ago(damage.found_ms, node.now_ms)})" if damage.found_ms >= 0 else ""
    return f"{where}: {damage.what}{state}{found}"


def scrub_words(part: StoredPartition, node: DescribeStorageResponse) -> str:
    """Return when its files were last read again, and when that is next."""
    if part.scrubbed_ms < 0:
        return f"not read yet; every {duration(node.scrub_interval_ms)}"
    verb = "read" if part.damages else "read and found whole"
    left_ms = part.scrubbed_ms + node.scrub_interval_ms - node.now_ms
    again = f"again in {_span_ms(left_ms)}" if left_ms > 0 else "again soon"
    return f"{verb} {ago(part.scrubbed_ms, node.now_ms)}; {again}"
