"""Who learns of every batch in a log, and keeps snapshots of what it learnt: a partition's producers."""

from __future__ import annotations

from typing import Protocol

from strandline.codec.record_batch import Buffer, HeaderFields
from strandline.log.transaction_index import AbortedTransaction


class BatchObserver(Protocol):
    def note_header(self, header: HeaderFields) -> None:
        """Of a batch of records."""

    def note_marker(self, header: HeaderFields, batch: Buffer) -> AbortedTransaction | None:
        """Of a control batch that has a producer, whole; what it aborted."""

    def snapshot(self) -> bytes: ...
    def restore(self, data: bytes) -> None: ...
    def clear(self) -> None: ...
