"""What every SQL sink does: rows and offsets in one transaction, tables that follow the records."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final, Self

from strandline.connect.config import Config
from strandline.connect.failures import ConnectFailed, InvalidConnectorConfig, RecordFailed
from strandline.connect.records import SinkRecord, TopicPosition
from strandline.connect.sink import Sink, SinkBatch
from strandline.connect.sinks.sql.columns import ENCODERS, Misfit
from strandline.connect.sinks.sql.comparing import RowComparison
from strandline.connect.sinks.sql.database import Database, TableChanged
from strandline.connect.sinks.sql.fitting import Fitting, by_columns, fit
from strandline.connect.sinks.sql.offsets import StoredOffsets, WrittenTables
from strandline.connect.sinks.sql.rebuilding import discard_target, drop_old_tables, swap_tables
from strandline.connect.sinks.sql.rows import RowMaker, TableRows, without_value
from strandline.connect.sinks.sql.settings import SqlSinkConfig
from strandline.connect.sinks.sql.tables import NewColumn, TableName, TableShape
from strandline.connect.sinks.verifiable import ExpectedRow, TargetKey
from strandline.runtime.fault_points import fault_point

_ATTEMPTS: Final = 3
"""How often a batch is tried if tables change under it."""


class SqlSink(Sink):
    """Base of SQL sinks."""

    Config: ClassVar[type[Config]] = SqlSinkConfig
    keeps_offsets: ClassVar[bool] = True
    config: SqlSinkConfig

    def __init__(self, config: Any, suffix: str = "") -> None:
        """With a suffix it is a fresh target: its tables and offsets have names of their own."""
        super().__init__(config)
        for name, wrong in self.config.check_all():
            raise InvalidConnectorConfig(f"{name}: {wrong}")
        self._suffix = suffix
        self._database = self.database()
        self._connector = self.config.connector + suffix
        self._rows = RowMaker(self.config, suffix)
        self._offsets = StoredOffsets(self._database, self._connector)
        self._written = WrittenTables(self._database, self._connector)
        self._comparing = RowComparison(self.config, self._database, self._rows, self._written)
        self._shapes: dict[TableName, TableShape] = {}

    def database(self) -> Database:
        """Return the database of the settings, not yet connected to."""
        raise NotImplementedError

    def open(self) -> None:
        self._database.allow(self.paths)
        with self._database.guarded():
            self._offsets.create_tables()

    def close(self) -> None:
        self._database.discard()

    def resume(self, partitions: Sequence[TopicPosition]) -> Mapping[TopicPosition, int]:
        with self._database.guarded():
            return self._offsets.claim(partitions)

    def set_offsets(self, offsets: Mapping[TopicPosition, int | None]) -> None:
        """Set where to go on, None for what the group's offset says. Tasks that run are fenced out."""
        with self._database.guarded():
            self._offsets.create_tables()
            self._offsets.set(offsets)

    def revoked(self, partitions: Sequence[TopicPosition]) -> None:
        self._offsets.forget(partitions)

    def write(self, batch: SinkBatch) -> None:
        records, ends = list(batch), batch.ends
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with self._database.guarded():
                    return self._write(records, ends)
            except TableChanged:
                self._forget_shapes()
                if attempt == _ATTEMPTS:
                    raise
            except RecordFailed as failure:
                if failure.record is None:
                    # The table may have got a constraint since it was read.
                    self._forget_shapes()
                if failure.record is None and len(records) == 1:
                    raise RecordFailed(f"{records[0].place} is refused by {failure}", records[0]) from failure
                raise
        return None

    def _write(self, records: Sequence[SinkRecord], ends: Mapping[TopicPosition, int]) -> None:
        tables = self._fitted(self._rows.tables(records))
        unclaimed = self._offsets.unclaimed(ends)
        if unclaimed:
            self._offsets.claim(unclaimed)
        with self._database.transaction():
            fault_point("sql-sink-begun")
            stored = self._offsets.lock(ends)
            left = _unwritten(records, stored)
            if len(left) < len(records):
                # The commit of the others succeeded, but its acknowledgement was lost.
                tables = self._fitted(self._rows.tables(left))
            for table, shape, fitting in tables:
                self._write_table(table, shape, fitting)
            fault_point("sql-sink-rows-written")
            self._offsets.store({each: max(end, stored.get(each, 0)) for each, end in ends.items()})
            fault_point("sql-sink-offsets-stored")
        fault_point("sql-sink-committed")

    def _write_table(self, table: TableRows, shape: TableShape, fitting: Fitting) -> None:
        keys = [column.name for each in table.keys if (column := shape.find(each)) is not None]
        for is_delete, chosen in self._runs(table):
            if is_delete:
                for part in self._parts(chosen):
                    columns = [fitting.columns[each] for each in keys]
                    self._database.delete(table.name, columns, [_at(fitting, each, part) for each in keys])
                continue
            for names, is_partial, indexes in by_columns(table.rows, shape, fitting, chosen):
                columns = [fitting.columns[each] for each in names]
                for part in self._parts(indexes):
                    if is_partial and self.config.insert_mode == "upsert":
                        self._check_known(table, fitting, keys, part)
                    values = [_at(fitting, each, part) for each in names]
                    if self.config.insert_mode == "update" or is_partial:
                        self._database.update(table.name, keys, columns, values)
                    else:
                        is_upsert = self.config.insert_mode == "upsert"
                        self._database.upsert(table.name, keys if is_upsert else (), columns, values)

    def _check_known(self, table: TableRows, fitting: Fitting, keys: Sequence[str], part: Sequence[int]) -> None:
        """Raise RecordFailed for a record that leaves a column as it is in a row that does not exist."""
        columns = [fitting.columns[each] for each in keys]
        values = [_at(fitting, each, part) for each in keys]
        if sum(1 for _ in self._database.rows(table.name, columns, columns, values)) == len(part):
            return
        for at in part:
            if not any(self._database.rows(table.name, columns, columns, [_at(fitting, each, [at]) for each in keys])):
                raise RecordFailed(without_value(table.rows[at]), table.rows[at].record)

    def _runs(self, table: TableRows) -> list[tuple[bool, list[int]]]:
        """Return deletions and other rows. If each record is inserted, they stay in their order."""
        if self.config.insert_mode != "insert":
            deleted = [index for index, row in enumerate(table.rows) if row.is_delete]
            written = [index for index, row in enumerate(table.rows) if not row.is_delete]
            return [(is_delete, each) for is_delete, each in ((True, deleted), (False, written)) if each]
        runs: list[tuple[bool, list[int]]] = []
        for index, row in enumerate(table.rows):
            if not runs or runs[-1][0] != row.is_delete:
                runs.append((row.is_delete, []))
            runs[-1][1].append(index)
        return runs

    def _parts(self, indexes: Sequence[int]) -> Iterator[Sequence[int]]:
        size = self.config.batch_size
        for start in range(0, len(indexes), size):
            yield indexes[start : start + size]

    def _fitted(self, tables: Sequence[TableRows]) -> list[tuple[TableRows, TableShape, Fitting]]:
        """Encode rows for their tables. What tables lack for them is created or altered, in transactions before."""
        found = []
        for table in tables:
            shape = self._shapes.get(table.name) or self._shape(table)
            fitting = self._fit(table, shape)
            if not fitting.is_complete:
                shape = self._alter(table)
                fitting = self._fit(table, shape)
            found.append((table, shape, fitting))
        return found

    def _fit(self, table: TableRows, shape: TableShape) -> Fitting:
        only_named = bool(self.config.fields_whitelist)
        return fit(table, shape, has_numeric=self._database.has_numeric, only_named=only_named)

    def _shape(self, table: TableRows) -> TableShape:
        """Read a table that this task has not written before."""
        for name in (table.name.table, table.name.schema):
            wrong = None if name is None else self._database.wrong_name(name)
            if wrong is not None:
                record = table.rows[0].record
                raise RecordFailed(f"{record.place} has no table: {wrong}", record)
        with self._database.transaction():
            self._written.add(table.name)
        found = self._database.shape(table.name)
        if found is None:
            return TableShape([], (), self._database.fold)
        self._shapes[table.name] = found
        return found

    def _alter(self, table: TableRows) -> TableShape:
        """Create a table or what it lacks. Return its shape."""
        self._forget_shapes()
        with self._database.changing_tables():
            found = self._database.shape(table.name)
            old = TableName(table.name.table.removesuffix(self._suffix), table.name.schema)
            if found is None and self._suffix and not self.config.auto_create and self._database.shape(old) is not None:
                self._database.create_like(table.name, old)
                found = self._database.shape(table.name)
            fitting = self._fit(table, found or TableShape([], (), self._database.fold))
            self._check_changes(table, found, fitting)
            if found is None:
                keys = {each: index for index, each in enumerate(table.keys)}
                columns = sorted(fitting.added, key=lambda each: keys.get(each.name, len(keys)))
                self._database.create(table.name, columns)
            else:
                for added in fitting.added:
                    self._database.add(table.name, added)
                self._fill(table.name, fitting.added)
                for widened in fitting.widened:
                    self._database.widen(table.name, widened)
        changed = self._database.shape(table.name)
        if changed is None or not self._fit(table, changed).is_complete:
            raise TableChanged(f"{table.name} changes again and again")
        self._shapes[table.name] = changed
        return changed

    def _fill(self, name: TableName, added: Sequence[NewColumn]) -> None:
        """Give the rows of a table the defaults of new columns, as the rows of the source have them."""
        if all(each.default is None for each in added):
            return
        shape = self._database.shape(name)
        for each in added:
            column = None if shape is None or each.default is None else shape.find(each.name)
            if column is not None:
                with suppress(Misfit):
                    self._database.fill(name, column, ENCODERS[column.type](each.default))

    def _check_changes(self, table: TableRows, shape: TableShape | None, fitting: Fitting) -> None:
        """Raise a failure if the settings do not allow what a table needs, or a column's name is none."""
        if shape is None and not self.config.auto_create:
            raise ConnectFailed(f"there is no table {table.name}, and auto.create is false")
        names = [each.name for each in fitting.added] + [each.column.name for each in fitting.widened]
        for name, record in zip(names, fitting.causes, strict=True):
            wrong = self._database.wrong_name(name)
            if wrong is not None:
                raise RecordFailed(f"{record.place} has a field that cannot be a column: {wrong}", record)
            if shape is not None and not self.config.auto_evolve:
                raise RecordFailed(
                    f"{record.place} needs another column or type for {name} in {table.name}, and auto.evolve is false",
                    record,
                )
            if shape is None or name not in table.keys:
                continue
            column = shape.find(name)
            if column is None:
                raise ConnectFailed(f"the table {table.name} has no column {name}, which is part of the primary key")
            if not self._database.widens_keys:
                raise RecordFailed(
                    f"{record.place} has a key that does not fit {name} of {table.name}, which is {column.sql_type}",
                    record,
                )

    def expected(self, record: SinkRecord) -> ExpectedRow:
        """Return where a record's row is, and its digest."""
        with self._database.guarded():
            return self._comparing.expected(record)

    def digests(self, keys: Collection[TargetKey]) -> Mapping[TargetKey, bytes]:
        """Return the digest of each row that exists, of these keys."""
        with self._database.guarded():
            return self._comparing.digests(keys)

    def scan(self) -> Iterator[tuple[TargetKey, bytes]]:
        """Yield every row that the connector has written."""
        with self._database.guarded():
            yield from self._comparing.scan()

    def fresh_target(self, suffix: str = "rebuild") -> Self:
        """Return a sink that writes beside the target, into tables `<table>__<suffix>`."""
        fresh = type(self)(self.config, f"{self._suffix}__{suffix}")
        fresh.paths = self.paths
        return fresh

    def swap(self) -> None:
        """Put this fresh target in the place of the old one; see `verifiable`."""
        with self._database.guarded():
            swap_tables(self._database, self.config.connector, self._checked_suffix)
        self._forget_shapes()

    def discard(self) -> None:
        """Remove this fresh target."""
        with self._database.guarded():
            discard_target(self._database, self.config.connector + self._checked_suffix)
        self._forget_shapes()

    def drop_old(self) -> None:
        """Remove the tables that were replaced."""
        with self._database.guarded():
            drop_old_tables(self._database, self.config.connector)

    def _forget_shapes(self) -> None:
        self._shapes.clear()
        self._comparing.forget_shapes()

    @property
    def _checked_suffix(self) -> str:
        if not self._suffix:
            raise ConnectFailed("this is the target itself: ask it for a fresh_target first")
        return self._suffix


def _unwritten(records: Sequence[SinkRecord], stored: Mapping[TopicPosition, int]) -> Sequence[SinkRecord]:
    """Return the records that are not yet written, by the stored offsets."""
    if max(stored.values(), default=0) <= min((each.offset for each in records), default=0):
        return records
    return [
        each
        for each in records
        if each.offset >= stored.get(TopicPosition(each.original_topic, each.original_partition), 0)
    ]


def _at(fitting: Fitting, name: str, indexes: Sequence[int]) -> list[Any]:
    values = fitting.values[name]
    return values if len(indexes) == len(values) else [values[index] for index in indexes]
