"""What a start consists of, and how long each part took: several go on at the same time.

      node        0.4 s  127.0.0.1:9092, its data in .strandline/node
      file        1.3 s  3 datasets
      Java        2.9 s

On a terminal the parts that are under way stand below, with their seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO

from strandline.runtime.live_lines import TICK_S, LiveLines

if TYPE_CHECKING:
    from strandline.pipelines.run.run_log import RunLog

NAME_WIDTH: Final = 12
EARLY_LINES_MAX: Final = 100
"""How many lines are kept for a log that is not there yet."""


class Stage:
    """One part; `detail` is said behind its seconds."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.detail = ""
        self.began_s = time.monotonic()


class Stages:
    """The parts of a start, and all that a run says: each line goes to `stream`, and to the run's log."""

    def __init__(self, stream: TextIO) -> None:
        self.began_s = time.monotonic()
        self.took_s: dict[str, float] = {}
        self.below: Callable[[], Sequence[str]] = tuple
        """What a terminal shows below the parts that are under way."""
        self._lock = threading.Lock()
        self._open: list[Stage] = []
        self._log: RunLog | None = None
        self._early: list[tuple[float, str]] = []
        """Lines that were said before there was a log."""
        self._live = LiveLines(stream, self._lines)

    @property
    def is_terminal(self) -> bool:
        return self._live.is_terminal

    @contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        """Time what is done in the block, from any thread; nothing is said of a part that failed."""
        stage = self.begin(name)
        try:
            yield stage
        except BaseException:
            self.drop(stage)
            raise
        self.end(stage)

    def begin(self, name: str) -> Stage:
        """Begin a part that is ended elsewhere, by `end` or by `drop`."""
        stage = Stage(name)
        with self._lock:
            self._open.append(stage)
        return stage

    def end(self, stage: Stage) -> None:
        with self._lock:
            self._open.remove(stage)
            self.took_s[stage.name] = took_s = time.monotonic() - stage.began_s
            self._line(f"  {stage.name:<{NAME_WIDTH}}{took_s:5.1f} s  {stage.detail}".rstrip())

    def drop(self, stage: Stage) -> None:
        """Forget a part that did not come to its end, without a line."""
        with self._lock:
            self._open.remove(stage)

    def say(self, words: str) -> None:
        with self._lock:
            self._line(words)

    def keep(self, log: RunLog | None) -> None:
        """Write what is said, and what was said until now, to a log as well; None ends that."""
        with self._lock:
            self._log = log
            if log is not None:
                for at_s, words in self._early:
                    log.line(words, at_s)
            self._early.clear()

    def note(self, words: str) -> None:
        """Write a line to the log alone: the terminal shows the same in place."""
        with self._lock:
            self._note(words)

    def close(self) -> None:
        """Show nothing in place any more; lines may still be said."""
        self._live.close()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.began_s

    def _line(self, words: str) -> None:
        self._live.say(words)
        self._note(words)

    def _note(self, words: str) -> None:
        if self._log is not None:
            self._log.line(words)
        elif len(self._early) < EARLY_LINES_MAX:
            self._early.append((time.time(), words))

    def _lines(self) -> list[str]:
        with self._lock:
            now_s = time.monotonic()
            parts = [f"{each.name} {now_s - each.began_s:.1f} s" for each in self._open]
        return ([f"  {' · '.join(parts)}"] if parts else []) + list(self.below())


def in_background(work: Callable[[], object], name: str) -> Callable[[], None]:
    """Begin `work` in a thread; what is returned waits for it, and raises what it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()

    def wait() -> None:
        # In small steps, because signals are handled between them.
        while thread.is_alive():
            thread.join(TICK_S)
        if raised:
            raise raised[0]

    return wait
