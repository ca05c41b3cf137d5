"""The lines at the bottom of a terminal that change in place: progress bars, parts of a start, queries."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Final, TextIO

TICK_S: Final = 0.2
WIDTH_DEFAULT: Final = 80

_CLEAR: Final = "\r\033[K"
_UP: Final = "\033[A"


class LiveLines:
    """A part of a terminal that shows what `lines` returns, below all that is said. For several threads.

    `lines` is called by a thread of its own. On a stream that is no terminal only what is said is written.
    """

    def __init__(self, stream: TextIO, lines: Callable[[], Sequence[str]], *, is_terminal: bool | None = None) -> None:
        self._stream = stream
        self._lines = lines
        self.is_terminal = stream.isatty() if is_terminal is None else is_terminal
        self._lock = threading.Lock()
        self._shown = 0
        self._closed = threading.Event()
        if self.is_terminal:
            threading.Thread(target=self._tick, name="live-lines", daemon=True).start()

    def say(self, words: str) -> None:
        """Write a line that stays, above those that change."""
        with self._lock:
            self._write(self._erased() + words + "\n")

    def close(self) -> None:
        """Erase what changes; lines may still be said."""
        with self._lock:
            self._closed.set()
            if self._shown:
                self._write(self._erased())

    def _tick(self) -> None:
        while not self._closed.is_set():
            # Asked without the lock: `lines` may wait for a thread that is saying something.
            lines = [_cut(line, self._width()) for line in self._lines()]
            with self._lock:
                if not self._closed.is_set() and (lines or self._shown):
                    self._write(self._erased() + "\n".join(lines))
                    self._shown = len(lines)
            self._closed.wait(TICK_S)

    def _erased(self) -> str:
        """Return what takes the cursor to where the lines begin, and clears them."""
        erased = _CLEAR + (_UP + _CLEAR) * (self._shown - 1) if self._shown else ""
        self._shown = 0
        return erased

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def _width(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or WIDTH_DEFAULT
        except (OSError, ValueError):
            return WIDTH_DEFAULT


def _cut(line: str, width: int) -> str:
    """Return a line that does not wrap: one that did could not be erased."""
    return line if len(line) < width else f"{line[: width - 2]}…"
