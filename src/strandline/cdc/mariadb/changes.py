"""Binlog events as records: transactions by their GTIDs, rows by their table maps, DDL by its text.

GTID, rows …, XID            a transaction; its position counts from the XID on
GTID, rows …, COMMIT         one of tables without transactions
GTID (standalone), query     DDL
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from strandline._version import __version__
from strandline.cdc.envelope import MARIADB_SOURCE
from strandline.cdc.events import EventMaker
from strandline.cdc.mariadb import binlog, statements
from strandline.cdc.mariadb.binlog import BinlogEvent
from strandline.cdc.mariadb.gtid import Gtid, GtidPosition
from strandline.cdc.mariadb.prepared import PreparedTransaction, PreparedTransactions, xid_of
from strandline.cdc.mariadb.schema_changes import SchemaChanges
from strandline.cdc.mariadb.settings import MariadbCdcConfig
from strandline.cdc.mariadb.shapes import ReadValue
from strandline.cdc.mariadb.tables import BinlogTable, MariadbTables, unknown_rows
from strandline.cdc.model import CapturedTable, Operation, Row, RowChange, TransactionPlace
from strandline.cdc.names import TopicNames
from strandline.connect.failures import ConnectFailed
from strandline.connect.records import SourceRecord

CONNECTOR: Final = "mariadb"
_FLAGS_AT: Final = 12
"""Where the flags are in a GTID event."""
_STANDALONE: Final = 1
_PREPARED: Final = 64
_NO_TABLE: Final = b"\xff\xff\xff\0\0\0"
"""The table id of a rows event that only ends a statement."""


@dataclass
class _Transaction:
    """The transaction that is being read."""

    gtid: Gtid
    timestamp_s: int
    is_standalone: bool
    first: int
    """Where its records begin among those that were not taken."""
    is_taken: bool = False
    """Whether some of its records were taken."""
    counts: Counter[str] = field(default_factory=Counter)
    """Events of each table."""
    total: int = 0
    thread: int | None = None
    savepoints: dict[str, tuple[int, int, Counter[str]]] = field(default_factory=dict)
    """Records and counts at each savepoint."""


class BinlogChanges:
    """Turns events into records. `records` are those since they were last taken."""

    def __init__(
        self,
        config: MariadbCdcConfig,
        tables: MariadbTables,
        names: TopicNames,
        position: GtidPosition,
        offset: Mapping[str, Any],
    ) -> None:
        """Begin behind a position, with the offset that it is from."""
        self._config = config
        self._tables = tables
        self._maker = EventMaker(config, names, MARIADB_SOURCE)
        self._schema_changes = SchemaChanges(names, config.schema_name_adjustment_mode)
        self._mapped: dict[bytes, BinlogTable | None] = {}
        self._transaction: _Transaction | None = None
        self._query: str | None = None
        self._held: PreparedTransaction | None = None
        """The XA transaction that is being read, if it is to be prepared."""
        self._prepared = PreparedTransactions(config, offset)
        self._file = ""
        self.position = position
        """Behind the last transaction that was read to its end."""
        self.offset: dict[str, Any] = {}
        """The same as a source's offset."""
        self.records: list[SourceRecord] = []

    @property
    def is_in_transaction(self) -> bool:
        return self._transaction is not None

    @property
    def may_be_taken(self) -> bool:
        """Whether nothing of the records can be rolled back any more to a savepoint."""
        return self._transaction is None or not self._transaction.savepoints

    def take(self) -> list[SourceRecord]:
        """Return the records, and begin with none."""
        taken, self.records = self.records, []
        if self._transaction is not None:
            self._transaction.is_taken |= len(taken) > self._transaction.first
            self._transaction.first = 0
        return taken

    def add(self, event: BinlogEvent) -> None:
        """Read an event."""
        kind = event.type
        if self._held is not None and self._held.events is not None and kind not in (binlog.XA_PREPARE, binlog.ROTATE):
            self._held.events.append(event)
        elif kind in binlog.ROWS:
            self._rows(event)
        elif kind == binlog.TABLE_MAP:
            # Two bytes of flags follow the id.
            self._mapped[event.body[:6]] = self._tables.mapped(event.body[8:])
        elif kind == binlog.GTID:
            self._begin(event)
        elif kind == binlog.XID:
            self._commit(event)
        elif kind == binlog.QUERY:
            self._statement(event)
        elif kind == binlog.ANNOTATE_ROWS:
            self._query = event.body.decode("utf-8", "replace")
        elif kind == binlog.ROTATE:
            self._file = event.body[8:].decode("utf-8", "replace")
            self._mapped.clear()
        elif kind == binlog.XA_PREPARE:
            if self._held is not None:
                self._prepared.add(xid_of(event.body), self._held)
                self._held = None
            self._commit(event)

    def _begin(self, event: BinlogEvent) -> None:
        gtid, flags = Gtid.of(event.body, event.server_id), event.body[_FLAGS_AT]
        if flags & _PREPARED:
            self._held = PreparedTransaction(str(self.position), str(gtid), [])
        self._transaction = _Transaction(gtid, event.timestamp_s, bool(flags & _STANDALONE), len(self.records))

    def _commit(self, event: BinlogEvent) -> None:
        transaction = self._transaction
        if transaction is None:
            raise unknown_rows("a transaction", self._file, event.position, "it ends without a GTID at its begin")
        if transaction.total and self._config.provide_transaction_metadata:
            counts, gtid = transaction.counts, str(transaction.gtid)
            self.records.append(self._maker.transaction_end(gtid, event.timestamp_s * 1000, counts))
        self.position.advance(transaction.gtid)
        self.offset = {
            "gtids": str(self.position),
            "file": self._file,
            "pos": event.end,
            "server_id": event.server_id,
            "ts_sec": event.timestamp_s,
            **self._prepared.offset,
        }
        self._transaction = self._query = None

    def _rollback(self, event: BinlogEvent) -> None:
        """Drop the records of a transaction of which the server wrote a part before it was rolled back."""
        transaction = self._transaction
        assert transaction is not None
        if transaction.is_taken:
            raise ConnectFailed(
                f"the transaction {transaction.gtid} ends with ROLLBACK in the binlog {self._file} at {event.position} "
                "and is too large to be held back: raise max.batch.size and max.queue.size above its rows"
            )
        del self.records[transaction.first :]
        transaction.total = 0
        self._commit(event)

    def _savepoint(self, transaction: _Transaction, statement: str) -> None:
        """Set a savepoint, or go back to one: with tables without transactions the binlog has what was rolled back."""
        is_back, name = statements.savepoint_of(statement)
        if not is_back:
            transaction.savepoints[name] = len(self.records), transaction.total, transaction.counts.copy()
        elif name in transaction.savepoints:
            first, transaction.total, counts = transaction.savepoints[name]
            transaction.counts = counts.copy()
            del self.records[first:]

    def _rows(self, event: BinlogEvent) -> None:
        table_id = event.body[:6]
        if table_id not in self._mapped:
            if table_id == _NO_TABLE:
                return
            raise unknown_rows("a table", self._file, event.position, "no table map came before them")
        table = self._mapped[table_id]
        transaction = self._transaction
        if table is None:
            return
        if transaction is None:
            raise unknown_rows(table.shape.full_name, self._file, event.position, "no GTID came before them")
        self._transaction_begin(transaction)
        source = self._source(event, table.captured.database, table.captured.name)
        metadata = self._config.provide_transaction_metadata
        make, records = self._maker.change, self.records
        for number, (op, before, after) in enumerate(self._changes(event, table)):
            place = self._place(transaction, table.captured) if metadata else None
            made = make(RowChange(table.captured, op, before, after, {**source, "row": number}, place))
            records += made
            if metadata and (more := sum(each.value is not None for each in made) - 1) > 0:
                # A changed key is two events.
                transaction.total += more
                transaction.counts[table.captured.full_name] += more
        if not metadata:
            transaction.total += 1

    def _transaction_begin(self, transaction: _Transaction) -> None:
        if self._config.provide_transaction_metadata and not transaction.total:
            ts_ms = transaction.timestamp_s * 1000
            self.records.append(self._maker.transaction_begin(str(transaction.gtid), ts_ms))

    def _place(self, transaction: _Transaction, table: CapturedTable) -> TransactionPlace:
        transaction.total += 1
        transaction.counts[table.full_name] += 1
        return TransactionPlace(str(transaction.gtid), transaction.total, transaction.counts[table.full_name])

    def _changes(self, event: BinlogEvent, table: BinlogTable) -> Iterator[tuple[Operation, Row | None, Row | None]]:
        body, name = event.body, table.shape.full_name
        is_update = event.type in binlog.UPDATES
        count, bitmaps, start = binlog.rows_head(event.type, body)
        if not _is_whole(body[bitmaps:start], count, len(table.shape.columns)):
            why = "a session wrote them with another binlog_row_image than FULL; forbid that, and take a new snapshot"
            raise unknown_rows(name, self._file, event.position, why)
        readers, at, end = table.shape.readers, start, len(body)
        try:
            while at < end:
                row, at = read_row(readers, body, at)
                if is_update:
                    after, at = read_row(readers, body, at)
                    yield "u", row, after
                elif event.type in binlog.WRITES:
                    yield "c", None, row
                else:
                    yield "d", row, None
        except (IndexError, struct.error, ValueError, ArithmeticError, zlib.error) as error:
            raise unknown_rows(name, self._file, event.position, f"{type(error).__name__}: {error}") from error
        if at != end:
            raise unknown_rows(name, self._file, event.position, f"they end {at - end} bytes behind the event")

    def _source(self, event: BinlogEvent, database: str, table: str | None) -> dict[str, Any]:
        transaction = self._transaction
        return {
            "version": __version__,
            "connector": CONNECTOR,
            "name": self._config.topic_prefix,
            "ts_ms": event.timestamp_s * 1000,
            "snapshot": "false",
            "db": database,
            "sequence": None,
            "ts_us": event.timestamp_s * 1_000_000,
            "ts_ns": event.timestamp_s * 1_000_000_000,
            "table": table,
            "server_id": event.server_id,
            "gtid": None if transaction is None else str(transaction.gtid),
            "file": self._file,
            "pos": event.position,
            "row": 0,
            "thread": None if transaction is None else transaction.thread,
            "query": self._query,
        }

    def _statement(self, event: BinlogEvent) -> None:
        thread, database, text = binlog.query_parts(event.body)
        transaction = self._transaction
        if transaction is None:
            return
        transaction.thread = thread
        statement = statements.plain(text)
        ended = statements.prepared_end(statement)
        if ended is not None:
            # Its events may be statements, which would end a transaction of one statement.
            transaction.is_standalone = False
            for each in self._prepared.end(ended[1], is_committed=ended[0]):
                self.add(each)
            self._commit(event)
            return
        match statements.kind_of(statement):
            case "commit":
                self._commit(event)
                return
            case "rollback":
                self._rollback(event)
                return
            case "savepoint":
                self._savepoint(transaction, statement)
            case "ddl" | "truncate":
                self._ddl(event, database, text, statement)
            case "change" if self._tables.has_database(database):
                raise ConnectFailed(
                    f"the binlog {self._file} has a statement instead of rows at {event.position}, because a session "
                    f"in the database {database} set another binlog_format than ROW: {statement[:80]!r}; forbid that, "
                    "and take a new snapshot"
                )
        if transaction.is_standalone:
            self._commit(event)

    def _ddl(self, event: BinlogEvent, database: str, text: str, statement: str) -> None:
        self._tables.forget()
        named = statements.tables_of(statement, database)
        owner = statements.database_of(statement) or (named[0].database if named else database)
        captured = [each for each in named if self._tables.has_table(each.database, each.name)]
        if not self._tables.has_database(owner) or (named and not captured):
            return
        if self._config.include_schema_changes:
            source = self._source(event, owner, ",".join(each.name for each in captured) or None)
            self.records.append(self._schema_changes.event(owner, text, captured, source))
        if statements.kind_of(statement) == "truncate" and "t" not in self._config.skipped:
            for each in captured:
                self._truncated(event, each.database, each.name)

    def _truncated(self, event: BinlogEvent, database: str, name: str) -> None:
        transaction, shape = self._transaction, self._tables.known(database, name)
        if shape is None or transaction is None:
            return
        table = self._tables.captured(shape)
        self._transaction_begin(transaction)
        place = self._place(transaction, table) if self._config.provide_transaction_metadata else None
        source = self._source(event, database, name)
        self.records += self._maker.change(RowChange(table, "t", None, None, source, place))


def read_row(readers: tuple[ReadValue, ...], data: bytes, at: int) -> tuple[list[Any], int]:
    """Read one row: a bit for each column that is NULL, and the values of the others."""
    count = len(readers)
    size = (count + 7) // 8
    nulls = int.from_bytes(data[at : at + size], "little") & (1 << count) - 1
    at += size
    row: list[Any] = []
    add: Callable[[Any], None] = row.append
    if not nulls:
        for read in readers:
            value, at = read(data, at)
            add(value)
        return row, at
    for read in readers:
        if nulls & 1:
            add(None)
        else:
            value, at = read(data, at)
            add(value)
        nulls >>= 1
    return row, at


def _is_whole(bitmaps: bytes, count: int, columns: int) -> bool:
    """Return whether the images of rows have all columns."""
    size = (count + 7) // 8
    full = (1 << count) - 1
    images = (bitmaps[at : at + size] for at in range(0, len(bitmaps), size))
    return count == columns and all(int.from_bytes(each, "little") & full == full for each in images)
