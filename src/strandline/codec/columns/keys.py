"""Whether every record of a batch has a key: a walk that can be interrupted, because a batch may hold millions."""

from __future__ import annotations

from array import array

from strandline.codec.columns import _scan
from strandline.codec.compression import Buffer
from strandline.codec.record_batch import HeaderFields
from strandline.errors import CorruptBatch, InvalidBatch

_COMPILED = _scan.is_compiled()


class KeyScan:
    """Walks the records of a batch, `records_max` at a step; each step takes memory for its own rows only."""

    def __init__(self, header: HeaderFields, payload: Buffer, *, records_max: int) -> None:
        # Plain Python indexes bytes faster than a view.
        self._payload = payload if _COMPILED else bytes(payload)
        self._last_offset_delta = header[6]
        self._left = header[12]
        self._position = 0
        rows = min(records_max, self._left)
        self._rows = rows
        self._wide = array("q", bytes(8 * 2 * rows))
        self._narrow = array("i", bytes(4 * 6 * rows))

    def step(self) -> bool:
        """Look at the next records; whether there are more. InvalidBatch for one without a key, or that is none."""
        count = min(self._rows, self._left)
        size = len(self._payload)
        try:
            self._position = _scan.scan_records(
                self._payload,
                self._position,
                size,
                count,
                0,
                self._last_offset_delta,
                0,
                self._wide,
                self._narrow,
            )
        except (CorruptBatch, IndexError) as error:
            # The CRC is right, so the producer meant it: sending it again would not help.
            raise InvalidBatch(f"the batch holds something else than records: {error}") from error
        if min(self._narrow[count : 2 * count]) < 0:
            raise InvalidBatch("a compacted topic takes no records without a key")
        self._left -= count
        if not self._left and self._position != size:
            raise InvalidBatch(f"{size - self._position} bytes follow the records that the header counts")
        return self._left > 0
