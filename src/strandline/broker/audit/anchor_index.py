"""The last anchor of each partition, as the lines of the audit topic say: for leaders that go on with a chain."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final
from uuid import UUID

from strandline.codec.columns import columns_of
from strandline.partition.partition import Partition
from strandline.security.audit.chain import ANCHOR, Anchor, anchor_of

READ_BYTES: Final = 64 * 1024
PLACES_MAX: Final = 100_000
"""Partitions whose last anchor is remembered; then those that were anchored longest ago are forgotten."""
_MARK: Final = f'"type":"{ANCHOR}"'.encode()


class AnchorIndex:
    """The anchors among the committed lines of one replica of the audit topic, read once and then what is new."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.last: dict[tuple[UUID, int], Anchor] = {}
        self._offset = 0

    def read_on(self) -> Iterator[None]:
        """Read what is new, one piece after the other. Several callers may do that at the same time."""
        partition = self.partition
        while (offset := max(self._offset, partition.log_start_offset)) < partition.high_watermark:
            piece = partition.log.read(offset, size_bytes_max=READ_BYTES, limit_offset=partition.high_watermark)
            if piece is None:
                return
            try:
                data = piece.read()
            finally:
                piece.release()
            for columns in columns_of(data):
                for record in columns.records():
                    if record.value is not None and _MARK in record.value:
                        self._take(record.value)
                self._offset = columns.last_offset + 1
            yield

    def _take(self, line: bytes) -> None:
        try:
            anchor = anchor_of(json.loads(line))
        except ValueError:
            return
        if anchor is None:
            return
        known = self.last.pop(anchor.place, None)
        if known is not None and not anchor.begins and known.offset > anchor.offset:
            # A leader that was deposed wrote late.
            anchor = known
        self.last[anchor.place] = anchor
        if len(self.last) > PLACES_MAX:
            del self.last[next(iter(self.last))]
