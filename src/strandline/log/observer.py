"""Who learns of every batch in a log, and keeps snapshots of what it learnt: a partition's producers."""

from __future__ import annotations

from typing import Protocol

from strandline.codec.record_batch import Buffer, HeaderFields
from strandline.log.segment.transaction_index import AbortedTransaction


class BatchObserver(Protocol):
    def note_header(self, header: HeaderFields, now_ms: int) -> None:
        """Take note of a batch of records, which was appended at `now_ms` or before."""

    def note_marker(self, header: HeaderFields, batch: Buffer, now_ms: int) -> AbortedTransaction | None:
        """Take note of a control batch that has a producer; return what it aborted."""

    @property
    def is_blank(self) -> bool:
        """Whether a snapshot would say nothing."""

    def snapshot(self) -> bytes: ...
    def restore(self, data: bytes, now_ms: int) -> None: ...
    def clear(self) -> None: ...
