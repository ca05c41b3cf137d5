"""The records of a batch, a share at a time: a batch may hold millions, and the loop must serve others."""

from __future__ import annotations

from array import array

from strandline.codec.columns import _scan
from strandline.codec.compression import Buffer
from strandline.codec.record_batch import LOG_APPEND_TIME, RECORD_SIZE_MIN, BatchHeader
from strandline.errors import CorruptBatch

_COMPILED = _scan.is_compiled()


class RecordScan:
    """Walks the records of a batch, at most `records_max` at a step; takes memory for the rows of one step only."""

    def __init__(self, header: BatchHeader, payload: Buffer, *, records_max: int) -> None:
        if header.record_count * RECORD_SIZE_MIN > len(payload):
            raise CorruptBatch(f"{header.record_count} records cannot lie in {len(payload)} bytes")
        self._header = header
        # Plain Python indexes bytes faster than a view.
        self._payload = payload if _COMPILED else bytes(payload)
        self._position = 0
        self._left = header.record_count
        rows = min(records_max, self._left)
        self._rows = rows
        self._count = 0
        self._wide = array("q", bytes(8 * 2 * rows))
        self._narrow = array("i", bytes(4 * 6 * rows))

    @property
    def has_more(self) -> bool:
        return self._left > 0

    def step(self) -> None:
        """Scan the next records. Raise CorruptBatch for a malformed record, or if bytes are left after the last."""
        count = self._count = min(self._rows, self._left)
        header, size = self._header, len(self._payload)
        try:
            self._position = _scan.scan_records(
                self._payload,
                self._position,
                size,
                count,
                header.base_offset,
                header.last_offset_delta,
                0 if header.attributes & LOG_APPEND_TIME else header.base_timestamp,
                self._wide,
                self._narrow,
            )
        except IndexError as error:
            raise CorruptBatch(f"the batch at offset {header.base_offset} ends within a record") from error
        self._left -= count
        if not self._left and self._position != size:
            raise CorruptBatch(f"{size - self._position} bytes follow the records that the header counts")

    @property
    def offsets(self) -> array[int]:
        """Of the records of the last step, like everything below."""
        return self._wide[: self._count]

    @property
    def timestamps(self) -> array[int]:
        if self._header.attributes & LOG_APPEND_TIME:
            return array("q", (self._header.max_timestamp,)) * self._count
        return self._wide[self._count : 2 * self._count]

    @property
    def key_lengths(self) -> array[int]:
        """-1 stands for null."""
        return self._narrow[self._count : 2 * self._count]
