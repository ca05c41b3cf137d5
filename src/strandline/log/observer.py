"""The observer of a log: it learns from every batch and keeps snapshots. A partition's producers are one."""

from __future__ import annotations

from typing import Protocol

from strandline.codec.record_batch import Buffer, HeaderFields
from strandline.log.segment.transaction_index import AbortedTransaction


class BatchObserver(Protocol):
    def note_header(self, header: HeaderFields, now_ms: int) -> None:
        """Note a batch of records that was appended at `now_ms` or before."""

    def note_marker(self, header: HeaderFields, batch: Buffer, now_ms: int) -> AbortedTransaction | None:
        """Note a control batch of a producer. Return the transaction that it aborted."""

    @property
    def is_blank(self) -> bool:
        """Return whether a snapshot would be empty."""

    def snapshot(self) -> bytes: ...
    def restore(self, data: bytes, now_ms: int) -> None: ...
    def clear(self) -> None: ...
