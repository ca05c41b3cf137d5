"""What was seen of one position, the committed offset of a group in a partition, over a window of time.

Looks at which nothing had changed are kept as two, the first and the last: a node watches many idle groups.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple

NO_POSITION: Final = -1
"""Nothing was committed for the partition."""
UNKNOWN: Final = -1
"""An age or a size that nobody could tell."""

WINDOW_MS: Final = 120_000
SAMPLES_MAX: Final = 64
"""Samples of one position; whoever looks more often than the window has room for sees a shorter window."""


class Sample(NamedTuple):
    """One look at a position."""

    at_ms: int
    committed: int
    """The committed offset; NO_POSITION if there is none."""
    log_start: int
    end: int
    """The high watermark."""
    age_ms: int = UNKNOWN
    """How long ago the record at the position was written, by its timestamp; 0 when nothing is unread."""
    size_bytes: int = UNKNOWN
    """Bytes from the position to the end."""
    records: int = UNKNOWN
    """That a reader of committed ones gets from the position on, or from the log start if that is later, as the
    partition's leader counted them. Offsets are more: of markers, of aborted records, of what was compacted away."""
    undecided: int = 0
    """Records behind those, of transactions that are open, or that wait for them."""

    @property
    def lag(self) -> int:
        return self.offsets if self.records == UNKNOWN else self.records

    @property
    def offsets(self) -> int:
        """From the position to the end."""
        return max(0, self.end - self.committed)


class Window:
    """The samples of one position, oldest first, and since when it stands where it stands."""

    __slots__ = ("samples", "waiting_since_ms")

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.waiting_since_ms: int | None = None
        """When it was first seen at its present offset with records unread; None while it is caught up."""

    def add(self, sample: Sample, *, window_ms: int = WINDOW_MS) -> None:
        """Take note of a look. What no longer belongs to the same story is forgotten first."""
        samples = self.samples
        last = samples[-1] if samples else None
        if last is not None and (
            sample.at_ms < last.at_ms or sample.committed < last.committed or sample.end < last.end
        ):
            # The clock was set back, the group was reset, or the log is another one: no rate leads across that.
            samples.clear()
            last = None
        if sample.committed == NO_POSITION or not sample.lag:
            self.waiting_since_ms = None
        elif last is None or last.committed != sample.committed or self.waiting_since_ms is None:
            self.waiting_since_ms = sample.at_ms
        if len(samples) >= 2 and _is_same(samples[-2], sample) and _is_same(samples[-1], sample):
            samples[-1] = sample
        else:
            samples.append(sample)
        # The one before the window's edge stays, so that the window is covered whole.
        edge = sample.at_ms - window_ms
        while len(samples) > 2 and (samples[1].at_ms <= edge or len(samples) > SAMPLES_MAX):
            del samples[0]

    @property
    def last(self) -> Sample:
        return self.samples[-1]

    @property
    def span_ms(self) -> int:
        return self.samples[-1].at_ms - self.samples[0].at_ms if self.samples else 0

    def passed_at_ms(self, offset: int) -> int | None:
        """About when the end of the log passed `offset`, which is when that record was written, as far as was seen."""
        for before, after in pairwise(self.samples):
            if before.end <= offset < after.end:
                share = (offset - before.end) / (after.end - before.end)
                return before.at_ms + round(share * (after.at_ms - before.at_ms))
        return None

    def waiting_ms(self) -> int:
        """For how long records were unread while the position did not move, as far as anybody looked."""
        return 0 if self.waiting_since_ms is None else self.last.at_ms - self.waiting_since_ms


def _is_same(one: Sample, other: Sample) -> bool:
    return one.committed == other.committed and one.end == other.end and one.log_start == other.log_start
