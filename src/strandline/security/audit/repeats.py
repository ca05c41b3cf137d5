"""Events that come again are counted: the first makes a line at once, its repeats make one line for each window.

A client that is denied tries again, often many times a second. The windows of all events are equally long, so that the
order in which they began is the order in which they end.
"""

from __future__ import annotations

from typing import Final

from strandline.security.audit.audit_event import AuditEvent, CountedEvent

EVENTS_COUNTED_MAX: Final = 1_000
"""Events whose repeats are counted. Beyond that the oldest window ends early, and its next repeat is a line again."""


class _Window:
    """The repeats of one event since its last line."""

    __slots__ = ("began_ms", "count", "first_ms", "last_ms")

    def __init__(self, began_ms: int) -> None:
        self.began_ms = began_ms
        self.count = 0
        self.first_ms = self.last_ms = began_ms


class RepeatCounter:
    """Events whose line was written within the last `window_ms`."""

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        self._windows: dict[AuditEvent, _Window] = {}

    def note(self, event: AuditEvent, now_ms: int) -> list[CountedEvent]:
        """Take an event; return what is to be written because of it, which is nothing for a repeat."""
        window = self._windows.get(event)
        if window is not None:
            if not window.count:
                window.first_ms = now_ms
            window.count += 1
            window.last_ms = now_ms
            return []
        lines = self._end_oldest() if len(self._windows) >= EVENTS_COUNTED_MAX else []
        self._windows[event] = _Window(now_ms)
        return [*lines, CountedEvent(event, 1, now_ms, now_ms)]

    def due_ms(self) -> int | None:
        """Return when the next window ends; None if there is none."""
        oldest = next(iter(self._windows.values()), None)
        return None if oldest is None else oldest.began_ms + self._window_ms

    def due(self, now_ms: int) -> list[CountedEvent]:
        """Return the repeats of windows that are over. An event that was repeated gets another window."""
        lines = []
        while (due_ms := self.due_ms()) is not None and due_ms <= now_ms:
            ended = self._end_oldest()
            for each in ended:
                self._windows[each.event] = _Window(now_ms)
            lines += ended
        return lines

    def rest(self) -> list[CountedEvent]:
        """Return the repeats of all windows, and end them."""
        lines = []
        while self._windows:
            lines += self._end_oldest()
        return lines

    def _end_oldest(self) -> list[CountedEvent]:
        event = next(iter(self._windows))
        window = self._windows.pop(event)
        return [CountedEvent(event, window.count, window.first_ms, window.last_ms)] if window.count else []
