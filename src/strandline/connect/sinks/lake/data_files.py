"""Rows that many processes write to files, and the one commit that adds the files to the table.

A process writes files of new names below a directory of its batch, so no attempt harms another one. Columns grow before
a file is written, in commits of their own. Then one process commits the files of all, together with what says that the
batch is done: its number, or the offsets behind it. If that is in the table already, the files are of a repeated
attempt and are removed, unless a commit of them was sent. A commit removes what other attempts left in the directory of
its batch. It asks the table first, because a checkpoint or offsets that were set back may bring an earlier commit into
the same directory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pyarrow as pa

from strandline.connect.failures import ConnectFailed
from strandline.connect.sinks.lake.columns import NOT_CONVERTED
from strandline.connect.sinks.lake.evolution import Widening, fitted, merged_type, small
from strandline.connect.sinks.lake.lake_table import (
    COMMIT_ATTEMPTS,
    CommitConflict,
    DataFile,
    FileMarks,
    LakeTable,
    always_changed,
    back_off,
    change,
)
from strandline.runtime.fault_points import fault_point

FILE_BYTES: Final = 128 << 20
"""Rows in memory after which a process writes them to a file."""

log = logging.getLogger("strandline.connect")


class FileWriter:
    """Writes the rows of one process to files of a table."""

    def __init__(
        self, table: LakeTable, directory: str, *, widening: Widening, may_create: bool, may_evolve: bool
    ) -> None:
        self.files: list[DataFile] = []
        self._table = table
        self._directory = directory
        self._widening = widening
        self._may_create = may_create
        self._may_evolve = may_evolve
        self._rows: list[pa.Table] = []
        self._size_bytes = 0

    def add(self, rows: pa.Table) -> None:
        """Take rows; all of them have the same columns."""
        self._rows.append(rows)
        self._size_bytes += rows.nbytes
        if self._size_bytes >= FILE_BYTES:
            self.flush()

    def flush(self) -> None:
        if not self._rows:
            return
        rows = pa.concat_tables(self._rows)
        self._rows, self._size_bytes = [], 0
        self.write(self._fitting(rows))

    def write(self, rows: pa.Table) -> None:
        """Write rows that have the table's columns."""
        self.files += self._table.write_files(rows, self._directory)

    def _fitting(self, rows: pa.Table) -> pa.Table:
        """Return rows with the columns of the table, which gets what it lacks."""
        found = {each.name: small(each.type) for each in rows.schema}
        while True:
            columns = self._table.columns()
            wanted = merged_columns(self._table.name, columns or {}, found, self._widening)
            if columns is not None and wanted == columns:
                return _arranged(self._table.name, rows, columns)
            grow(self._table, wanted, may_create=self._may_create, may_evolve=self._may_evolve)


def grow(table: LakeTable, wanted: Mapping[str, pa.DataType], *, may_create: bool, may_evolve: bool) -> None:
    """Make a table, or give it columns, unless another process was faster. Its columns have to be looked at again."""
    schema = pa.schema(list(wanted.items()))
    columns = table.columns()
    if columns is None:
        if not may_create:
            raise ConnectFailed(f"the table {table.name} is missing, and auto.create is false")
        try:
            table.create(schema)
        except CommitConflict:
            table.refresh()
        return
    if not may_evolve:
        lacking = ", ".join(name for name, kind in wanted.items() if columns.get(name) != kind)
        raise ConnectFailed(f"the table {table.name} has no column for {lacking}, and auto.evolve is false")
    # What another process has added since is kept: the union of both is asked for.
    change(table, lambda: table.grow(schema))


def merged_columns(
    table: str, columns: Mapping[str, pa.DataType], found: Mapping[str, pa.DataType], widening: Widening
) -> dict[str, pa.DataType]:
    """Return the columns that hold what a table has and what was found. Raise ConnectFailed if there are none."""
    wanted = dict(columns)
    for name, kind in found.items():
        if pa.types.is_null(kind):
            continue
        known = columns.get(name)
        merged = kind if known is None else merged_type(known, kind, widening)
        if merged is None:
            raise ConnectFailed(f"the column {name} is {kind}, which does not fit into {known} of the table {table}")
        wanted[name] = merged
    return wanted


def _arranged(table: str, rows: pa.Table, columns: Mapping[str, pa.DataType]) -> pa.Table:
    made = []
    for name, kind in columns.items():
        if name not in rows.column_names:
            made.append(pa.nulls(len(rows), kind))
            continue
        try:
            made.append(fitted(rows.column(name), kind))
        except NOT_CONVERTED as error:
            raise ConnectFailed(f"a value of {name} is not written to {table}: {error}") from None
    return pa.Table.from_arrays(made, schema=pa.schema(list(columns.items())))


def check_not_null(table: str, schema: pa.Schema, rows: pa.Table) -> None:
    """Raise ConnectFailed if a column that must have values has a null."""
    for each in schema:
        if not each.nullable and rows.column(each.name).null_count:
            raise ConnectFailed(f"the column {each.name} of {table} must have values, and a row has none")


def commit_once(
    table: LakeTable, files: Sequence[DataFile], directory: str, marks: FileMarks, is_done: Callable[[], bool]
) -> bool:
    """Add the files of a batch to a table in one commit, unless that was done before. Return whether it was done now.

    `is_done` looks at what the table says of the batch; it raises if the batch cannot be committed at all. A commit
    that landed and was refused when it was sent again counts as done before.
    """
    for attempt in range(COMMIT_ATTEMPTS):
        table.refresh()
        if is_done():
            # A refused commit may have landed: a store that loses its answer refuses it when it is sent again.
            if not attempt:
                table.remove_files([each.path for each in files])
            return False
        fault_point("before-commit")
        try:
            table.commit_files(files, marks)
        except CommitConflict:
            back_off(attempt)
            continue
        fault_point("after-commit")
        _clean(table, directory, {each.path for each in files})
        return True
    raise always_changed(table)


def _clean(table: LakeTable, directory: str, kept: set[str]) -> None:
    """Remove files of attempts that came to nothing. What stays is seen by no reader, so a failure is told only."""
    try:
        found = set(table.files_below(directory))
        # If a store names the files in another way than their writers did, none can be told from those of the commit.
        if found == kept or not kept <= found:
            return
        table.refresh()
        named = table.named_files(directory)
        if kept <= named:
            table.remove_files(found - named)
    except ConnectFailed as error:
        log.warning("files of attempts that failed stay in %s of %s: %s", directory, table.name, error)
