"""What a cleaner is asked to do and what it says of it: plain values that travel as JSON to a worker and back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from strandline.config.settings import LONG_MAX
from strandline.errors import WorldError
from strandline.log.segment.transaction_index import AbortedTransaction

CLEANED_SUFFIX: Final = ".cleaned"
"""Behind the names of files that are written, and count for nothing until they are swapped in."""


class CannotClean(WorldError):
    """The log cannot be cleaned now, for the given reason; it has not changed."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class CleaningStopped(WorldError):
    """The broker cancelled the cleaning; groups that were reported before stay valid."""


class SourceSegment(NamedTuple):
    base_offset: int
    size_bytes: int
    end_offset: int
    """The next segment's base."""
    has_transaction_index: bool


@dataclass(frozen=True, slots=True)
class CleaningJob:
    directory: Path
    segments: tuple[SourceSegment, ...]
    """From the log's first up to, not with, the first that may not be cleaned."""
    log_start_offset: int
    first_dirty_offset: int
    end_offset: int
    """The first offset that may not be cleaned."""
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    dedupe_buffer_bytes: int
    load_factor: float
    io_buffer_bytes: int
    io_bytes_per_s: float
    """Read and written together; 0 or less means no limit."""
    aborted_later: tuple[AbortedTransaction, ...]
    """Transactions with records below `end_offset` that a marker at or behind it aborted: their entries stand beside
    segments that are not read, or only in the owner's memory. Without them an aborted record would count as its key's
    last, and the committed one before it would be lost."""
    active_producers: tuple[tuple[int, ...], ...]
    """Producer id, epoch, and the last offset of each batch that it may send again (-1 if it has none, only a marker).
    These batches stay, empty if need be: what is not in the log is not known to the next replica that copies it."""
    sets_horizons: bool = True
    """Whether this is the whole log. A cleaning of its end alone lets no tombstone, marker or aborted transaction go,
    because records before it may need them."""
    horizons_below: int = LONG_MAX
    """Delete horizons of segments from this offset on do not count: a cleaning of another part of the log set them."""

    def to_dict(self) -> dict[str, Any]:
        return {name: _plain(getattr(self, name)) for name in self.__slots__}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        known = dict(fields)
        known["directory"] = Path(known["directory"])
        known["segments"] = tuple(SourceSegment(*each) for each in known["segments"])
        known["aborted_later"] = tuple(AbortedTransaction(*each) for each in known["aborted_later"])
        known["active_producers"] = tuple(tuple(each) for each in known["active_producers"])
        return cls(**known)


class CleanedGroup(NamedTuple):
    """One cleaned segment, complete and safe on disk under `.cleaned` names, and the segments it stands for."""

    base_offset: int
    replaced: tuple[int, ...]
    """Base offsets of the segments to replace, in order; the first is `base_offset`."""
    size_bytes: int
    """May be 0: nothing of the group stays. The files are there all the same, and empty."""
    has_transaction_index: bool
    records: int
    """Data records that stay."""
    end_offset: int
    """Where the group's range ends: the base of the segment behind it."""
    max_timestamp_ms: int
    """-1 if there is none."""
    offset_of_max_timestamp: int
    suffixes: tuple[str, ...]
    """Of the files that were written, without `.cleaned`: `.log` first."""
    size_bytes_before: int
    """Of the replaced segments together."""
    removed_below: int = 0
    """The offset behind the last tombstone or marker that the cleaning has removed so far; 0 if none."""

    def to_dict(self) -> dict[str, Any]:
        return {name: _plain(value) for name, value in self._asdict().items()}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        return cls(**{**fields, "replaced": tuple(fields["replaced"]), "suffixes": tuple(fields["suffixes"])})


class CleaningResult(NamedTuple):
    clean_up_to: int
    """The next first dirty offset."""
    bytes_read: int
    """Of segments that were copied; what was read to build the map comes on top, as `map_bytes_read`."""
    bytes_written: int
    records_read: int
    records_kept: int
    map_entries: int
    map_entries_max: int
    """What the buffer had room for: a cleaning that ended before `end_offset` filled it."""
    map_bytes_read: int
    records_without_key: int
    """Dropped: a compacted topic cannot say what they replace. Some remain from before the topic was compacted."""
    groups: int

    def to_dict(self) -> dict[str, Any]:
        return self._asdict()

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        return cls(**fields)


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value
