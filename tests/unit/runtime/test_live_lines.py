"""Lines that change in place on a terminal."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Sequence

from strandline.runtime.live_lines import WIDTH_DEFAULT, LiveLines

PATIENCE_S = 30.0


def screen(written: str) -> list[str]:
    """The rows that a terminal shows after all of this."""
    rows, at = [""], 0
    for piece in re.findall(r"\033\[K|\033\[A|\r|\n|[^\033\r\n]+", written):
        match piece:
            case "\033[K":
                rows[at] = ""
            case "\033[A":
                at -= 1
            case "\n":
                at += 1
                rows += [""] * (at == len(rows))
            case "\r":
                pass
            case _:
                rows[at] += piece
    return [row for row in rows if row]


class Changing:
    """Says what is to be shown, and when it was drawn."""

    def __init__(self) -> None:
        self.shown: Sequence[str] = ()
        self._asked = threading.Semaphore(0)

    def __call__(self) -> Sequence[str]:
        self._asked.release()
        return self.shown

    def drawn(self, *lines: str) -> None:
        self.shown = lines
        while self._asked.acquire(blocking=False):
            pass
        # A look may have been under way with the lines before. The next one is drawn when the one after it begins.
        for _ in range(3):
            assert self._asked.acquire(timeout=PATIENCE_S)


def test_what_is_said_stays_above_what_changes() -> None:
    stream, changing = io.StringIO(), Changing()
    live = LiveLines(stream, changing, is_terminal=True)
    changing.drawn("orders: batch 1", "totals: batch 1")
    live.say("created totals")
    changing.drawn("orders: batch 2", "totals: batch 2")
    assert screen(stream.getvalue()) == ["created totals", "orders: batch 2", "totals: batch 2"]
    changing.drawn("x" * 500)
    *_, cut = screen(stream.getvalue())
    assert (len(cut), cut[-1]) == (WIDTH_DEFAULT - 1, "…"), "a line that wraps cannot be erased"
    live.close()
    live.say("done")
    assert screen(stream.getvalue()) == ["created totals", "done"]


def test_a_stream_that_is_no_terminal_gets_only_what_is_said() -> None:
    stream = io.StringIO()
    live = LiveLines(stream, lambda: ["never"])
    live.say("created totals")
    live.close()
    assert stream.getvalue() == "created totals\n"
