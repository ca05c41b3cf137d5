"""Lines of text, and JSON with one value per line.

The bytes of a block are decoded and split at once, because work in Python for each line would cost more than all else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from strandline.connect.schema import STRING
from strandline.connect.sources.file_formats.byte_source import ByteSource, checksum
from strandline.connect.sources.file_formats.format_config import POSITION, FileChunk, FormatConfig

BLOCK_BYTES: Final = 1 << 20
FINGERPRINT_BYTES: Final = 256
"""Bytes at the beginning, and as many before the position, that tell a file from another one."""
_LINE: Final = re.compile(rb"[^\n]*\n|[^\n]+")


class LineBlocks:
    """Blocks of complete lines."""

    def __init__(self, source: ByteSource, config: FormatConfig, *, is_return_an_end: bool) -> None:
        """`is_return_an_end` says whether a carriage return without newline ends a line, as in Kafka's file source."""
        self._source = source
        self._config = config
        self._is_return_an_end = is_return_an_end

    def read(self, position: int, *, is_final: bool, length: int = BLOCK_BYTES) -> tuple[int, bytes]:
        """Return complete lines from a position on, and where they begin, which is later if a long line is skipped."""
        line_max = self._config.max_line_bytes
        while True:
            data = self._source.read_at(position, length)
            cut = self._end_of_lines(data)
            if cut:
                return position, data if cut == len(data) else data[:cut]
            if len(data) > line_max:
                self._config.failed(self._source.name, position, f"a line has more than {line_max} bytes")
                following = self._end_of_line(position + len(data))
                if following is None:
                    return position, b""
                position = following
            elif len(data) < length:
                return position, data if is_final else b""
            else:
                length = min(4 * length, line_max + 2)

    def _end_of_lines(self, data: bytes) -> int:
        """Return where the last complete line ends. A return at the very end may be followed by a newline."""
        end = data.rfind(b"\n")
        return 1 + (max(end, data.rfind(b"\r", end + 1, len(data) - 1)) if self._is_return_an_end else end)

    def _end_of_line(self, position: int) -> int | None:
        """Return where the line ends that holds a position; None if it is the last one."""
        while data := self._source.read_at(position, BLOCK_BYTES):
            found = data.find(b"\n")
            if found >= 0:
                return position + found + 1
            position += len(data)
        return None


class ByteOffsets:
    """What readers have in common whose position is one of bytes."""

    def __init__(self, source: ByteSource, config: FormatConfig) -> None:
        self.source = source
        self.config = config

    def holds(self, offset: Mapping[str, Any]) -> bool:
        """Return whether the file is long enough to have this offset."""
        return bool(offset[POSITION] <= self.source.size())

    def fingerprint(self, offset: Mapping[str, Any]) -> str:
        """Return a checksum of the first bytes and of those before the offset."""
        position = offset[POSITION]
        length = min(FINGERPRINT_BYTES, position)
        return checksum(self.source, 0, length) + checksum(self.source, position - length, length)


class LineReader(ByteOffsets):
    """Reads lines of text."""

    def __init__(self, source: ByteSource, config: FormatConfig) -> None:
        super().__init__(source, config)
        self._blocks = LineBlocks(source, config, is_return_an_end=True)

    def read(self, offset: Mapping[str, Any], *, is_final: bool) -> Sequence[FileChunk]:
        """Return the lines of one block."""
        start, data = self._blocks.read(offset[POSITION], is_final=is_final)
        if not data:
            return ()
        block = decoded(self.source.name, start, data, self.config, is_return_an_end=True)
        return [
            FileChunk(
                lines if block.is_whole else [each for each in lines if each is not None], {POSITION: end}, STRING
            )
            for lines, end in block.slices(self.config.batch_size)
        ]


class JsonReader(ByteOffsets):
    """Reads one JSON value per line; empty lines do not count."""

    def __init__(self, source: ByteSource, config: FormatConfig) -> None:
        super().__init__(source, config)
        self._blocks = LineBlocks(source, config, is_return_an_end=False)

    def read(self, offset: Mapping[str, Any], *, is_final: bool) -> Sequence[FileChunk]:
        """Return the values of one block."""
        start, data = self._blocks.read(offset[POSITION], is_final=is_final)
        if not data:
            return ()
        block = decoded(self.source.name, start, data, self.config, is_return_an_end=False)
        first, chunks = 0, []
        for lines, end in block.slices(self.config.batch_size):
            chunks.append(FileChunk(self._values(block, first, lines), {POSITION: end}))
            first += len(lines)
        return chunks

    def _values(self, block: TextBlock, first: int, lines: Sequence[str | None]) -> list[Any]:
        values = []
        for index, line in enumerate(lines, first):
            if line is None or not line or line.isspace():
                continue
            if index == 0 and block.start == 0:
                line = line.removeprefix("\ufeff")
            try:
                values.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                why = f"the line is not JSON: {error}"
                self.config.failed(self.source.name, block.position_of(index), why)
        return values


@dataclass
class TextBlock:
    """The lines of a block as text; None instead of a line that is skipped."""

    start: int
    data: bytes
    lines: Sequence[str | None]
    sizes: Sequence[int] | None = None
    """Bytes of each line with its end; None if a newline is all that was removed, and each line is there."""

    @property
    def is_whole(self) -> bool:
        return self.sizes is None or None not in self.lines

    def slices(self, count: int) -> Iterator[tuple[Sequence[str | None], int]]:
        """Yield so many lines at a time, with the position behind them."""
        if len(self.lines) <= count:
            yield self.lines, self.start + len(self.data)
            return
        end = self.start
        for first in range(0, len(self.lines), count):
            part = self.lines[first : first + count]
            end += self._size(first, part)
            yield part, min(end, self.start + len(self.data))

    def position_of(self, index: int) -> int:
        """Return where a line begins."""
        return self.start + self._size(0, self.lines[:index])

    def _size(self, first: int, part: Sequence[str | None]) -> int:
        if self.sizes is not None:
            return sum(self.sizes[first : first + len(part)])
        text = "\n".join(part)  # type: ignore[arg-type]
        return (len(text) if text.isascii() else len(text.encode())) + 1 if part else 0


def decoded(name: str, start: int, data: bytes, config: FormatConfig, *, is_return_an_end: bool) -> TextBlock:
    """Decode a block, and split it. A line that is too long or not UTF-8 is an error, or is skipped."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return _decoded_by_line(name, start, data, config, is_return_an_end)
    sizes = None
    if is_return_an_end and "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        sizes = [len(each) for each in data.splitlines(keepends=True)]
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    character_bytes_max = 1 if text.isascii() else 4
    if len(data) > config.max_line_bytes and max(map(len, lines)) * character_bytes_max > config.max_line_bytes:
        return _decoded_by_line(name, start, data, config, is_return_an_end)
    return TextBlock(start, data, lines, sizes)


def _decoded_by_line(name: str, start: int, data: bytes, config: FormatConfig, is_return_an_end: bool) -> TextBlock:
    parts = data.splitlines(keepends=True) if is_return_an_end else _LINE.findall(data)
    lines: list[str | None] = []
    position = start
    for each in parts:
        line = each.rstrip(b"\r\n")
        try:
            lines.append(line.decode())
            if len(line) > config.max_line_bytes:
                lines[-1] = None
                config.failed(name, position, f"a line has more than {config.max_line_bytes} bytes")
        except UnicodeDecodeError as error:
            lines.append(None)
            config.failed(name, position + error.start, f"the byte 0x{line[error.start]:02x} is not UTF-8")
        position += len(each)
    return TextBlock(start, data, lines, [len(each) for each in parts])
