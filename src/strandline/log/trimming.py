"""Removing the files of segments that were cut off the front of a log."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.log.maintenance.segment_deletion import Leaving
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
    if log.on_leaving is None:
        for segment in segments:
            segment.delete()
    elif segments:
        if log.leaving is None:
            log.leaving = Leaving()
        for segment in segments:
            segment.begin_delete(log.remove_files)
        log.leaving.add(segments)
        log.on_leaving(log)
