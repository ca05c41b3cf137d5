"""Compact a log: learn each key's last offset from its dirty part, then copy what stays, group by group.

As Kafka does it: the whole log up to the end of the dirty part is copied, since an old record may have been replaced by
a new one; a map that is full ends the dirty part early, and the next cleaning goes on there. Records without a key
are dropped and counted: a topic that was not always compacted may have some.
"""

from __future__ import annotations

from collections.abc import Callable

from strandline.log.cleaning.cleaned_segment import CleanedSegment
from strandline.log.cleaning.copying import GroupCopier
from strandline.log.cleaning.grouping import group_segments
from strandline.log.cleaning.job import CleanedGroup, CleaningJob, CleaningResult, SourceSegment
from strandline.log.cleaning.mapping import MapBuilder, make_sieve
from strandline.log.cleaning.reading import Pace
from strandline.log.cleaning.transactions import aborted_transactions
from strandline.log.disk import Disk


def clean(
    job: CleaningJob,
    disk: Disk,
    *,
    on_group: Callable[[CleanedGroup], None],
    is_stopped: Callable[[], bool],
    sleep: Callable[[float], None],
) -> CleaningResult:
    """Do the job. Each group's `.cleaned` files are complete and safe on disk before `on_group` is called.

    Raises CannotClean with a reason, CleaningStopped, or OSError as the disk gives it. Whatever ends it, the files of a
    group that was not reported are gone; the log's own files are never touched.
    """
    pace = Pace(job.io_bytes_per_s, is_stopped=is_stopped, sleep=sleep)
    sieve = make_sieve(job)
    aborted = aborted_transactions(job, disk)
    builder = MapBuilder(job, disk, sieve, aborted, pace)
    clean_up_to = builder.build()
    copier = GroupCopier(job, disk, sieve, aborted, pace, clean_up_to=clean_up_to)
    bytes_written = 0
    groups = group_segments(job, disk, clean_up_to)
    for group in groups:
        cleaned = clean_group(job, disk, group, copier, pace)
        bytes_written += cleaned.size_bytes
        on_group(cleaned)
    return CleaningResult(
        clean_up_to=clean_up_to,
        bytes_read=copier.bytes_read,
        bytes_written=bytes_written,
        records_read=sieve.records_sifted + copier.aborted_records + copier.control_records_read,
        records_kept=sieve.records_kept + copier.control_records_kept,
        map_entries=sieve.entries,
        map_entries_max=sieve.entries_max,
        map_bytes_read=builder.bytes_read,
        records_without_key=sieve.records_without_key,
        groups=len(groups),
    )


def clean_group(
    job: CleaningJob, disk: Disk, group: list[SourceSegment], copier: GroupCopier, pace: Pace
) -> CleanedGroup:
    """Write the `.cleaned` files of a group. Nothing is left of them if that fails."""
    target = CleanedSegment(job.directory, group, disk=disk, index_interval_bytes=job.index_interval_bytes, pace=pace)
    try:
        copier.copy(group, target)
        return target.finish()._replace(removed_below=copier.removed_below)
    except BaseException:
        target.remove()
        raise
    finally:
        target.close()
