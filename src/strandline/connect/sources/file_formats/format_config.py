"""Settings of formats, what a reader gives, and the batches made of it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol

from strandline.connect.config import Config, option
from strandline.connect.failures import RecordFailed
from strandline.connect.records import AnyBatch, Batch, SourceRecord, ValueBatch
from strandline.connect.schema import Schema

log = logging.getLogger("strandline.connect.files")

POSITION: Final = "position"
ROW: Final = "row"
FormatName = Literal["lines", "json", "csv", "parquet"]


def _empty(value: str) -> str | None:
    return None if value else "String must be non-empty"


def _one_character(value: str) -> str | None:
    return None if len(value) == 1 and value not in '"\r\n' else "it is one character, and no quote"


class FormatConfig(Config):
    """Settings of sources that read files or objects."""

    topic: str = option("The topic to publish data to", importance="HIGH", check=_empty)
    format: FormatName = option(
        "What a file holds: `lines` of text, one `json` value per line, `csv` rows, or `parquet` rows.", default="lines"
    )
    batch_size: int = option("Records of one batch at most.", default=2000, low=1, importance="LOW")
    max_line_bytes: int = option("A longer line is an error, see `bad.lines`.", default=1 << 20, low=1)
    bad_lines: Literal["fail", "skip"] = option(
        "What to do with a line that is too long, not UTF-8, or not of the format: `fail` the task, or `skip` and log "
        "it. Rows of Parquet cannot be skipped.",
        default="fail",
    )
    key_field: str | None = option("The field of json, csv or parquet that is the record's key.", default=None)
    csv_columns: list[str] = option("Names of the columns; without them the first row has them.", default=[])
    csv_delimiter: str = option("What separates columns.", default=",", check=_one_character)
    csv_types: Literal["text", "infer"] = option(
        "Types of columns: all `text`, or `infer` each from the first thousand rows: int64, double, boolean or string.",
        default="text",
    )

    def check_all(self) -> Sequence[tuple[str, str]]:
        if self.key_field is not None and self.format == "lines":
            return [("key.field", "key.field needs the format json, csv or parquet: a line has no fields.")]
        if len(set(self.csv_columns)) < len(self.csv_columns):
            return [("csv.columns", "csv.columns has a name twice.")]
        return ()

    def failed(self, name: str, position: int, why: str) -> None:
        """Raise RecordFailed for what is at a position, or log it if bad lines are skipped."""
        message = f"{name} at position {position}: {why}"
        if self.bad_lines == "fail":
            raise RecordFailed(message)
        log.warning("%s; skipped", message)


class FileChunk(NamedTuple):
    """Some values, and the offset behind them."""

    values: Sequence[Any]
    offset: Mapping[str, Any]
    schema: Schema | None = None


class FormatReader(Protocol):
    """Reads one file or object."""

    def read(self, offset: Mapping[str, Any], *, is_final: bool) -> Sequence[FileChunk]:
        """Return what follows an offset, or some of it; nothing at the end.

        A last line without newline counts only if the file is final, which means that it will not grow.
        """

    def holds(self, offset: Mapping[str, Any]) -> bool:
        """Return whether the file is long enough to have this offset."""

    def fingerprint(self, offset: Mapping[str, Any]) -> str:
        """Return a checksum of what is before an offset: a file with another one is not the same file."""


def batch_of(
    chunk: FileChunk, config: FormatConfig, partition: Mapping[str, Any], offset: Mapping[str, Any] | None = None
) -> AnyBatch:
    """Return a batch of what was read."""
    offset = chunk.offset if offset is None else offset
    name = config.key_field
    if name is None:
        return ValueBatch(chunk.values, config.topic, partition, offset, chunk.schema)
    found = None if chunk.schema is None else chunk.schema.field(name)
    key_schema = None if found is None else found.schema
    records = [
        SourceRecord(
            config.topic,
            value,
            value.get(name) if isinstance(value, dict) else None,
            key_schema=key_schema,
            value_schema=chunk.schema,
        )
        for value in chunk.values
    ]
    return Batch(records, partition, offset)
