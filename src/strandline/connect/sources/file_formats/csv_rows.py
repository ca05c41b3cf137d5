"""Rows of CSV as structs, with names from the first row or from the config."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from strandline.connect.failures import ConnectFailed
from strandline.connect.schema import ConnectType, Schema, SchemaField
from strandline.connect.sources.file_formats.byte_source import ByteSource
from strandline.connect.sources.file_formats.format_config import POSITION, FileChunk, FormatConfig
from strandline.connect.sources.file_formats.lines import BLOCK_BYTES, ByteOffsets, LineBlocks

TYPES: Final = "types"
"""The field of the offset with the types that were inferred, so that a restart has the same ones."""
INFERRED_ROWS_MAX: Final = 1000
_LONG: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,18})", re.ASCII)
_NUMBER: Final = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_BOOLEANS: Final = {"true": True, "false": False}
_OPEN_QUOTE: Final = "unexpected end of data"
"""What the parser says of a field whose quote is not closed."""


def _long(text: str) -> int:
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise ValueError(text)
    return number


def _boolean(text: str) -> bool:
    return _BOOLEANS[text.lower()]


_PARSERS: Final[Mapping[str, Callable[[str], Any]]] = {
    ConnectType.INT64: _long,
    ConnectType.FLOAT64: float,
    ConnectType.BOOLEAN: _boolean,
    ConnectType.STRING: str,
}


@dataclass
class _Rows:
    """Rows of a block, each with the position behind it."""

    rows: list[list[str]]
    ends: list[int]
    starts: list[int]
    end: int
    """The position behind everything that was parsed, skipped and empty lines too."""
    is_open: bool = False
    """Whether the block ends within a quoted field."""


class CsvReader(ByteOffsets):
    """Reads rows. A field in quotes may hold newlines."""

    def __init__(self, source: ByteSource, config: FormatConfig) -> None:
        super().__init__(source, config)
        self._blocks = LineBlocks(source, config, is_return_an_end=False)
        self._columns: Sequence[str] = config.csv_columns
        self._header_end = 0
        self._types: Sequence[str] = ()
        self._schema: Schema | None = None
        csv.field_size_limit(max(csv.field_size_limit(), config.max_line_bytes))

    def read(self, offset: Mapping[str, Any], *, is_final: bool) -> Sequence[FileChunk]:
        """Return the rows of one block."""
        if not self._columns and not self._read_header(is_final=is_final):
            return ()
        parsed = self._parsed(max(offset[POSITION], self._header_end), is_final=is_final)
        if not parsed.rows:
            return [FileChunk((), {**offset, POSITION: parsed.end})] if parsed.end > offset[POSITION] else ()
        parsed.ends[-1] = parsed.end
        if self._schema is None:
            self._take_types(offset.get(TYPES), parsed.rows)
        chunks, size = [], self.config.batch_size
        for first in range(0, len(parsed.rows), size):
            rows = parsed.rows[first : first + size]
            behind: dict[str, Any] = {POSITION: parsed.ends[first + len(rows) - 1]}
            if self.config.csv_types == "infer":
                behind[TYPES] = ",".join(self._types)
            chunks.append(FileChunk(self._values(rows, parsed.starts[first:]), behind, self._schema))
        return chunks

    def _read_header(self, *, is_final: bool) -> bool:
        parsed = self._parsed(0, is_final=is_final)
        if not parsed.rows:
            return False
        columns = [each.strip() for each in parsed.rows[0]]
        if "" in columns or len(set(columns)) < len(columns):
            raise ConnectFailed(f"the first row of {self.source.name} has an empty or a repeated name: set csv.columns")
        self._columns, self._header_end = columns, parsed.ends[0]
        return True

    def _take_types(self, stored: str | None, rows: Sequence[Sequence[str]]) -> None:
        types: Sequence[str] = stored.split(",") if stored else ()
        if self.config.csv_types == "text":
            types = [ConnectType.STRING] * len(self._columns)
        elif len(types) != len(self._columns):
            sample = [row for row in rows[:INFERRED_ROWS_MAX] if len(row) == len(self._columns)]
            types = [_inferred([row[index] for row in sample]) for index in range(len(self._columns))]
        self._types = types
        fields = (
            SchemaField(name, Schema(ConnectType(kind), optional=kind != ConnectType.STRING))
            for name, kind in zip(self._columns, types, strict=True)
        )
        self._schema = Schema(ConnectType.STRUCT, fields=tuple(fields))

    def _values(self, rows: Sequence[Sequence[str]], starts: Sequence[int]) -> list[dict[str, Any]]:
        columns, values = self._columns, []
        typed = [
            (name, _PARSERS[kind])
            for name, kind in zip(columns, self._types, strict=True)
            if kind != ConnectType.STRING
        ]
        for row, start in zip(rows, starts, strict=False):
            if len(row) != len(columns):
                self.config.failed(self.source.name, start, f"the row has {len(row)} columns instead of {len(columns)}")
                continue
            value: dict[str, Any] = dict(zip(columns, row, strict=True))
            if not typed or self._convert(value, typed, start):
                values.append(value)
        return values

    def _convert(self, value: dict[str, Any], typed: Sequence[tuple[str, Callable[[str], Any]]], start: int) -> bool:
        for name, parse in typed:
            text = value[name]
            try:
                value[name] = parse(text) if text else None
            except (ValueError, KeyError):
                kind = self._types[self._columns.index(name)]
                why = (
                    f"{text[:100]!r} in the column {name} is not of the inferred type {kind}; csv.types=text takes all"
                )
                self.config.failed(self.source.name, start, why)
                return False
        return True

    def _parsed(self, position: int, *, is_final: bool) -> _Rows:
        """Parse a block. It is read again and longer if it ends within its first row."""
        length = BLOCK_BYTES
        while True:
            start, data = self._blocks.read(position, is_final=is_final, length=length)
            parsed = self._parse(start, data, is_at_end=start + len(data) >= self.source.size() and is_final)
            if parsed.rows or not parsed.is_open or start + len(data) >= self.source.size():
                return parsed
            if len(data) > self.config.max_line_bytes:
                why = f"a quote is not closed within {self.config.max_line_bytes} bytes"
                self.config.failed(self.source.name, start, why)
                position = start + data.index(b"\n") + 1
            else:
                length *= 4

    def _parse(self, start: int, data: bytes, *, is_at_end: bool) -> _Rows:
        found = _Rows([], [], [], start)
        lines = self._decoded(start, data)
        first, position = 0, start
        while first < len(lines):
            reader = csv.reader((text for text, _ in lines[first:]), delimiter=self.config.csv_delimiter, strict=True)
            done = 0
            try:
                for row in reader:
                    end = position + sum(size for _, size in lines[first + done : first + reader.line_num])
                    done = reader.line_num
                    if row:
                        found.rows.append(row)
                        found.starts.append(position)
                        found.ends.append(end)
                    position = end
                break
            except csv.Error as error:
                first += done
                if _OPEN_QUOTE in str(error) and not is_at_end:
                    found.is_open = True
                    break
                self.config.failed(self.source.name, position, f"the row is not CSV: {error}")
                position += lines[first][1]
                first += 1
        found.end = position
        return found

    def _decoded(self, start: int, data: bytes) -> list[tuple[str, int]]:
        """Return each line with its size in bytes."""
        lines = []
        position = start
        for line in data.splitlines(keepends=True) if b"\r" not in data else _kept_lines(data):
            try:
                lines.append((line.decode("utf-8-sig" if position == 0 else "utf-8"), len(line)))
            except UnicodeDecodeError as error:
                why = f"the byte 0x{line[error.start]:02x} is not UTF-8"
                self.config.failed(self.source.name, position + error.start, why)
                lines.append(("\n", len(line)))
            position += len(line)
        return lines


def _kept_lines(data: bytes) -> list[bytes]:
    """Split at newlines alone: a return within quotes belongs to the field."""
    lines = [each + b"\n" for each in data.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _inferred(values: Sequence[str]) -> str:
    """Return the narrowest type that holds all values; empty ones are null."""
    given = [each for each in values if each]
    if not given:
        return ConnectType.STRING
    if all(_LONG.fullmatch(each) and -(2**63) <= int(each) < 2**63 for each in given):
        return ConnectType.INT64
    if all(_NUMBER.fullmatch(each) and not _has_leading_zero(each) for each in given):
        return ConnectType.FLOAT64
    if all(each.lower() in _BOOLEANS for each in given):
        return ConnectType.BOOLEAN
    return ConnectType.STRING


def _has_leading_zero(text: str) -> bool:
    """Tell a code as `007` from a number."""
    digits = text.lstrip("+-")
    return len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()
