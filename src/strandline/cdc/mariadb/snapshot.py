"""Snapshots: all rows of the captured tables as of one GTID position.

With the global read lock no transaction commits between the position and the view of the rows. Without the right to
lock, the server tells the binlog position that belongs to the view of `START TRANSACTION WITH CONSISTENT SNAPSHOT`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pymysql
from pymysql.cursors import SSCursor

from strandline._version import __version__
from strandline.cdc.envelope import MARIADB_SOURCE
from strandline.cdc.events import EventMaker
from strandline.cdc.expressions import NamePatterns
from strandline.cdc.mariadb import catalogue, text_values
from strandline.cdc.mariadb.changes import CONNECTOR
from strandline.cdc.mariadb.connection import DENIED, close, connect, explained, query
from strandline.cdc.mariadb.prepared import check_none_prepared
from strandline.cdc.mariadb.schema_changes import SchemaChanges
from strandline.cdc.mariadb.settings import MariadbCdcConfig
from strandline.cdc.mariadb.shapes import MariadbTableShape
from strandline.cdc.mariadb.statements import NamedTable
from strandline.cdc.mariadb.tables import MariadbTables
from strandline.cdc.model import CapturedTable, Row, RowChange
from strandline.cdc.names import TopicNames
from strandline.connect.failures import ConnectFailed
from strandline.connect.records import SourceRecord

_LOG: Final = logging.getLogger(__name__)
_FETCHED: Final = 1024


@dataclass(frozen=True)
class SnapshotPosition:
    """Where the stream goes on behind a snapshot."""

    gtids: str
    file: str
    position: int

    @property
    def offset(self) -> dict[str, Any]:
        return {"gtids": self.gtids, "file": self.file, "pos": self.position}


class MariadbSnapshot:
    """One snapshot. `position` is known as soon as it is open."""

    def __init__(self, config: MariadbCdcConfig, tables: MariadbTables, names: TopicNames) -> None:
        self._config = config
        self._tables = tables
        self._names = names
        self._maker = EventMaker(config, names, MARIADB_SOURCE)
        self._now_ns = time.time_ns()
        self._connection = connect(config)
        self._is_locked = False
        try:
            with explained(config):
                self.position = self._begin()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection, and with it the lock and the transaction."""
        close(self._connection)

    def batches(self, *, has_rows: bool) -> Iterator[tuple[list[SourceRecord], bool]]:
        """Yield the records of the tables, in lists of about `max.batch.size`, and whether a list is the last."""
        batch: list[SourceRecord] = []
        with explained(self._config):
            shapes = self._shapes()
            if self._config.include_schema_changes:
                batch += self._schemas(shapes)
            if has_rows:
                chosen = NamePatterns(self._config.snapshot_include_collection_list)
                for change in _marked(
                    self._rows([each for each in shapes if not chosen or chosen.matches(each.full_name)])
                ):
                    # Only with another row at hand, so that the last list is not empty.
                    if len(batch) >= self._config.max_batch_size:
                        yield batch, False
                        batch = []
                    batch += self._maker.change(change)
            query(self._connection, "commit")
        yield batch, True

    def _begin(self) -> SnapshotPosition:
        """Take the view of the rows, and the position that belongs to it."""
        connection = self._connection
        query(connection, "set session transaction isolation level repeatable read")
        if self._config.snapshot_locking_mode != "none":
            self._is_locked = self._lock()
        check_none_prepared(connection)
        query(connection, "start transaction with consistent snapshot, read only")
        if self._is_locked:
            (status,) = query(connection, "show master status")
            ((gtids,),) = query(connection, "select @@global.gtid_binlog_pos")
            found = SnapshotPosition(gtids or "", status[0], int(status[1]))
            if self._config.snapshot_locking_mode == "minimal":
                query(connection, "unlock tables")
            return found
        view = dict(query(connection, "show status like 'binlog_snapshot_%'"))
        file, position = view["Binlog_snapshot_file"], int(view["Binlog_snapshot_position"])
        ((gtids,),) = query(connection, "select binlog_gtid_pos(%s, %s)", file, position)
        if gtids is None:
            raise ConnectFailed(f"MariaDB has purged the binlog {file} while the snapshot began: start it again")
        return SnapshotPosition(gtids, file, position)

    def _lock(self) -> bool:
        try:
            query(self._connection, "flush tables with read lock")
        except pymysql.Error as error:
            if not error.args or error.args[0] not in DENIED:
                raise
            _LOG.warning(
                "the user %s may not lock tables (GRANT RELOAD): the snapshot takes the position of InnoDB's view; "
                "rows of tables without transactions that change meanwhile may be missing or doubled",
                self._config.database_user,
            )
            return False
        return True

    def _shapes(self) -> list[MariadbTableShape]:
        names = [each for each in catalogue.table_names(self._connection) if self._tables.has_table(*each)]
        found = (catalogue.table(self._connection, *each) for each in names)
        return [each for each in found if each is not None]

    def _schemas(self, shapes: list[MariadbTableShape]) -> Iterator[SourceRecord]:
        schema_changes = SchemaChanges(self._names, self._config.schema_name_adjustment_mode)
        for shape in shapes:
            name = f"{text_values.quoted(shape.database)}.{text_values.quoted(shape.name)}"
            ((_, ddl, *_),) = query(self._connection, f"show create table {name}")
            named = [NamedTable("CREATE", shape.database, shape.name)]
            yield schema_changes.event(shape.database, ddl, named, self._source(shape) | {"snapshot": "true"})

    def _rows(self, shapes: list[MariadbTableShape]) -> Iterator[RowChange]:
        for shape in shapes:
            table, source = self._tables.captured(shape), self._source(shape)
            for row in self._rows_of(shape, table):
                yield RowChange(table, "r", None, row, source)

    def _rows_of(self, shape: MariadbTableShape, table: CapturedTable) -> Iterator[Row]:
        # A column that is left out is not read: NULL stands in its place.
        chosen = zip(shape.columns, table.columns, strict=True)
        columns = ", ".join("null" if captured is None else text_values.selected(each) for each, captured in chosen)
        name = f"{text_values.quoted(shape.database)}.{text_values.quoted(shape.name)}"
        readers = [
            (at, read)
            for at, (each, captured) in enumerate(zip(shape.columns, table.columns, strict=True))
            if captured is not None and (read := text_values.reader(each)) is not None
        ]
        cursor, is_read = self._connection.cursor(SSCursor), False
        try:
            cursor.execute(f"select {columns} from {name}")
            while fetched := cursor.fetchmany(self._config.snapshot_fetch_size or _FETCHED):
                for each in fetched:
                    row = list(each)
                    for at, read in readers:
                        if row[at] is not None:
                            row[at] = read(row[at])
                    yield row
            is_read = True
        finally:
            if not is_read and cursor._result is not None:
                # A snapshot that is given up would read the rest of the table before it closes the cursor.
                cursor._result.unbuffered_active = False
                self._connection._force_close()
            cursor.close()

    def _source(self, shape: MariadbTableShape) -> dict[str, Any]:
        return {
            "version": __version__,
            "connector": CONNECTOR,
            "name": self._config.topic_prefix,
            "ts_ms": self._now_ns // 1_000_000,
            "snapshot": "true",
            "db": shape.database,
            "sequence": None,
            "ts_us": self._now_ns // 1000,
            "ts_ns": self._now_ns,
            "table": shape.name,
            "server_id": 0,
            "gtid": None,
            "file": self.position.file,
            "pos": self.position.position,
            "row": 0,
            "thread": None,
            "query": None,
        }


def _marked(changes: Iterator[RowChange]) -> Iterator[RowChange]:
    """Yield changes of a snapshot with the marks of the first and last rows of it, and of each table."""
    last: CapturedTable | None = None
    this = next(changes, None)
    is_first = True
    while this is not None:
        following = next(changes, None)
        if following is None:
            mark = "last"
        elif is_first:
            mark = "first"
        elif this.table is not last:
            mark = "first_in_data_collection"
        elif following.table is not this.table:
            mark = "last_in_data_collection"
        else:
            mark = "true"
        if mark != "true":
            this.source = {**this.source, "snapshot": mark}
        is_first, last = False, this.table
        yield this
        this = following
