"""Messages of a replication stream as batches of records, each of whole transactions."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from strandline._version import __version__
from strandline.cdc.events import EventMaker
from strandline.cdc.expressions import NamePatterns
from strandline.cdc.model import RowChange, TransactionPlace
from strandline.cdc.postgres import pgoutput
from strandline.cdc.postgres.bad_rows import CONVERSION_FAILURES, BadRows
from strandline.cdc.postgres.pgoutput import LogicalMessage, UnknownMessage
from strandline.cdc.postgres.positions import WalPosition
from strandline.cdc.postgres.replication import KEEPALIVE, REPLY_WANTED
from strandline.cdc.postgres.settings import PostgresCdcConfig
from strandline.cdc.postgres.tables import StreamedTable, Tables
from strandline.cdc.postgres.types import UnknownLabel
from strandline.connect.records import Batch, SourceRecord

BATCH_BYTES_MAX: Final = 16 * 1024 * 1024
CONNECTOR: Final = "postgresql"
LSN_MAX: Final = 2**64 - 1
Insertion = Callable[[StreamedTable, list[Any]], None]


class ChangeReader:
    """Decodes a stream from a position on. It holds at most one batch of records."""

    def __init__(
        self,
        config: PostgresCdcConfig,
        tables: Tables,
        events: EventMaker,
        position: WalPosition,
        stopping: threading.Event,
        until_lsn: int = LSN_MAX,
    ) -> None:
        """Transactions that commit at `until_lsn` or behind it are left out."""
        self._config = config
        self._tables = tables
        self._events = events
        self._stopping = stopping
        self._bad_rows = BadRows(config)
        self.position = position
        """Behind the last whole transaction that was decoded."""
        self.is_reply_wanted = False
        """Whether the server waits for a position that covers all it has sent."""
        self.on_row: Callable[[StreamedTable, list[Any] | None, list[Any] | None], None] | None = None
        """Sees each captured row, before and after, for incremental snapshots."""
        self.on_signal: Insertion | None = None
        """Takes the rows that are inserted into the table for signals."""
        self.on_commit: Callable[[], None] | None = None
        """Called behind the last record of a transaction, to add some of its own."""
        self._relations: dict[int, StreamedTable] = {}
        self._partition = {"server": config.topic_prefix}
        self._records: list[SourceRecord] = []
        self._whole = 0
        """How many of the records belong to whole transactions."""
        self._size = 0
        self._start_lsn = position.lsn
        self._until_lsn = until_lsn
        self.is_at_end = position.lsn >= until_lsn
        """Whether everything before `until_lsn` has come."""
        self._is_in_transaction = False
        self._is_skipping = False
        self._was_cut = False
        """Whether a part of the last transaction has left in an open batch, which the next one has to close."""
        self._must_close = False
        self._begin = pgoutput.Begin(0, 0, 0)
        self._origin: tuple[int, str] | None = None
        self._common: tuple[Any, Any, Any, dict[str, Any]] = None, None, None, {}
        """The last table, transaction and origin, and the source block that their changes share."""
        self._transaction_id = ""
        self._has_places = config.provide_transaction_metadata
        self._counts: dict[str, int] = {}
        self._total = 0
        include, exclude = config.message_prefix_include_list, config.message_prefix_exclude_list
        self._prefixes = NamePatterns(include), NamePatterns(exclude)
        self._known: Mapping[int, Callable[[int, bytes], None]] = {
            pgoutput.INSERT: self._on_insert,
            pgoutput.UPDATE: self._on_update,
            pgoutput.DELETE: self._on_delete,
            pgoutput.BEGIN: self._on_begin,
            pgoutput.COMMIT: self._on_commit,
            pgoutput.RELATION: self._on_relation,
            pgoutput.TRUNCATE: self._on_truncate,
            pgoutput.MESSAGE: self._on_message,
            pgoutput.ORIGIN: self._on_origin,
            pgoutput.TYPE: lambda lsn, message: None,
            KEEPALIVE: self._on_keepalive,
        }

    @property
    def is_large(self) -> bool:
        """Whether a batch is full."""
        return len(self._records) >= self._config.max_batch_size or self._size >= BATCH_BYTES_MAX

    @property
    def has_whole(self) -> bool:
        """Whether there is something whole: records of transactions, or the end of one that was cut."""
        return self._whole > 0 or self._must_close

    @property
    def xid(self) -> int:
        """The transaction that is decoded."""
        return self._begin.xid

    def must_store(self) -> None:
        """Have the next batch come even if it has no records, because the position has changed."""
        self._must_close = True

    def add(self, records: list[SourceRecord]) -> None:
        """Add records that are no changes, as heartbeats. Between transactions they are whole by themselves."""
        self._records += records
        if not self._is_in_transaction:
            self._whole = len(self._records)

    @property
    def is_in_transaction(self) -> bool:
        return self._is_in_transaction

    def feed(self, lsn: int, message: bytes) -> None:
        """Decode one message."""
        kind = message[0]
        handle = self._known.get(kind)
        if handle is None:
            raise UnknownMessage(f"the replication stream has an unknown message of the kind {chr(kind)!r}")
        try:
            handle(lsn, message)
        except (struct.error, IndexError, ValueError) as error:
            raise UnknownMessage(
                f"the replication stream has a message that cannot be read at {lsn}: {error}"
            ) from error

    def take(self) -> Batch:
        """Return what is decoded: whole transactions, or else the next part of one that is larger than a batch."""
        self._size = 0
        if self._is_in_transaction and not self.has_whole:
            records, self._records = self._records, []
            self._was_cut = True
            return Batch(records, is_open=True)
        records = self._records[: self._whole]
        del self._records[: self._whole]
        self._whole = 0
        self._must_close = False
        return Batch(records, self._partition, self.position.stored())

    def source(self, table: StreamedTable, lsn: int) -> dict[str, Any]:
        """Return the source block of a change in the stream."""
        begin, last = self._begin, self.position.commit_lsn
        known, known_begin, origin, common = self._common
        if known is not table or known_begin is not begin or origin is not self._origin:
            common = self._common_source(table)
            self._common = table, begin, self._origin, common
        return {**common, "sequence": f'[null,"{lsn}"]' if last is None else f'["{last}","{lsn}"]', "lsn": lsn}

    def _common_source(self, table: StreamedTable) -> dict[str, Any]:
        """Return the source block of a transaction's changes of a table, with its fields in their order."""
        begin, origin = self._begin, self._origin
        ts_us = begin.commit_us
        return {
            "version": __version__,
            "connector": CONNECTOR,
            "name": self._config.topic_prefix,
            "ts_ms": ts_us // 1000,
            "snapshot": "false",
            "db": self._config.database_dbname,
            "sequence": None,
            "ts_us": ts_us,
            "ts_ns": ts_us * 1000,
            "schema": table.schema,
            "table": table.name,
            "txId": begin.xid,
            "lsn": None,
            "xmin": None,
            "origin": None if origin is None else origin[1],
            "origin_lsn": None if origin is None else origin[0],
        }

    def _on_begin(self, lsn: int, message: bytes) -> None:
        self._begin = begin = pgoutput.begin(message)
        self._is_in_transaction = True
        self.is_at_end = self.is_at_end or begin.final_lsn >= self._until_lsn
        # A commit that begins before the stored position ends at it or before: the log has it.
        self._is_skipping = begin.final_lsn < self._start_lsn or self.is_at_end
        self._origin = None
        if self._has_places and not self._is_skipping:
            self._transaction_id = f"{begin.xid}:{begin.final_lsn}"
            self._counts = {}
            self._total = 0
            self._records.append(self._events.transaction_begin(self._transaction_id, begin.commit_us // 1000))

    def _on_commit(self, lsn: int, message: bytes) -> None:
        if self._is_skipping:
            self._is_in_transaction = self._is_skipping = False
            return
        commit = pgoutput.commit(message)
        if self.on_commit is not None:
            self.on_commit()
        if self._has_places:
            end = self._events.transaction_end(self._transaction_id, commit.commit_us // 1000, self._counts)
            self._records.append(end)
        self._is_in_transaction = False
        self._whole = len(self._records)
        self._must_close = self._must_close or self._was_cut
        self._was_cut = False
        self._move(commit.end_lsn, commit.end_lsn, self._begin.xid, commit.commit_us)

    def _move(self, lsn: int, commit_lsn: int | None, xid: int | None, ts_us: int | None) -> None:
        old = self.position
        self.position = WalPosition(lsn, commit_lsn, xid, ts_us, old.system_id, old.is_snapshot, old.incremental)
        self.is_at_end = self.is_at_end or lsn >= self._until_lsn

    def _on_keepalive(self, lsn: int, message: bytes) -> None:
        if self._is_in_transaction:
            return
        self.is_reply_wanted |= message == REPLY_WANTED
        old = self.position
        lsn = min(lsn, self._until_lsn)
        if lsn > old.lsn:
            # Every commit before this one was sent, so nothing before it is ours.
            self._move(lsn, old.commit_lsn, old.xid, old.ts_us)

    def _on_origin(self, lsn: int, message: bytes) -> None:
        self._origin = pgoutput.origin(message)

    def _on_relation(self, lsn: int, message: bytes) -> None:
        relation = pgoutput.relation(message)
        known = self._relations.get(relation.oid)
        made = self._tables.of_transaction(relation, self._begin.xid, self._stopping)
        # PostgreSQL describes a table again after each ANALYZE; the same shape keeps its schemas.
        if known is None or not known.is_same(made):
            self._relations[relation.oid] = made

    def _table_of(self, message: bytes) -> StreamedTable:
        oid = pgoutput.relation_oid(message)
        found = self._relations.get(oid)
        if found is None:
            raise UnknownMessage(f"the replication stream has a row of the table {oid}, which it did not describe")
        return found

    def _on_insert(self, lsn: int, message: bytes) -> None:
        if self._is_skipping:
            return
        table = self._table_of(message)
        if table.table is None and self.on_signal is None:
            return
        row = pgoutput.insert(message)
        self._size += len(message)
        if self.on_signal is not None and (table.schema, table.name) == self._tables.signal_table:
            self.on_signal(table, row)
        self._change(table, "c", None, row, lsn)

    def _on_update(self, lsn: int, message: bytes) -> None:
        if self._is_skipping:
            return
        table = self._table_of(message)
        if table.table is None:
            return
        kind, old, new = pgoutput.update(message)
        self._size += len(message)
        if old is not None and kind == pgoutput.KEY_ROW:
            old = table.known_key(old)
        self._change(table, "u", old, new, lsn)

    def _on_delete(self, lsn: int, message: bytes) -> None:
        if self._is_skipping:
            return
        table = self._table_of(message)
        if table.table is None:
            return
        kind, old = pgoutput.delete(message)
        self._size += len(message)
        if kind == pgoutput.KEY_ROW:
            old = table.known_key(old)
        self._change(table, "d", old, None, lsn)

    def _on_truncate(self, lsn: int, message: bytes) -> None:
        if self._is_skipping:
            return
        for oid in pgoutput.truncate(message):
            table = self._relations.get(oid)
            if table is not None and table.table is not None:
                self._change(table, "t", None, None, lsn)

    def _change(
        self, table: StreamedTable, op: Any, before: list[Any] | None, after: list[Any] | None, lsn: int
    ) -> None:
        if table.table is None:
            return
        if before is not None and None in before:
            table = self._fitting(table, before)
        if after is not None and None in after:
            table = self._fitting(table, after)
        assert table.table is not None
        if self.on_row is not None:
            self.on_row(table, before, after)
        change = RowChange(table.table, op, before, after, self.source(table, lsn))
        if self._has_places:
            change.transaction = self._next_place(table.full_name)
        try:
            records = self._events.change(change)
        except UnknownLabel as unknown:
            self._tables.learn(unknown)
            self._relations[table.relation.oid] = again = self._tables.of_stream(table.relation)
            self._change(again, op, before, after, lsn)
            return
        except CONVERSION_FAILURES as error:
            self._records += self._bad_rows.records(table, op, before, after, lsn, error)
            return
        self._records += records
        if self._has_places:
            self._count(table.full_name, sum(each.value is not None for each in records))

    def _fitting(self, table: StreamedTable, row: list[Any]) -> StreamedTable:
        """Return the table in a shape that has room for a row with NULL."""
        for at in table.required:
            if row[at] is None:
                names = (table.relation.columns[each].name for each in table.required if row[each] is None)
                made = self._relations[table.relation.oid] = self._tables.of_stream(table.relation, frozenset(names))
                return made
        return table

    def _next_place(self, full_name: str) -> TransactionPlace:
        return TransactionPlace(self._transaction_id, self._total + 1, self._counts.get(full_name, 0) + 1)

    def _count(self, full_name: str, events: int) -> None:
        if events:
            self._total += events
            self._counts[full_name] = self._counts.get(full_name, 0) + events

    def _on_message(self, lsn: int, message: bytes) -> None:
        found = pgoutput.logical_message(message)
        if found.is_transactional:
            if not self._is_skipping and self._has_prefix(found.prefix):
                place = self._next_place("") if self._has_places else None
                self._records.append(self._message(found, lsn, place))
                self._count("", 1)
            return
        if not self._start_lsn < found.lsn <= self._until_lsn:
            return
        # It belongs to no transaction, so its position is one of its own; it never comes inside of a transaction.
        if self._has_prefix(found.prefix):
            self._begin = pgoutput.Begin(found.lsn, time.time_ns() // 1000, 0)
            self._records.append(self._message(found, lsn, None))
            self._whole = len(self._records)
            self._size += len(message)
        old = self.position
        self._move(max(found.lsn, old.lsn), old.commit_lsn, old.xid, old.ts_us)

    def _has_prefix(self, prefix: str) -> bool:
        include, exclude = self._prefixes
        return include.matches(prefix) if include else not exclude.matches(prefix)

    def _message(self, found: LogicalMessage, lsn: int, place: TransactionPlace | None) -> SourceRecord:
        nowhere = StreamedTable(pgoutput.StreamRelation(0, "", "", "d", ()), None, ())
        source = self.source(nowhere, lsn)
        if not found.is_transactional:
            source["txId"] = None
        return self._events.message(found.prefix, found.content, source, place)
