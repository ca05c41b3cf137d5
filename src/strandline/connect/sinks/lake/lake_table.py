"""What a table of Iceberg or Delta offers to a sink: rows and offsets that change in one commit."""

from __future__ import annotations

import random
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pyarrow as pa

from strandline.connect.failures import RetriableFailure
from strandline.connect.records import TopicPosition

COMMIT_ATTEMPTS: Final = 8
_BACK_OFF_S: Final = 0.05


class CommitConflict(Exception):
    """Another writer has changed the table since it was read; nothing was committed."""


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
    def set_offsets(self, offsets: Mapping[TopicPosition, int | None]) -> None:
        """Set offsets, without a change of rows; None removes one."""

    @abstractmethod
    def commit(self, rows: pa.Table, deleted: pa.Table | None, offsets: Mapping[TopicPosition, int]) -> None:
        """Add rows and set offsets at once.

        With `deleted`, a row replaces the one with the same key, and rows with the keys in `deleted` are removed.
        """

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
