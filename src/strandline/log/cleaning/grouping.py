"""Which segments become one: neighbours that fit into a segment together, so that cleaned logs do not fray."""

from __future__ import annotations

from strandline.log.cleaning.job import CleaningJob, SourceSegment
from strandline.log.disk import Disk
from strandline.log.rolling import RELATIVE_OFFSET_MAX
from strandline.log.segment.file_names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, file_stem


def group_segments(job: CleaningJob, disk: Disk, clean_up_to: int) -> list[list[SourceSegment]]:
    """The segments that begin below `clean_up_to`, grouped by size of log and indexes and by range of offsets."""
    groups: list[list[SourceSegment]] = []
    used = [0, 0, 0]
    for segment in job.segments:
        if segment.base_offset >= clean_up_to:
            break
        stem = file_stem(segment.base_offset)
        sizes = [
            segment.size_bytes,
            *(_size(disk, job, stem + suffix) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)),
        ]
        sums = [before + size for before, size in zip(used, sizes, strict=True)]
        if (
            groups
            and sums[0] <= job.segment_bytes
            and max(sums[1:]) <= job.segment_index_bytes
            and segment.end_offset - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX
        ):
            groups[-1].append(segment)
            used = sums
        else:
            groups.append([segment])
            used = sizes
    return groups


def _size(disk: Disk, job: CleaningJob, name: str) -> int:
    path = job.directory / name
    return disk.size(path) if disk.exists(path) else 0
