"""Output of a command: data to stdout, messages to stderr, and colours only on a terminal.

Everything a command prints passes through an `Output`, because only there a closed pipe becomes a quiet end.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from typing import Any, BinaryIO, TextIO

from strandline.cli.common.failures import PipeClosed

_NUMERIC = re.compile(r"-?[0-9][0-9,.]*( ([KMGT]i)?B)?|-")


class Output:
    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.before_next = b""
        """Written before whatever is written next."""
        self._stdout: BinaryIO = sys.stdout.buffer
        self._stderr: TextIO = sys.stderr

    @property
    def is_terminal(self) -> bool:
        return sys.stdout.isatty()

    def write(self, content: bytes) -> None:
        """Data, byte for byte."""
        if self.before_next:
            content, self.before_next = self.before_next + content, b""
        try:
            self._stdout.write(content)
        except BrokenPipeError:
            raise PipeClosed from None

    def flush(self) -> None:
        try:
            self._stdout.flush()
        except BrokenPipeError:
            raise PipeClosed from None

    def line(self, text: str) -> None:
        self.write(text.encode("utf-8", "surrogateescape") + b"\n")

    def json_line(self, value: Any) -> None:
        self.line(json.dumps(value, ensure_ascii=False, separators=(",", ":")))

    def talk(self, text: str) -> None:
        """A word to the person, never part of the data."""
        self._stderr.write(text + "\n")
        self._stderr.flush()

    def hanging(self, first: str, rest: str, text: str) -> None:
        """A line that, on a terminal, is broken at its width and goes on indented; in a pipe it stays one line."""
        if not self.is_terminal:
            self.line(first + text)
            return
        import textwrap

        width = max(60, shutil.get_terminal_size().columns)
        # Colours take no room on the screen, so what is drawn is measured without them.
        lines = textwrap.wrap(text, width - len(rest), break_long_words=False, break_on_hyphens=False) or [""]
        for number, line in enumerate(lines):
            self.line((rest if number else first) + line)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Rows for people: drawn on a terminal, plain aligned columns in a pipe, so that awk and grep work."""
        texts = [[str(cell) for cell in row] for row in rows]
        if self.is_terminal and colours_wanted(sys.stdout):
            self._drawn_table(columns, texts)
            return
        widths = [max(len(cell) for cell in column) for column in zip(columns, *texts, strict=True)]
        for row in [[column.upper() for column in columns], *texts]:
            self.line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

    def _drawn_table(self, columns: Sequence[str], rows: list[list[str]]) -> None:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for index, column in enumerate(columns):
            numeric = bool(rows) and all(_NUMERIC.fullmatch(row[index]) for row in rows)
            drawn.add_column(column, justify="right" if numeric else "left", overflow="fold")
        for row in rows:
            drawn.add_row(*(Text(cell) for cell in row))
        console = Console()
        with console.capture() as capture:
            console.print(drawn)
        self.write(capture.get().encode())


def colours_wanted(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def silence_stdout() -> None:
    """After a closed pipe the interpreter would try to flush stdout once more at exit and complain."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, sys.stdout.fileno())
    os.close(sink)
