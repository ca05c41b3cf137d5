"""Times of sealed segments that an earlier process wrote: a thread reads them for the cleaner."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from strandline.errors import StrandlineError
from strandline.log.segment.segment import Segment
from strandline.log.segment.segment_times import read_newest_ms
from strandline.runtime.runtime import Runtime

SEGMENTS_PER_TRIP: Final = 64

log = logging.getLogger("strandline.cleaner")

Times = list[tuple[int, int] | None]
"""Of each segment when its first batch and its newest were written; None if it is gone or cannot be read."""


class DirtyTimes:
    def __init__(self, runtime: Runtime, on_read: Callable[[], object]) -> None:
        self._runtime = runtime
        self._on_read = on_read
        self._wanted: dict[Segment, None] = {}
        self._is_reading = False

    def want(self, segments: Iterable[Segment]) -> None:
        self._wanted.update(dict.fromkeys(segments))

    def read(self) -> None:
        """Read what is wanted, some of it, and say when it is known."""
        if self._is_reading or not self._wanted:
            return
        some: list[Segment] = []
        while self._wanted and len(some) < SEGMENTS_PER_TRIP:
            segment, _ = self._wanted.popitem()
            try:
                if not segment.deleted:
                    segment.retain()
                    some.append(segment)
            except OSError as error:
                log.warning("%r cannot be opened: %s", segment, error)
        self._wanted.clear()
        if some:
            self._is_reading = True
            sizes = [segment.size_bytes for segment in some]
            self._runtime.in_thread(partial(_times_of, some), partial(self._on_times, some, sizes))

    def _on_times(
        self, held: list[Segment], sizes: list[int], times: Times | None, error: BaseException | None
    ) -> None:
        assert times is not None, f"reading times cannot fail as a whole: {error}"
        self._is_reading = False
        for segment, size_bytes, found in zip(held, sizes, times, strict=True):
            segment.release()
            if found is not None:
                segment.first_timestamp_ms = found[0]
                segment.newest_read = size_bytes, found[1]
        self._on_read()


def _times_of(segments: list[Segment]) -> Times:
    """In a thread."""
    times: Times = []
    for segment in segments:
        try:
            first = next((header.max_timestamp for header, _ in segment.headers(0, may_block=True)), -1)
            newest = read_newest_ms(segment)
            # Where records carry no time the file's own counts.
            times.append((first if first >= 0 else newest, newest))
        except (OSError, StrandlineError):
            times.append(None)
    return times
