"""Removing the files of segments that were cut off the front of a log."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.log.maintenance.segment_deletion import TrimmedSegments
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.segment import Segment


def trim_now(log: PartitionLog, start_offset: int) -> None:
    """Remove all records below `start_offset`, and at once the files of segments that hold no others."""
    epochs_start = list(log.leader_epochs.start_offsets)
    for segment in log.cut_front(start_offset):
        segment.delete()
    if log.leader_epochs.start_offsets != epochs_start:
        log.save_leader_epochs()


def remove_segments(log: PartitionLog, segments: Sequence[Segment]) -> None:
    """Have the files removed of segments that `cut_front` returned: by the owner of the log, or else at once."""
    if log.on_trimmed is None:
        for segment in segments:
            segment.delete()
    elif segments:
        if log.trimmed is None:
            log.trimmed = TrimmedSegments()
        for segment in segments:
            segment.begin_delete(log.remove_files)
        log.trimmed.add(segments)
        log.on_trimmed(log)
