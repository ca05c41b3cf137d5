"""The observations of one position, the committed offset of a group in a partition, over a window of time.

Of a run of equal samples only the first and the last are kept, because a broker watches many idle groups.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple

NO_POSITION: Final = -1
"""Nothing was committed for the partition."""
UNKNOWN: Final = -1
"""An age or a size that is not known."""

WINDOW_MS: Final = 120_000
SAMPLES_MAX: Final = 64
"""Samples of one position. A caller that samples more often gets a shorter window."""


class Sample(NamedTuple):
    """One observation of a position."""

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
    """Records that a read_committed reader gets from the position or the log start on, as counted by the partition's
    leader. There are more offsets: those of markers, of aborted records and of records that were compacted away."""
    undecided: int = 0
    """Records after those that belong to open transactions, or that wait for one."""

    @property
    def lag(self) -> int:
        return self.offsets if self.records == UNKNOWN else self.records

    @property
    def offsets(self) -> int:
        """Return the number of offsets from the position to the end."""
        return max(0, self.end - self.committed)


class Window:
    """The samples of one position, oldest first, and the time since which it has not moved."""

    __slots__ = ("samples", "waiting_since_ms")

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.waiting_since_ms: int | None = None
        """When the position was first sampled at its present offset with unread records; None while caught up."""

    def add(self, sample: Sample, *, window_ms: int = WINDOW_MS) -> None:
        """Append a sample. Drop the earlier ones if they cannot be compared with it."""
        samples = self.samples
        last = samples[-1] if samples else None
        if last is not None and (
            sample.at_ms < last.at_ms or sample.committed < last.committed or sample.end < last.end
        ):
            # The clock was set back, the group was reset, or the log was replaced, so no rate spans both sides.
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
        # The last sample before the window stays, so that the samples cover the whole window.
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
        """Return about when the end of the log passed `offset`, which is when that record was written."""
        for before, after in pairwise(self.samples):
            if before.end <= offset < after.end:
                share = (offset - before.end) / (after.end - before.end)
                return before.at_ms + round(share * (after.at_ms - before.at_ms))
        return None

    def waiting_ms(self) -> int:
        """Return how long records were unread while the position did not move."""
        return 0 if self.waiting_since_ms is None else self.last.at_ms - self.waiting_since_ms


def _is_same(one: Sample, other: Sample) -> bool:
    return one.committed == other.committed and one.end == other.end and one.log_start == other.log_start
