"""Rows into tables of Delta Lake.

Offsets are Delta's `txn` actions: the application `strandline:<connector>:<topic>-<partition>` has the offset as its
version. They are part of the commit that adds the rows, and Delta refuses two commits at once for one application.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, TypeVar

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, SchemaMismatchError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler

from strandline.connect.config import Password, option
from strandline.connect.failures import ConnectFailed, RetriableFailure
from strandline.connect.records import TopicPosition
from strandline.connect.sinks.lake import delta_files
from strandline.connect.sinks.lake.columns import plain_names
from strandline.connect.sinks.lake.evolution import small
from strandline.connect.sinks.lake.lake_table import (
    PLAN_NOTE,
    QUERY_NOTE,
    BatchMark,
    CommitConflict,
    DataFile,
    FileMarks,
    LakeTable,
)
from strandline.connect.sinks.lake.table_rows import HIDDEN_MARK
from strandline.connect.sinks.lake.table_sink import TableSink, TableSinkConfig

_AWAY: Final = ("error sending request", "timed out", "timeout", "connection", "dns", "503", "500", "429")
_HISTORY_MAX: Final = 20
"""Commits in which the one of the last batch is looked for, to compare its plan."""
_REMOVED: Final = -1
"""The version of an application whose offset was removed: Delta keeps every application."""
T = TypeVar("T")


class DeltaSinkConfig(TableSinkConfig):
    """Settings of the Delta sink; `storage.*` are those of the object store."""

    table_url: str = option(
        "Directory of the tables: s3://bucket/path, gs://, az:// or file:///path.", importance="HIGH"
    )
    partition_by: list[str] = option("Columns that partition a table that is made.", default=[])
    secret_access_key: Password | None = option("Secret of the access key of S3.", default=None)


class DeltaSink(TableSink):
    """Writes records into tables of Delta Lake."""

    Config = DeltaSinkConfig
    config: DeltaSinkConfig
    has_times = False

    def _table(self, name: str) -> LakeTable:
        options = plain_names(self.config.properties, "storage.")
        if self.config.secret_access_key is not None:
            options["aws_secret_access_key"] = self.config.secret_access_key
        url = self.paths.check_url(f"{self.config.table_url.rstrip('/')}/{name}")
        table = DeltaLakeTable(url, options, self.connector, self.config.partition_by)
        table.refresh()
        return table


class DeltaLakeTable(LakeTable):
    """A table of Delta Lake."""

    def __init__(self, url: str, options: dict[str, str], connector: str, partition_by: Sequence[str]) -> None:
        self.name = url
        self._options = options
        self._connector = connector
        self._partition_by = list(partition_by)
        self._table: DeltaTable | None = None

    def refresh(self) -> None:
        try:
            if self._table is None:
                self._table = _asked(self.name, lambda: DeltaTable(self.name, storage_options=self._options))
            else:
                _asked(self.name, self._table.update_incremental)
        except TableNotFoundError:
            self._table = None

    def columns(self) -> Mapping[str, pa.DataType] | None:
        if self._table is None:
            return None
        return {each.name: small(each.type) for each in pa.schema(self._table.schema().to_arrow())}

    def version(self) -> int | None:
        return None if self._table is None else self._table.version()

    def create(self, columns: pa.Schema) -> None:
        self._table = _asked(
            self.name,
            lambda: DeltaTable.create(
                self.name,
                columns,
                mode="ignore",
                partition_by=self._partition_by,
                storage_options=self._options,
            ),
        )

    def drop(self) -> None:
        # A directory without a log is no table, so the log goes first.
        handler = _asked(self.name, self._files)
        for part in ("_delta_log", ""):
            _asked(self.name, lambda: handler.delete_dir(part))  # noqa: B023
        self._table = None

    def offset(self, position: TopicPosition) -> int | None:
        found = None if self._table is None else self._table.transaction_version(self._application(position))
        return None if found == _REMOVED else found

    def last_batch(self, query: str) -> BatchMark | None:
        if self._table is None:
            return None
        table = self._table
        number = table.transaction_version(_query_application(query))
        if number is None:
            return None
        commits = _asked(self.name, lambda: table.history(_HISTORY_MAX))
        plans = [str(each.get(PLAN_NOTE, "")) for each in commits if each.get(QUERY_NOTE) == query]
        return BatchMark(query, number, plans[0] if plans else "")

    def grow(self, columns: pa.Schema) -> None:
        assert self._table is not None
        table = self._table
        self._change(lambda: _append(table, columns.empty_table(), CommitProperties()))
        self.refresh()

    def write_files(self, rows: pa.Table, directory: str) -> list[DataFile]:
        assert self._table is not None
        table = self._table
        return _asked(self.name, lambda: delta_files.written(table, self._files(), self.name, rows, directory))

    def commit_files(self, files: Sequence[DataFile], marks: FileMarks) -> None:
        assert self._table is not None
        table = self._table
        delta_files.check_written_for(table, self.name, files)
        applications = [Transaction(self._application(each), offset) for each, offset in marks.offsets.items()]
        batch = marks.batch
        if batch is not None:
            applications.append(Transaction(_query_application(batch.query), batch.number))
        notes = None if batch is None else batch.notes
        properties = CommitProperties(app_transactions=applications, custom_metadata=notes)
        self._change(lambda: delta_files.commit(table, files, properties))

    def remove_files(self, paths: Collection[str]) -> None:
        _asked(self.name, lambda: delta_files.remove(self._files(), paths))

    def files_below(self, directory: str) -> list[str]:
        return _asked(self.name, lambda: delta_files.listed(self._files(), directory))

    def named_files(self, directory: str) -> set[str]:
        if self._table is None:
            return set()
        table = self._table
        return _asked(self.name, lambda: delta_files.named(table, directory))

    def _files(self) -> DeltaStorageHandler:
        return DeltaStorageHandler(self.name, self._options)

    def set_offsets(self, offsets: Mapping[TopicPosition, int | None]) -> None:
        assert self._table is not None
        table = self._table
        no_rows = pa.schema(table.schema().to_arrow()).empty_table()
        versions = {each: _REMOVED if offset is None else offset for each, offset in offsets.items()}
        self._change(lambda: _append(table, no_rows, self._properties(versions)))

    def commit(self, rows: pa.Table, deleted: pa.Table | None, offsets: Mapping[TopicPosition, int]) -> None:
        assert self._table is not None
        table, properties = self._table, self._properties(offsets)
        if deleted is None:
            self._change(lambda: _append(table, rows, properties))
        else:
            self._change(lambda: _merge(table, rows, deleted, properties))

    def replace(self, fresh: LakeTable, offsets: Mapping[TopicPosition, int]) -> None:
        rows = fresh.read()
        if self._table is None:
            self.create(rows.schema)
        assert self._table is not None
        table, properties = self._table, self._properties(offsets)
        self._change(
            lambda: write_deltalake(
                table, rows, mode="overwrite", schema_mode="overwrite", commit_properties=properties
            )
        )

    def _change(self, commit: Callable[[], None]) -> None:
        try:
            _asked(self.name, commit)
        except CommitFailedError:
            raise CommitConflict from None
        except SchemaMismatchError as error:
            raise ConnectFailed(f"{self.name} cannot get the columns of the records: {error}") from None

    def _properties(self, offsets: Mapping[TopicPosition, int]) -> CommitProperties:
        return CommitProperties(
            app_transactions=[Transaction(self._application(each), offset) for each, offset in offsets.items()],
        )

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        if self._table is None:
            return pa.table({})
        table = self._table
        return _asked(self.name, lambda: table.to_pyarrow_table(columns=list(columns) if columns is not None else None))

    def _application(self, position: TopicPosition) -> str:
        return f"strandline:{self._connector}:{position.topic}-{position.partition}"


def _query_application(query: str) -> str:
    return f"strandline:query:{query}"


def _append(table: DeltaTable, rows: pa.Table, properties: CommitProperties) -> None:
    write_deltalake(table, rows, mode="append", schema_mode="merge", commit_properties=properties)


def _merge(table: DeltaTable, rows: pa.Table, deleted: pa.Table, properties: CommitProperties) -> None:
    """Replace the rows with the same keys, and delete those with the keys in `deleted`."""
    names = deleted.column_names
    both = [
        each.append_column(HIDDEN_MARK, pa.array([is_deleted] * len(each), pa.bool_()))
        for each, is_deleted in ((rows, False), (deleted, True))
    ]
    flagged = pa.concat_tables(both, promote_options="default")
    sets = {_quoted(name): f"s.{_quoted(name)}" for name in rows.column_names}
    (
        table.merge(
            flagged,
            predicate=" AND ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in names),
            source_alias="s",
            target_alias="t",
            merge_schema=True,
            commit_properties=properties,
        )
        .when_matched_delete(f"s.{HIDDEN_MARK}")
        .when_matched_update(sets, predicate=f"NOT s.{HIDDEN_MARK}")
        .when_not_matched_insert(sets, predicate=f"NOT s.{HIDDEN_MARK}")
        .execute()
    )


def _quoted(name: str) -> str:
    if '"' in name or "`" in name:
        raise ConnectFailed(f"the column {name} has a quotation mark in its name, which an upsert cannot name")
    return f"`{name}`"


def _asked(what: str, call: Callable[[], T]) -> T:
    """Return what a call gives. Raise RetriableFailure if the store is away."""
    try:
        return call()
    except (CommitFailedError, SchemaMismatchError, TableNotFoundError):
        raise
    except (DeltaError, OSError) as error:
        text = str(error).partition("\n")[0]
        if isinstance(error, OSError) or any(each in text.lower() for each in _AWAY):
            raise RetriableFailure(f"{what} cannot be reached: {text}") from None
        raise ConnectFailed(f"{what}: {text}") from None
