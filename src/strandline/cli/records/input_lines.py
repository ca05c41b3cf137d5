"""The lines of files and of stdin, one after the other, as bytes and bounded."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from strandline.cli.common.failures import CommandFailed, NotFound

# A line is held in memory whole; without a bound, a binary file without line ends would be, too.
LINE_BYTES_MAX = 64 * 1024 * 1024


class Lines:
    """An iterator over lines without their ends, which knows where it is and how far it got."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = paths or [Path("-")]
        self._name = ""
        self._number = 0
        self.read_bytes = 0
        self.size_bytes = self._total_size()

    @property
    def place(self) -> str:
        """Return the line that was read last, for a complaint about it."""
        return f"{self._name}, line {self._number}"

    @property
    def is_typed(self) -> bool:
        """Return whether a person types the lines: then the terminal is theirs, and nothing may be drawn on it."""
        return Path("-") in self._paths and sys.stdin.isatty()

    def __iter__(self) -> Iterator[bytes]:
        for path in self._paths:
            self._number = 0
            if str(path) == "-":
                self._name = "stdin"
                yield from self._bounded(sys.stdin.buffer)
                continue
            self._name = str(path)
            try:
                with path.open("rb") as file:
                    yield from self._bounded(file)
            except OSError as error:
                raise CommandFailed(f"cannot read {str(path)!r}: {error.strerror}") from None

    def _bounded(self, file: BinaryIO) -> Iterator[bytes]:
        while line := file.readline(LINE_BYTES_MAX + 1):
            if len(line) > LINE_BYTES_MAX:
                raise CommandFailed(f"{self._name} has a line of more than {LINE_BYTES_MAX:,} bytes")
            self._number += 1
            self.read_bytes += len(line)
            yield line.removesuffix(b"\n")

    def _total_size(self) -> int | None:
        """Return how many bytes there are to read; None if that is not known. Refuse a missing file before any work."""
        total: int | None = 0
        for path in self._paths:
            if str(path) == "-":
                total = None
                continue
            try:
                status = path.stat()
            except FileNotFoundError:
                raise NotFound(f"there is no file {str(path)!r}") from None
            except OSError as error:
                raise CommandFailed(f"cannot read {str(path)!r}: {error.strerror}") from None
            if total is not None:
                total = total + status.st_size if path.is_file() else None
        return total
