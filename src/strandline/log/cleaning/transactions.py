"""Which transactions a cleaner is passing through, and what of them may go.

Records of an aborted transaction go at once. A marker must outlive the records of its transaction: as long as one batch
of it was met on the way, the marker stays, and so does the note in the index of aborted transactions. Only a marker
that no batch led to may be given a delete horizon, and go after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from strandline.codec.record_batch import BatchHeader
from strandline.codec.transaction_marker import TransactionMarker
from strandline.errors import CorruptLog
from strandline.log.cleaning.job import CannotClean, CleaningJob
from strandline.log.disk import Disk
from strandline.log.segment.file_names import TRANSACTION_INDEX_SUFFIX, file_stem
from strandline.log.segment.transaction_index import AbortedTransaction, TransactionIndex


def aborted_transactions(job: CleaningJob, disk: Disk) -> list[AbortedTransaction]:
    """Return all that have records in the job's segments, by their first offsets."""
    found: list[AbortedTransaction] = []
    for segment in job.segments:
        path = job.directory / (file_stem(segment.base_offset) + TRANSACTION_INDEX_SUFFIX)
        if segment.has_transaction_index and disk.exists(path):
            found += _entries(path, disk, segment.base_offset)
    found += job.aborted_later
    return sorted(found, key=lambda each: each.first_offset)


def _entries(path: Path, disk: Disk, base_offset: int) -> Iterable[AbortedTransaction]:
    try:
        index = TransactionIndex.parse(disk.read_whole(path), base_offset=base_offset)
    except CorruptLog as error:
        raise CannotClean(f"{path.name}: {error}") from error
    columns = index.producer_ids, index.first_offsets, index.last_offsets, index.stable_offsets
    return map(AbortedTransaction, *columns)


class PassedTransactions:
    """The transactions that are open at the point which the cleaner has come to."""

    def __init__(self, aborted: Iterable[AbortedTransaction], *, is_whole: bool = True) -> None:
        """`is_whole` is false if records of transactions may lie before those that the cleaner passes."""
        self._is_whole = is_whole
        self._to_come = list(aborted)[::-1]
        self._aborted: dict[int, AbortedTransaction] = {}
        self._met: set[int] = set()
        """Producers of which a batch was met since their last marker."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Return whether the records of this data batch were aborted. It counts as met."""
        if not header.is_transactional:
            return False
        self._met.add(header.producer_id)
        return self._aborted_at(header) is not None

    def close(self, header: BatchHeader, marker: TransactionMarker | None) -> tuple[bool, AbortedTransaction | None]:
        """A control batch: (whether nothing needs it any more, what the index of aborted transactions goes on to say).

        `marker` is None for one that ends no transaction, or whose record went in an earlier cleaning.
        """
        if marker is None:
            return header.record_count == 0, None
        aborted = self._aborted_at(header)
        self._aborted.pop(header.producer_id, None)
        was_met = header.producer_id in self._met or not self._is_whole
        self._met.discard(header.producer_id)
        return not was_met, aborted if was_met and not marker.is_commit else None

    def _aborted_at(self, header: BatchHeader) -> AbortedTransaction | None:
        last_offset = header.last_offset
        while self._to_come and self._to_come[-1].first_offset <= last_offset:
            begun = self._to_come.pop()
            self._aborted[begun.producer_id] = begun
        aborted = self._aborted.get(header.producer_id)
        # An entry ends with its marker, even if that is not here to say so.
        return aborted if aborted is not None and header.base_offset <= aborted.last_offset else None
