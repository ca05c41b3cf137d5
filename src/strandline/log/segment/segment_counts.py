"""The counts of a segment's records through its life: made with it, grown by what is not plain, written, found again.

A segment that this process began knows its counts from the first batch on, and those of a plain one are nothing. They
go into their file when the segment is sealed or closed. One that was found without a sound file has None until a search
asks: then `counting` walks over its headers.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from strandline.codec.record_batch import PREFIX_SIZE, HeaderFields
from strandline.errors import CorruptLog
from strandline.log.disk import Disk
from strandline.log.segment.record_counts import COUNTS_SUFFIX, CountsBuilder, RecordCounts, records_in

log = logging.getLogger("strandline.log")


class CountedSegment(Protocol):
    """A segment, with what its counts need of it."""

    base_offset: int
    path: Path
    disk: Disk
    size_bytes: int
    is_active: bool
    counts: RecordCounts | None
    delivered: CountsBuilder | None


def count_marker(segment: CountedSegment, offset: int, size_bytes: int) -> None:
    """Count the marker that was appended last."""
    counts = _growing(segment)
    if counts is not None:
        counts.note(segment.size_bytes - size_bytes, size_bytes, offset, offset, 0)


def count_run(segment: CountedSegment, headers: Sequence[HeaderFields], size_bytes: int, next_offset: int) -> None:
    """Count batches that were appended and are not all plain; `next_offset` is where the log had ended."""
    counts = _growing(segment)
    if counts is None:
        return
    position = segment.size_bytes - size_bytes
    for header in headers:
        base_offset, length, _, _, _, _, last_offset_delta, *_ = header
        size, last_offset, records = length + PREFIX_SIZE, base_offset + last_offset_delta, records_in(header)
        if base_offset != next_offset or records != last_offset_delta + 1:
            counts.note(position, size, next_offset, last_offset, records)
        next_offset = last_offset + 1
        position += size


def resume_counts(segment: CountedSegment, end_offset: int) -> None:
    """Prepare the counts of a segment that grows from `end_offset` on, after a restart or a truncation."""
    segment.delivered = None
    counts = segment.counts
    if counts is None or not counts.has_entries:
        counts = load_counts(segment)
    if counts is None or counts.excludes_aborted or counts.end_offset not in (None, end_offset):
        # Behind a truncation, transactions may be decided differently.
        segment.counts = None
        return
    counts.end_offset = None
    segment.counts = counts


def cut_counts(segment: CountedSegment, position: int) -> None:
    """Drop the counts behind `position`, where the segment was truncated."""
    segment.delivered = None
    if segment.counts is not None and segment.counts.last.position > position:
        segment.counts = None
    # If the segment grew to the old size again, the file would be taken for valid.
    segment.disk.remove(segment.path.with_suffix(COUNTS_SUFFIX))


def save_counts(segment: CountedSegment) -> None:
    """Write the file of a segment that does not grow from here on; without counts there is none."""
    counts = segment.counts
    if counts is not None and counts.has_entries:
        if segment.is_active:
            counts.end_offset = None
        write_counts(segment, counts, segment.path)


def write_counts(segment: CountedSegment, counts: RecordCounts, path: Path) -> None:
    """Keep counts for the next time. `path` is that of the `.log`: the segment's own may change during a thread."""
    data = counts.to_bytes(segment.size_bytes)
    try:
        file = segment.disk.open(path.with_suffix(COUNTS_SUFFIX), create=True)
        try:
            file.truncate(len(data))
            file.write_at(0, data)
        finally:
            file.close()
    except OSError as error:
        # After a full disk the next count takes longer, but no roll or clean stop fails.
        log.info("%s: what was counted is not kept: %s", path, error)


def load_counts(segment: CountedSegment) -> RecordCounts | None:
    """Return the counts as the file has them; None if there is no sound one of this segment. Waits for the disk."""
    named = segment.path
    path = named.with_suffix(COUNTS_SUFFIX)
    try:
        if not segment.disk.exists(path):
            return None
        data = segment.disk.read_whole(path)
        counts = RecordCounts.parse(data, base_offset=segment.base_offset, size_bytes=segment.size_bytes)
    except (CorruptLog, OSError) as error:
        # It can be made again from the log itself.
        log.info("%s is not used: %s", path, error)
        return None
    # In a thread, while the loop may replace the segment: then the name is another segment's.
    return counts if segment.path is named else None


def count_hole(segment: CountedSegment, end_offset: int, next_offset: int) -> None:
    """Count the hole between the segment's last batch and `next_offset`, where the log goes on."""
    counts = _growing(segment) if end_offset < next_offset else None
    if counts is not None:
        counts.note(segment.size_bytes, 0, end_offset, next_offset - 1, 0)


def _growing(segment: CountedSegment) -> RecordCounts | None:
    """Return the counts of a segment that grows; None, from here on, if their entries were dropped with its file."""
    if segment.counts is not None and not segment.counts.has_entries:
        segment.counts = None
    return segment.counts
