"""Who learns of every batch in a log, and keeps snapshots of what it learnt: a partition's producers."""

from __future__ import annotations

from typing import Protocol

from strandline.codec.record_batch import HeaderFields


class BatchObserver(Protocol):
    def note_header(self, header: HeaderFields) -> None: ...
    def snapshot(self) -> bytes: ...
    def restore(self, data: bytes) -> None: ...
    def clear(self) -> None: ...
