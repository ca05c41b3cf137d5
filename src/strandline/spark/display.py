"""Where the lines about queries go: a terminal, where they change in place; a stream, line by line; or nowhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TextIO

from strandline.spark.query_view import QueryView

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

LINE_EVERY_S: Final = 1.0
"""A query with many small batches prints no more than one line a second."""


class Display:
    """A display that shows nothing, for output that is neither a terminal nor asked for."""

    def show(self, views: Sequence[QueryView], batch_of: QueryView | None) -> None:
        """Something changed; `batch_of` is the view that has a new batch, if one has."""

    def close(self, views: Sequence[QueryView]) -> None:
        """The last word on each query."""


class LineDisplay(Display):
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._printed_s = dict[str, float]()

    def show(self, views: Sequence[QueryView], batch_of: QueryView | None) -> None:
        now_s = time.monotonic()
        if batch_of is None or now_s - self._printed_s.get(batch_of.name, -LINE_EVERY_S) < LINE_EVERY_S:
            return
        self._printed_s[batch_of.name] = now_s
        self._stream.write(batch_of.line(now_s) + "\n")
        self._stream.flush()

    def close(self, views: Sequence[QueryView]) -> None:
        for view in views:
            self._stream.write(view.line(time.monotonic()) + "\n")
        self._stream.flush()


class LiveDisplay(Display):
    """One line per query at the bottom of a terminal, redrawn in place; the last word stays."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._views: Sequence[QueryView] = ()
        self._live: Live = Live(
            get_renderable=self._draw, console=Console(file=stream, highlight=False), refresh_per_second=4
        )
        self._live.start()

    def show(self, views: Sequence[QueryView], batch_of: QueryView | None) -> None:
        self._views = views

    def close(self, views: Sequence[QueryView]) -> None:
        self._views = views
        self._live.stop()

    def _draw(self) -> Text:
        from rich.text import Text

        now_s = time.monotonic()
        return Text("\n".join(view.line(now_s) for view in self._views), no_wrap=True, overflow="ellipsis")
