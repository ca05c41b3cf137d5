"""How the story looks: sober on a terminal, and the same words in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

WIDTH_MAX = 96
LOOK_S = 0.05
LINE_EVERY_S = 5.0
"""In a pipe a line is said so often, where a terminal shows one that changes."""


class Stage:
    def __init__(self) -> None:
        self.console = Console(highlight=False, soft_wrap=False)
        self.console.width = min(self.console.width if sys.stdout.isatty() else WIDTH_MAX, WIDTH_MAX)
        self._act = 0
        self.lessons: list[str] = []

    def title(self, name: str, subtitle: str) -> None:
        self.console.print(Text.assemble((name, "bold"), (f"  {subtitle}", "dim")))

    def act(self, title: str) -> None:
        self._act += 1
        self.console.print()
        self.console.print(Text(f"{self._act}  {title}", style="bold"))

    def say(self, text: str, style: str = "") -> None:
        for line in Text(text, style=style).wrap(self.console, self.console.width - 2):
            self.console.print("  ", line, sep="")

    def table(self, columns: list[str], rows: list[list[object]]) -> None:
        drawn = Table(box=box.SIMPLE_HEAD, pad_edge=True, header_style="dim", show_edge=False)
        for index, column in enumerate(columns):
            numeric = all(isinstance(row[index], int) for row in rows)
            drawn.add_column(column, justify="right" if numeric else "left")
        for row in rows:
            drawn.add_row(*(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row))
        self.console.print(Padding(drawn, (0, 0, 0, 1)))

    def wait(self, reached: Callable[[], bool], words: Callable[[], str], *, timeout_s: float) -> None:
        """Say how it goes until it is there; TimeoutError with the last words if it does not come."""
        began = said = time.monotonic()
        last = ""
        with self.console.status("") as status:
            while not reached():
                now = time.monotonic()
                if now > began + timeout_s:
                    raise TimeoutError(f"it took longer than {timeout_s:g} s: {words()}")
                if self.console.is_terminal:
                    status.update(words())
                elif now > said + LINE_EVERY_S and words() != last:
                    said, last = now, words()
                    self.say(last, "dim")
                time.sleep(LOOK_S)

    def command(self, text: str) -> None:
        """What a user would type, whole."""
        first, *rest = Text(f"$ {text}", style="dim").wrap(self.console, self.console.width - 6)
        for line in (Text("    ") + first, *(Text("      ") + line for line in rest)):
            self.console.print(line)

    def verbatim(self, text: str) -> None:
        """What a command printed."""
        for line in text.splitlines():
            self.console.print(Text(f"    {line}", style="dim"), no_wrap=True, overflow="ellipsis")

    def shown(self, lesson: str, *, holds: bool = True) -> None:
        """A sentence for the end: what this act has shown, or failed to show."""
        self.lessons.append(lesson if holds else f"NOT SO: {lesson}")

    def close(self, *, seconds: float, clean: bool) -> None:
        self.console.print()
        heading = f"What was shown, in {seconds:.0f} seconds" if clean else "This went wrong"
        self.console.print(Text(heading, style="bold" if clean else "bold red"))
        for lesson in self.lessons:
            lines = Text(lesson).wrap(self.console, self.console.width - 5)
            for number, line in enumerate(lines):
                self.console.print("  - " if number == 0 else "    ", line, sep="")
        self.console.print()
