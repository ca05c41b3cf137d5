"""What a table of Iceberg or Delta offers to a sink: rows and offsets that change in one commit."""

from __future__ import annotations

import random
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from strandline.connect.failures import RetriableFailure
from strandline.connect.records import TopicPosition

COMMIT_ATTEMPTS: Final = 8
QUERY_NOTE: Final = "strandline.query"
PLAN_NOTE: Final = "strandline.plan"
_BACK_OFF_S: Final = 0.05


class CommitConflict(Exception):
    """Another writer has changed the table since it was read; nothing was committed."""


@dataclass(frozen=True)
class DataFile:
    """A file of rows that lies in a table's directory. Readers do not see it before a commit names it."""

    path: str
    rows: int
    size_bytes: int
    table_id: str
    """Of the table that it was written for: a table that was made again is another one."""
    detail: Any
    """What the commit says of it: partition and statistics, in the form of the table's library."""


@dataclass(frozen=True)
class BatchMark:
    """A batch of a Spark query."""

    query: str
    number: int
    plan: str = ""
    """A digest of what it reads; empty if that is not known."""

    @property
    def notes(self) -> dict[str, str]:
        """What the history of the table says of its commit."""
        return {QUERY_NOTE: self.query, "strandline.batch": str(self.number), PLAN_NOTE: self.plan}


@dataclass(frozen=True)
class FileMarks:
    """What a commit of files stores beside them, so that it is not done twice."""

    offsets: Mapping[TopicPosition, int]
    """Of a connector: the offsets behind what the table then holds."""
    batch: BatchMark | None = None


class LakeTable:
    """A table as the last `refresh` found it. What changes it raises CommitConflict if it has changed since."""

    name: str

    @abstractmethod
    def refresh(self) -> None:
        """Read the table's newest state. Raise RetriableFailure if it cannot be reached."""

    @abstractmethod
    def columns(self) -> Mapping[str, pa.DataType] | None:
        """Return the columns; None if there is no table yet."""

    @abstractmethod
    def version(self) -> int | None:
        """Return a number that changes with every change of rows; None if there is no table or no row."""

    @abstractmethod
    def create(self, columns: pa.Schema) -> None:
        """Make the table, unless it is there by now."""

    @abstractmethod
    def drop(self) -> None:
        """Remove the table with its files."""

    @abstractmethod
    def offset(self, position: TopicPosition) -> int | None:
        """Return the offset behind what the table holds of a partition."""

    @abstractmethod
    def last_batch(self, query: str) -> BatchMark | None:
        """Return the last batch of a Spark query that the table holds."""

    @abstractmethod
    def set_offsets(self, offsets: Mapping[TopicPosition, int | None]) -> None:
        """Set offsets, without a change of rows; None removes one."""

    @abstractmethod
    def commit(self, rows: pa.Table, deleted: pa.Table | None, offsets: Mapping[TopicPosition, int]) -> None:
        """Add rows and set offsets at once.

        With `deleted`, a row replaces the one with the same key, and rows with the keys in `deleted` are removed.
        """

    @abstractmethod
    def grow(self, columns: pa.Schema) -> None:
        """Add columns and widen types to these, without a change of rows."""

    @abstractmethod
    def write_files(self, rows: pa.Table, directory: str) -> list[DataFile]:
        """Write rows that have the table's columns to files of new names below a directory of the table."""

    @abstractmethod
    def commit_files(self, files: Sequence[DataFile], marks: FileMarks) -> None:
        """Add files and set offsets, or the number of a batch, at once."""

    @abstractmethod
    def remove_files(self, paths: Collection[str]) -> None:
        """Remove files that no commit names."""

    @abstractmethod
    def files_below(self, directory: str) -> list[str]:
        """Return the paths of all files below a directory of the table."""

    @abstractmethod
    def named_files(self, directory: str) -> set[str]:
        """Return the paths below a directory that the table names, as the last `refresh` found it."""

    @abstractmethod
    def replace(self, fresh: LakeTable, offsets: Mapping[TopicPosition, int]) -> None:
        """Take over columns and rows of another table of the same kind, and set offsets, at once."""

    @abstractmethod
    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return all rows as the last `refresh` found them."""


def back_off(attempt: int) -> None:
    """Wait before a commit is repeated, longer each time, and not as long as other writers."""
    time.sleep(random.uniform(0, _BACK_OFF_S * 2**attempt))


def always_changed(table: LakeTable) -> RetriableFailure:
    return RetriableFailure(f"{table.name} is changed by other writers all the time: nothing was committed")


def change(table: LakeTable, commit: Callable[[], None]) -> None:
    """Read a table again and change it, until no other writer comes first."""
    for attempt in range(COMMIT_ATTEMPTS):
        table.refresh()
        try:
            return commit()
        except CommitConflict:
            back_off(attempt)
    raise always_changed(table)
