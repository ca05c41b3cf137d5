"""Rows into tables of Apache Iceberg, with pyiceberg and any catalog that it knows.

Offsets are properties of the table, `strandline.offset.<connector>.<topic>.<partition>`. They are set in the
transaction that adds the rows, and they stay when snapshots expire or other writers commit.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from typing import Final, TypeVar

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    ServerError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TooManyRequestsError,
    ValidationError,
)
from pyiceberg.exceptions import ValidationException as ConcurrentChange
from pyiceberg.expressions import And, BooleanExpression, EqualTo, In, Or, Reference
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction

from strandline.connect.config import option
from strandline.connect.failures import ConnectFailed, InvalidConnectorConfig, RetriableFailure
from strandline.connect.paths import PathRules
from strandline.connect.records import TopicPosition
from strandline.connect.sinks.lake import iceberg_files
from strandline.connect.sinks.lake.columns import plain_names
from strandline.connect.sinks.lake.evolution import Widening, small
from strandline.connect.sinks.lake.lake_table import BatchMark, CommitConflict, DataFile, FileMarks, LakeTable
from strandline.connect.sinks.lake.table_sink import TableSink, TableSinkConfig

OFFSET_PREFIX: Final = "strandline.offset"
BATCH_PREFIX: Final = "strandline.batch"
_RETRIES: Final = "commit.retry.num-retries"
_AWAY: Final = (CommitStateUnknownException, ServerError, ServiceUnavailableError, TooManyRequestsError, OSError)
T = TypeVar("T")


class IcebergSinkConfig(TableSinkConfig):
    """Settings of the Iceberg sink; `catalog.*` are those of pyiceberg."""

    catalog_name: str = option("Name of the catalog, also in pyiceberg's own configuration.", default="default")
    namespace: str = option("Namespace of tables whose names have none.", default="default")


class IcebergSink(TableSink):
    """Writes records into tables of Iceberg."""

    Config = IcebergSinkConfig
    config: IcebergSinkConfig
    widening = Widening.SAME_FAMILY

    def __init__(self, config: IcebergSinkConfig) -> None:
        super().__init__(config)
        self.catalog: Catalog | None = None

    def open(self) -> None:
        if self.catalog is None:
            properties = _checked(plain_names(self.config.properties, "catalog."), self.paths)
            self.catalog = _asked("the catalog", lambda: _catalog(self.config.catalog_name, properties))

    def _table(self, name: str) -> LakeTable:
        assert self.catalog is not None
        full = name if "." in name else f"{self.config.namespace}.{name}"
        table = IcebergTable(self.catalog, full, self.connector)
        table.refresh()
        return table


class IcebergTable(LakeTable):
    """A table of Iceberg."""

    def __init__(self, catalog: Catalog, name: str, connector: str) -> None:
        self.name = name
        self._catalog = catalog
        self._connector = connector
        self._table: Table | None = None

    def refresh(self) -> None:
        try:
            self._table = _asked(self.name, lambda: self._catalog.load_table(self.name))
        except NoSuchTableError:
            self._table = None

    def columns(self) -> Mapping[str, pa.DataType] | None:
        if self._table is None:
            return None
        return {each.name: small(each.type) for each in self._table.schema().as_arrow()}

    def version(self) -> int | None:
        return None if self._table is None else self._table.metadata.current_snapshot_id

    def create(self, columns: pa.Schema) -> None:
        try:
            _asked(self.name, lambda: self._make_namespace())
            self._table = _asked(self.name, lambda: self._catalog.create_table(self.name, schema=columns))
        except TableAlreadyExistsError:
            raise CommitConflict from None

    def offset(self, position: TopicPosition) -> int | None:
        found = None if self._table is None else self._table.properties.get(self._property(position))
        return None if found is None else int(found)

    def last_batch(self, query: str) -> BatchMark | None:
        found = None if self._table is None else self._table.properties.get(f"{BATCH_PREFIX}.{query}")
        if found is None:
            return None
        number, _, plan = found.partition(" ")
        return BatchMark(query, int(number), plan)

    def grow(self, columns: pa.Schema) -> None:
        assert self._table is not None
        table = self._table

        def stage() -> Transaction:
            transaction = table.transaction()
            with transaction.update_schema() as update:
                update.union_by_name(columns)
            return transaction

        self._change(stage)
        self.refresh()

    def write_files(self, rows: pa.Table, directory: str) -> list[DataFile]:
        assert self._table is not None
        table = self._table
        return _asked(self.name, lambda: iceberg_files.written(table, rows, directory))

    def commit_files(self, files: Sequence[DataFile], marks: FileMarks) -> None:
        assert self._table is not None
        table = self._table
        iceberg_files.check_written_for(table, self.name, files)
        properties = self._offsets(marks.offsets)
        batch = marks.batch
        if batch is not None:
            properties[f"{BATCH_PREFIX}.{batch.query}"] = f"{batch.number} {batch.plan}".rstrip()
        self._change(lambda: iceberg_files.stage(table, files, properties, {} if batch is None else batch.notes))

    def remove_files(self, paths: Collection[str]) -> None:
        assert self._table is not None
        table = self._table
        _asked(self.name, lambda: iceberg_files.remove(table, paths))

    def files_below(self, directory: str) -> list[str]:
        assert self._table is not None
        table = self._table
        return _asked(self.name, lambda: iceberg_files.listed(table, directory))

    def named_files(self, directory: str) -> set[str]:
        if self._table is None:
            return set()
        table = self._table
        return _asked(self.name, lambda: iceberg_files.named(table, directory))

    def drop(self) -> None:
        with suppress(NoSuchTableError):
            _asked(self.name, lambda: self._catalog.purge_table(self.name))
        self._table = None

    def set_offsets(self, offsets: Mapping[TopicPosition, int | None]) -> None:
        assert self._table is not None
        table = self._table
        removed = [self._property(each) for each, offset in offsets.items() if offset is None]
        stored = {each: offset for each, offset in offsets.items() if offset is not None}
        self._change(
            lambda: self._stage(table, table.schema().as_arrow().empty_table(), None, stored).remove_properties(
                *(each for each in removed if each in table.properties)
            )
        )

    def commit(self, rows: pa.Table, deleted: pa.Table | None, offsets: Mapping[TopicPosition, int]) -> None:
        assert self._table is not None
        table = self._table
        self._change(lambda: self._stage(table, rows, deleted, offsets))

    def replace(self, fresh: LakeTable, offsets: Mapping[TopicPosition, int]) -> None:
        assert isinstance(fresh, IcebergTable)
        rows = fresh.read()
        if self._table is None:
            self.create(rows.schema)
        assert self._table is not None
        assert fresh._table is not None
        table, wanted = self._table, fresh._table.schema()
        self._change(lambda: self._stage_all(table, rows, wanted, offsets))

    def _change(self, stage: Callable[[], Transaction]) -> None:
        assert self._table is not None
        table = self._table
        # pyiceberg would repeat a commit without a look at the offsets, so its own retries are off here.
        table.metadata = table.metadata.model_copy(update={"properties": {**table.properties, _RETRIES: "0"}})
        try:
            _asked(self.name, lambda: stage().commit_transaction())
        except (CommitFailedException, ConcurrentChange):
            raise CommitConflict from None
        except ValidationError as error:
            raise ConnectFailed(f"{self.name} cannot get the columns of the records: {error}") from None

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        if self._table is None:
            return pa.table({})
        scan = self._table.scan(selected_fields=tuple(columns) if columns is not None else ("*",))
        return _asked(self.name, scan.to_arrow)

    def _stage(
        self, table: Table, rows: pa.Table, deleted: pa.Table | None, offsets: Mapping[TopicPosition, int]
    ) -> Transaction:
        transaction = table.transaction()
        if {each.name: small(each.type) for each in rows.schema} != self.columns():
            with transaction.update_schema() as update:
                update.union_by_name(rows.schema)
        if deleted is not None and table.current_snapshot() is not None:
            keys = pa.concat_tables([rows.select(deleted.column_names), deleted])
            with warnings.catch_warnings():
                # It warns when no row has one of these keys, which is how every insert begins.
                warnings.simplefilter("ignore", UserWarning)
                transaction.delete(_keys_in(keys))
        # An empty append still asserts the snapshot that the offsets were read from.
        transaction.append(rows)
        transaction.set_properties(self._offsets(offsets))
        return transaction

    def _stage_all(
        self, table: Table, rows: pa.Table, wanted: Schema, offsets: Mapping[TopicPosition, int]
    ) -> Transaction:
        """Replace columns and rows. A column of another type is removed and added, because all rows are new."""
        before, after = self.columns() or {}, {each.name: small(each.type) for each in wanted.as_arrow()}
        gone = [name for name, kind in before.items() if after.get(name) != kind]
        added = [name for name, kind in after.items() if before.get(name) != kind]
        transaction = table.transaction()
        if gone or added:
            with transaction.update_schema(allow_incompatible_changes=True) as update:
                for name in gone:
                    update.delete_column((name,))
                for name in added:
                    update.add_column((name,), wanted.find_field(name).field_type)
        with warnings.catch_warnings():
            # It warns when there is no row to be replaced.
            warnings.simplefilter("ignore", UserWarning)
            transaction.overwrite(rows)
        transaction.set_properties(self._offsets(offsets))
        return transaction

    def _offsets(self, offsets: Mapping[TopicPosition, int]) -> dict[str, str]:
        return {self._property(each): str(offset) for each, offset in offsets.items()}

    def _make_namespace(self) -> None:
        with suppress(NamespaceAlreadyExistsError):
            self._catalog.create_namespace(self.name.rpartition(".")[0])

    def _property(self, position: TopicPosition) -> str:
        return f"{OFFSET_PREFIX}.{self._connector}.{position.topic}.{position.partition}"


def _checked(given: Mapping[str, str], paths: PathRules) -> dict[str, str]:
    """Return the properties of pyiceberg. Raise InvalidConnectorConfig for one that is not allowed."""
    properties = {name: value for name, value in given.items() if name != "name"}
    for name, value in properties.items():
        if name.endswith("impl"):
            raise InvalidConnectorConfig(f"catalog.{name}: a config cannot name a class of Python to load")
        scheme, has_scheme, rest = value.partition(":///")
        if has_scheme and scheme.startswith("sqlite"):
            paths.check(rest.partition("?")[0])
        elif name == "warehouse" or scheme == "file":
            paths.check_url(value)
    return properties


def _catalog(name: str, properties: dict[str, str]) -> Catalog:
    try:
        return load_catalog(name, **properties)
    except (ValueError, TypeError, ImportError) as error:
        raise InvalidConnectorConfig(f"catalog.*: the catalog {name} cannot be opened: {error}") from None


def _keys_in(keys: pa.Table) -> BooleanExpression:
    """Return the condition that a row has one of these keys."""
    names = keys.column_names
    if len(names) == 1:
        return In(term=Reference(names[0]), values=set(keys.column(0).to_pylist()))
    rows: list[BooleanExpression] = []
    for row in keys.to_pylist():
        equal: list[BooleanExpression] = [EqualTo(term=Reference(name), value=row[name]) for name in names]
        rows.append(reduce(And, equal))
    return _balanced(rows)


def _balanced(parts: list[BooleanExpression]) -> BooleanExpression:
    """Join conditions as a flat tree, because pyiceberg walks it by recursion."""
    while len(parts) > 1:
        joined: list[BooleanExpression] = [Or(one, other) for one, other in zip(parts[::2], parts[1::2], strict=False)]
        parts = joined + parts[len(parts) - len(parts) % 2 :]
    return parts[0]


def _asked(what: str, call: Callable[[], T]) -> T:
    """Return what a call to the catalog or the files gives. Raise RetriableFailure if they are away."""
    try:
        return call()
    except _AWAY as error:
        raise RetriableFailure(f"{what} of Iceberg cannot be reached: {error}") from None
    except Exception as error:
        # The SQL catalog raises the errors of SQLAlchemy, which other catalogs do without.
        if type(error).__module__.startswith("sqlalchemy.") and type(error).__name__ == "OperationalError":
            raise RetriableFailure(f"{what} of Iceberg cannot be reached: {error}") from None
        raise
