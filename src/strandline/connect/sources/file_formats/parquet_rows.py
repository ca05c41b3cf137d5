"""Rows of Parquet files as structs. The position is the number of a row group, `row` that of a row within it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.connect.failures import ConnectFailed
from strandline.connect.schema import Schema
from strandline.connect.sources.file_formats.arrow_types import plain_schema, struct_of
from strandline.connect.sources.file_formats.byte_source import ByteSource, SeekableBytes, checksum
from strandline.connect.sources.file_formats.format_config import POSITION, ROW, FileChunk, FormatConfig

_MAGIC: Final = b"PAR1"
_SIZE_MIN: Final = 12
_FOOTER_BYTES: Final = 1024


class ParquetReader:
    """Reads row groups. A file counts when its footer is written, and is not expected to change then."""

    def __init__(self, source: ByteSource, config: FormatConfig) -> None:
        self._source = source
        self._config = config
        self._file: pq.ParquetFile | None = None
        self._plain: pa.Schema | None = None
        self._schema: Schema | None = None
        self._group = -1
        self._row = 0
        self._batches: Iterator[pa.RecordBatch] = iter(())

    def read(self, offset: Mapping[str, Any], *, is_final: bool) -> Sequence[FileChunk]:
        """Return some rows of one row group."""
        if self._file is None and not self._open(is_final=is_final):
            return ()
        try:
            return self._read(offset[POSITION], offset.get(ROW, 0))
        except (pa.ArrowException, OSError) as error:
            raise ConnectFailed(f"{self._source.name} at row group {offset[POSITION]}: {_line(error)}") from None

    def _read(self, group: int, row: int) -> Sequence[FileChunk]:
        assert self._file is not None
        groups = self._file.metadata.num_row_groups
        while group < groups:
            rows = self._file.metadata.row_group(group).num_rows
            if row < rows:
                values = self._next(group, row).cast(self._plain, safe=False).to_pylist(maps_as_pydicts="strict")
                row += len(values)
                self._row = row
                behind = {POSITION: group, ROW: row} if row < rows else {POSITION: group + 1}
                return [FileChunk(values, behind, self._schema)]
            group, row = group + 1, 0
        return ()

    def _next(self, group: int, row: int) -> pa.RecordBatch:
        """Return the batch of rows from here on; go on in the row group that is open, if it is this one."""
        assert self._file is not None
        if (group, row) != (self._group, self._row):
            self._batches = self._file.iter_batches(self._config.batch_size, row_groups=[group])
            self._group, self._row = group, 0
        while True:
            batch = next(self._batches)
            if self._row + batch.num_rows > row:
                return batch.slice(row - self._row)
            self._row += batch.num_rows

    def _open(self, *, is_final: bool) -> bool:
        size = self._source.size()
        if size < _SIZE_MIN or self._source.read_at(size - len(_MAGIC), len(_MAGIC)) != _MAGIC:
            if is_final:
                raise ConnectFailed(f"{self._source.name} is not a complete Parquet file")
            return False
        try:
            self._file = pq.ParquetFile(pa.PythonFile(SeekableBytes(self._source), mode="r"), pre_buffer=True)
            self._plain = plain_schema(self._file.schema_arrow)
            self._schema = struct_of(self._plain)
        except (pa.ArrowException, OSError) as error:
            raise ConnectFailed(f"{self._source.name} cannot be read as Parquet: {_line(error)}") from None
        return True

    def holds(self, offset: Mapping[str, Any]) -> bool:
        """Return True: the fingerprint is that of the whole file."""
        return True

    def fingerprint(self, offset: Mapping[str, Any]) -> str:
        """Return the size and a checksum of the footer, which names every column chunk."""
        size = self._source.size()
        length = min(size, _FOOTER_BYTES)
        return f"{size:x}-{checksum(self._source, size - length, length)}"


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0]
