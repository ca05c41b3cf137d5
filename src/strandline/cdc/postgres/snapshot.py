"""The initial snapshot: the rows of all tables at one position of the WAL, where the stream then begins."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final

import psycopg

from strandline._version import __version__
from strandline.cdc.events import EventMaker
from strandline.cdc.expressions import NamePatterns
from strandline.cdc.model import RowChange
from strandline.cdc.postgres.bad_rows import CONVERSION_FAILURES, BadRows
from strandline.cdc.postgres.changes import CONNECTOR
from strandline.cdc.postgres.connection import literal, quoted
from strandline.cdc.postgres.copying import copied_rows
from strandline.cdc.postgres.positions import WalPosition
from strandline.cdc.postgres.publications import PublishedTable
from strandline.cdc.postgres.settings import PostgresCdcConfig
from strandline.cdc.postgres.slots import ExportedSnapshot
from strandline.cdc.postgres.tables import StreamedTable, Tables
from strandline.cdc.postgres.types import UnknownLabel
from strandline.connect.failures import RetriableFailure
from strandline.connect.records import Batch, SourceRecord
from strandline.runtime.fault_points import fault_point

XID_BITS: Final = 0xFFFFFFFF


def enter(connection: psycopg.Connection[Any], exported: ExportedSnapshot) -> None:
    """Begin a transaction that sees an exported snapshot."""
    connection.execute("begin isolation level repeatable read read only")
    connection.execute(f"set transaction snapshot {literal(exported.name)}")


class InitialSnapshot:
    """Reads tables in a transaction that `enter` has begun."""

    def __init__(
        self,
        config: PostgresCdcConfig,
        connection: psycopg.Connection[Any],
        tables: Tables,
        events: EventMaker,
        position: WalPosition,
        stopping: threading.Event,
    ) -> None:
        """`position` is where the snapshot was taken."""
        self._config = config
        self._connection = connection
        self._tables = tables
        self._events = events
        self._bad_rows = BadRows(config)
        self._position = position
        self._stopping = stopping
        self._partition = {"server": config.topic_prefix}
        self._xid = 0
        self._ts_us = 0
        self.rows = 0

    def batches(self, published: Sequence[PublishedTable]) -> Iterator[Batch]:
        """Yield the rows; the last batch has the position without the mark of an unfinished snapshot."""
        row = self._connection.execute(
            "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint,"
            " (extract(epoch from statement_timestamp()) * 1000000)::bigint"
        ).fetchone()
        assert row is not None
        self._xid, self._ts_us = row[0] & XID_BITS, row[1]
        unfinished = self._position.stored()
        included = NamePatterns(self._config.snapshot_include_collection_list)
        tail: tuple[StreamedTable, list[Any], str] | None = None
        """The last row so far: whether it is the last of all is known when there is another one."""
        is_first_of_all = True
        for each in published:
            if not self._tables.has((each.schema, each.name)) or (included and not included.matches(each.full_name)):
                continue
            is_first = True
            for table, page in self._pages(each):
                if not page:
                    continue
                records: list[SourceRecord] = []
                if tail is not None:
                    before = tail[0]
                    is_last = before is not table and tail[2] != "first"
                    marker = "last_in_data_collection" if is_last else tail[2]
                    records += self._records(before, [tail[1]], marker)
                marker = "true"
                if is_first:
                    marker = "first" if is_first_of_all else "first_in_data_collection"
                if len(page) > 1:
                    records += self._records(table, page[:1], marker)
                    records += self._records(table, page[1:-1], "true")
                    marker = "true"
                tail = table, page[-1], marker
                is_first = is_first_of_all = False
                fault_point("cdc-snapshot-page")
                yield Batch(records, self._partition, unfinished)
        last = [] if tail is None else self._records(tail[0], [tail[1]], "last")
        fault_point("cdc-snapshot-end")
        yield Batch(last, self._partition, finished(self._position).stored())

    def _pages(self, published: PublishedTable) -> Iterator[tuple[StreamedTable, list[list[Any]]]]:
        found = self._tables.of_catalog(self._connection, (published.schema, published.name), published.columns)
        if found is None:
            return
        table, is_partitioned = found
        query = self._query(table, published, is_partitioned=is_partitioned)
        for page in copied_rows(self._connection, query, self._stopping, self._config.max_batch_size):
            self.rows += len(page)
            yield table, page

    def _query(self, table: StreamedTable, published: PublishedTable, *, is_partitioned: bool) -> str:
        columns = ", ".join(quoted(each.name) for each in table.relation.columns)
        chosen = self._config.select_of(table.full_name)
        if chosen is not None:
            return f"select {columns} from ({chosen}) as chosen"
        only = "" if is_partitioned else "only "
        where = "" if published.row_filter is None else f" where {published.row_filter}"
        return f"select {columns} from {only}{quoted(table.schema)}.{quoted(table.name)}{where}"

    def _records(self, table: StreamedTable, rows: Sequence[list[Any]], marker: str) -> list[SourceRecord]:
        source = snapshot_source(self._config, table, marker, self._position.lsn, self._xid, self._ts_us)
        made = self._events.change
        assert table.table is not None
        records: list[SourceRecord] = []
        left = iter(rows)
        while True:
            row = None
            try:
                for row in left:
                    records += made(RowChange(table.table, "r", None, row, source))
            except UnknownLabel as error:
                raise RetriableFailure(f"an enum of {table.full_name} has changed since the snapshot began") from error
            except CONVERSION_FAILURES as error:
                records += self._bad_rows.records(table, "r", None, row, self._position.lsn, error)
            else:
                return records


def finished(position: WalPosition) -> WalPosition:
    """Return the position without the mark of an unfinished snapshot."""
    return WalPosition(
        position.lsn, position.commit_lsn, position.xid, position.ts_us, position.system_id, False, position.incremental
    )


def snapshot_source(
    config: PostgresCdcConfig, table: StreamedTable, marker: str, lsn: int, xid: int | None, ts_us: int
) -> dict[str, Any]:
    """Return the source block of rows that a snapshot has read."""
    return {
        "version": __version__,
        "connector": CONNECTOR,
        "name": config.topic_prefix,
        "ts_ms": ts_us // 1000,
        "snapshot": marker,
        "db": config.database_dbname,
        "sequence": f'[null,"{lsn}"]',
        "ts_us": ts_us,
        "ts_ns": ts_us * 1000,
        "schema": table.schema,
        "table": table.name,
        "txId": xid,
        "lsn": lsn,
        "xmin": None,
        "origin": None,
        "origin_lsn": None,
    }
