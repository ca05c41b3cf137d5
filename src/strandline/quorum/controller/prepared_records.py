"""Many records of one decision, encoded and made ready for an image a slice at a time.

A topic of 10,000 partitions is one batch of the metadata log, because a reader must see all of it or nothing. To encode
10,000 records and to fold them takes longer than the loop may be kept. So both are done before the decision is made:
what is left for the turn that decides and appends is to join slices, and to link a list into the image.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from strandline.codec.columns import Record, batch_of_slices, encode_batch, encode_values
from strandline.codec.internal_records import encode_metadata_record
from strandline.codec.messages.partition_record import PartitionRecord
from strandline.quorum.image.parts import PartitionRun, partition_image

RECORDS_PER_SLICE: Final = 100
"""Records that are made, encoded and made ready before the clock is looked at again: about 3 ms."""


class PreparedRecords(list[Any]):
    """Records of one decision; `prepare` is called whenever some were appended, and after the last."""

    def __init__(self, records: Iterable[Any] = ()) -> None:
        super().__init__(records)
        self.folds: list[Any] = []
        """What `ClusterImage.apply` is given in place of the records."""
        self._slices: list[bytes] = []
        self._prepared = 0

    def prepare(self) -> None:
        """Encode what was appended since the last call, and make it ready for an image."""
        added = self[self._prepared :]
        self._slices.append(encode_values(map(encode_metadata_record, added), self._prepared))
        add_folds(self.folds, added)
        self._prepared = len(self)

    def batch(self, now_ms: int) -> bytes:
        assert self._prepared == len(self), "records were appended after the last slice"
        return batch_of_slices(self._slices, len(self), now_ms)


def encoded(records: list[Any], now_ms: int) -> bytes:
    """Return the batch of `records`, which is at hand if they are prepared."""
    if isinstance(records, PreparedRecords):
        return records.batch(now_ms)
    return encode_batch([Record(timestamp_ms=now_ms, value=encode_metadata_record(record)) for record in records])


def folds_of(records: list[Any]) -> list[Any]:
    """Return what an image is given for `records`: themselves, unless they are prepared."""
    return records.folds if isinstance(records, PreparedRecords) else records


def add_folds(folds: list[Any], records: Iterable[Any]) -> None:
    """Append `records` to `folds`, new partitions of a topic that follow each other as one run."""
    run = folds[-1] if folds and type(folds[-1]) is PartitionRun else None
    for record in records:
        if type(record) is not PartitionRecord:
            run = None
            folds.append(record)
            continue
        if run is None or run.topic_id != record.topic_id or run.end != record.partition_id:
            run = PartitionRun(record.topic_id, record.partition_id, [])
            folds.append(run)
        run.partitions.append(partition_image(record))
