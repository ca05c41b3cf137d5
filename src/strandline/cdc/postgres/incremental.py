"""Incremental snapshots: tables read in chunks while the stream goes on, begun by a signal.

Each chunk is read in a transaction of its own, which knows which transactions it sees. Its rows are emitted when the
stream has passed everything that the chunk saw; rows whose keys the stream changed by a transaction that the chunk did
not see are left out, because the stream has the newer ones. So nothing is written to the database, whether it is
`read.only` or not. What is left to do lies in the offset, so a restart goes on with the next chunk.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import psycopg
from psycopg.pq import Escaping

from strandline.cdc.events import EventMaker
from strandline.cdc.expressions import NamePatterns
from strandline.cdc.model import RowChange
from strandline.cdc.postgres import publications
from strandline.cdc.postgres.changes import ChangeReader
from strandline.cdc.postgres.connection import lsn_of, quoted
from strandline.cdc.postgres.copying import copied_rows
from strandline.cdc.postgres.positions import WalPosition
from strandline.cdc.postgres.settings import PostgresCdcConfig
from strandline.cdc.postgres.snapshot import XID_BITS, snapshot_source
from strandline.cdc.postgres.tables import StreamedTable, Tables
from strandline.cdc.postgres.types import UnknownLabel
from strandline.connect.failures import RetriableFailure
from strandline.connect.records import SourceRecord

PAGE_BYTES: Final = 8192
PAGE_HEADER_BYTES_MAX: Final = 40
_log = logging.getLogger(__name__)
Key = tuple[Any, ...]


@dataclass(frozen=True)
class SeenTransactions:
    """Which transactions a snapshot sees, as `pg_current_snapshot()` writes them: xmin:xmax:running,..."""

    xmax: int
    running: frozenset[int]

    @classmethod
    def of(cls, text: str) -> SeenTransactions:
        _, xmax, running = text.split(":")
        return cls(int(xmax), frozenset(int(each) for each in running.split(",") if each))

    def sees(self, xid: int) -> bool:
        """Return whether a transaction that has committed is seen. The stream has 32 bits of its number."""
        full = (self.xmax & ~XID_BITS) | xid
        if full - self.xmax > XID_BITS // 2:
            full -= XID_BITS + 1
        elif self.xmax - full > XID_BITS // 2:
            full += XID_BITS + 1
        return full < self.xmax and full not in self.running


@dataclass(frozen=True)
class _Chunk:
    """Rows that wait until the stream has passed what they saw."""

    table: StreamedTable
    key: tuple[int, ...]
    """Places of the key's columns."""
    rows: list[list[Any]]
    seen: SeenTransactions
    end_lsn: int
    is_last: bool


class IncrementalSnapshots:
    """The incremental snapshots of one stream. All of it runs in the thread that reads."""

    def __init__(
        self,
        config: PostgresCdcConfig,
        connection: psycopg.Connection[Any],
        tables: Tables,
        events: EventMaker,
        reader: ChangeReader,
        stopping: threading.Event,
    ) -> None:
        self._config = config
        self._connection = connection
        self._tables = tables
        self._events = events
        self._reader = reader
        self._stopping = stopping
        self._signals: list[tuple[str, str]] = []
        self._chunk: _Chunk | None = None
        self._key_places: tuple[int, ...] = ()
        self._touched: dict[Key, int] = {}
        """Keys that the stream has changed, with the last transaction that did."""
        self._truncated_xid: int | None = None
        reader.on_row = self._on_row
        reader.on_commit = self._on_commit
        if tables.signal_table is not None and "source" in config.signal_enabled_channels:
            reader.on_signal = self._on_signal

    @property
    def _state(self) -> Mapping[str, Any] | None:
        return self._reader.position.incremental

    def _set(self, state: Mapping[str, Any] | None) -> None:
        position: WalPosition = self._reader.position
        self._reader.position = replace(position, incremental=state)

    def advance(self) -> bool:
        """Do the next step between two transactions; return whether there is more to do at once."""
        state = self._state
        if state is None or self._reader.is_in_transaction or state.get("is_paused"):
            return False
        if self._chunk is None:
            self._chunk = self._read(state)
            return self._state is not None
        if self._reader.position.lsn < self._chunk.end_lsn:
            return False
        self._emit(self._chunk)
        return self._state is not None

    def _on_signal(self, table: StreamedTable, row: list[Any]) -> None:
        values = [None if each is None else bytes(each).decode() for each in row[:3]]
        if len(values) < 2 or not values[1]:
            _log.warning("a row of the table for signals has no type, and is ignored")
            return
        self._signals.append((values[1], values[2] if len(values) > 2 and values[2] else "{}"))

    def _on_commit(self) -> None:
        signals, self._signals = self._signals, []
        for kind, text in signals:
            try:
                data = json.loads(text)
                self._apply(kind, data if isinstance(data, dict) else {})
            except (ValueError, TypeError, KeyError) as error:
                _log.warning("the signal %s is ignored, because its data is wrong: %s", kind, error)

    def _apply(self, kind: str, data: dict[str, Any]) -> None:
        state = dict(self._state or {"tables": []})
        match kind:
            case "execute-snapshot":
                named = self._named(data.get("data-collections") or [".*"])
                conditions = {
                    name: each["filter"]
                    for each in data.get("additional-conditions") or []
                    for name in named
                    if NamePatterns([each["data-collection"]]).matches(name)
                }
                waiting = [each for each in state["tables"] if each["name"] not in named]
                added = [{"name": each, "filter": conditions.get(each)} for each in named]
                state["tables"] = [*waiting, *added]
                if state.get("current") in named:
                    self._restart(state)
                self._set(state if state["tables"] or state.get("current") else None)
            case "stop-snapshot":
                named = self._named(data.get("data-collections") or [".*"])
                state["tables"] = [each for each in state["tables"] if each["name"] not in named]
                if state.get("current") in named:
                    self._restart(state)
                self._set(state if state["tables"] or state.get("current") else None)
            case "pause-snapshot" | "resume-snapshot":
                if self._state is not None:
                    self._set(state | {"is_paused": kind == "pause-snapshot"})
            case "log":
                _log.info("signal: %s", data.get("message"))
            case "snapshot-window-open" | "snapshot-window-close":
                return
            case _:
                _log.warning("the signal %s is unknown, and is ignored", kind)

    def _restart(self, state: dict[str, Any]) -> None:
        """Let go of the table that is read now."""
        for each in ("current", "filter", "last_key", "end_key"):
            state.pop(each, None)
        self._chunk = None

    def _named(self, expressions: Sequence[str]) -> list[str]:
        """Return the captured tables that match; a name may begin with the database."""
        patterns = NamePatterns(list(expressions))
        found = [
            each.full_name
            for each in publications.published(self._connection, self._config)
            if self._tables.has((each.schema, each.name))
        ]
        database = self._config.database_dbname
        return [each for each in found if patterns.matches(each) or patterns.matches(f"{database}.{each}")]

    def _read(self, given: Mapping[str, Any]) -> _Chunk | None:
        """Read the next chunk; None if the table has no more, or cannot be read."""
        state = dict(given)
        if "current" not in state:
            if not state["tables"]:
                self._set(None)
                return None
            first, *state["tables"] = state["tables"]
            state["current"], state["filter"] = first["name"], first["filter"]
            self._touched.clear()
            self._truncated_xid = None
        shape = self._shape(state["current"])
        if shape is None:
            self._restart(state)
            self._set(state)
            return None
        table, is_partitioned, key = shape
        self._key_places = key
        names = [table.relation.columns[at].name for at in key]
        only = "" if is_partitioned else "only "
        place = f"{only}{quoted(table.schema)}.{quoted(table.name)}"
        where = f" and ({state['filter']})" if state.get("filter") else ""
        if "end_key" not in state:
            state["end_key"] = self._end_key(place, where, names)
        self._set(state)
        if state["end_key"] is None:
            self._restart(state)
            self._set(state)
            return None
        columns = ", ".join(quoted(each.name) for each in table.relation.columns)
        row = ", ".join(quoted(each) for each in names)
        bounds = f"({row}) <= ({self._literals(state['end_key'])})"
        if state.get("last_key") is not None:
            bounds += f" and ({row}) > ({self._literals(state['last_key'])})"
        size = self._config.incremental_snapshot_chunk_size
        query = f"select {columns} from {place} where {bounds}{where} order by {row} limit {size}"
        return self._chunk_of(table, key, query)

    def _chunk_of(self, table: StreamedTable, key: tuple[int, ...], query: str) -> _Chunk:
        size = self._config.incremental_snapshot_chunk_size
        with self._connection.transaction():
            self._connection.execute("set transaction isolation level repeatable read read only")
            # The position is read behind the snapshot: every commit that this one sees lies before it.
            row = self._connection.execute(
                "select pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text"
            ).fetchone()
            rows = [each for page in copied_rows(self._connection, query, self._stopping, size) for each in page]
        assert row is not None
        seen, end_lsn = SeenTransactions.of(row[0]), lsn_of(row[1])
        if end_lsn % PAGE_BYTES <= PAGE_HEADER_BYTES_MAX:
            # The next record would begin behind the header of a page, and the last one ended before it.
            end_lsn -= end_lsn % PAGE_BYTES
        return _Chunk(table, key, rows, seen, end_lsn, len(rows) < size)

    def _shape(self, full_name: str) -> tuple[StreamedTable, bool, tuple[int, ...]] | None:
        """Return a table, whether it is partitioned, and the places of its key."""
        published = publications.published(self._connection, self._config)
        chosen = next((each for each in published if each.full_name == full_name), None)
        found = chosen and self._tables.of_catalog(self._connection, (chosen.schema, chosen.name), chosen.columns)
        if not found:
            _log.warning("%s is gone or not published, so its incremental snapshot ends", full_name)
            return None
        table, is_partitioned = found
        columns = table.relation.columns
        if table.relation.identity in "di":
            key = tuple(at for at, each in enumerate(columns) if each.is_key)
        else:
            key = ()
        if not key:
            unique = self._tables.unique_key(table.relation.oid)
            key = tuple(at for name in unique for at, each in enumerate(columns) if each.name == name)
        if not key:
            _log.warning("%s has no primary key, so it cannot be read in chunks", full_name)
            return None
        return table, is_partitioned, key

    def _end_key(self, place: str, where: str, names: Sequence[str]) -> list[str] | None:
        """Return the largest key: rows behind it come by the stream."""
        # With names of their own: `order by` would take the texts for the columns, and 9 for more than 10.
        row = ", ".join(f"{quoted(each)}::text as key{at}" for at, each in enumerate(names))
        order = ", ".join(f"{quoted(each)} desc" for each in names)
        query = f"select {row} from {place} where true{where} order by {order} limit 1"
        found = self._connection.execute(query.encode()).fetchone()
        return None if found is None else list(found)

    def _literals(self, values: Sequence[str]) -> str:
        escaping = Escaping(self._connection.pgconn)
        return ", ".join(escaping.escape_literal(each.encode()).decode() for each in values)

    def _on_row(self, table: StreamedTable, before: list[Any] | None, after: list[Any] | None) -> None:
        state = self._state
        if state is None or state.get("current") != table.full_name:
            return
        xid = self._reader.xid
        if before is None and after is None:
            self._truncated_xid = xid
        for row in (before, after):
            if row is not None and len(row) > max(self._key_places, default=0):
                self._touched[tuple(row[at] for at in self._key_places)] = xid

    def _emit(self, chunk: _Chunk) -> None:
        """Add the rows of a chunk that the stream has no newer ones for, with the position behind them."""
        state = dict(self._state or {"tables": []})
        sees = chunk.seen.sees
        newer = {key for key, xid in self._touched.items() if not sees(xid)}
        rows = [row for row in chunk.rows if not newer or tuple(row[at] for at in chunk.key) not in newer]
        if self._truncated_xid is not None and not sees(self._truncated_xid):
            rows = []
        self._touched = {key: xid for key, xid in self._touched.items() if key in newer}
        position = self._reader.position
        ts_us = time.time_ns() // 1000
        source = snapshot_source(self._config, chunk.table, "incremental", position.lsn, None, ts_us)
        committed = position.lsn if position.commit_lsn is None else position.commit_lsn
        # A chunk is no transaction of the stream; the two positions only give it a place.
        source |= {"lsn": None, "sequence": f'["{committed}","{position.lsn}"]'}
        assert chunk.table.table is not None
        records: list[SourceRecord] = []
        try:
            for row in rows:
                records += self._events.change(RowChange(chunk.table.table, "r", None, row, source))
        except UnknownLabel as error:
            raise RetriableFailure(
                f"an enum of {chunk.table.full_name} has changed since the chunk was read"
            ) from error
        self._chunk = None
        if chunk.is_last:
            self._restart(state)
            _log.info("the incremental snapshot of %s is finished", chunk.table.full_name)
            self._set(state if state["tables"] else None)
        else:
            last = chunk.rows[-1]
            self._set(state | {"last_key": [bytes(last[at]).decode() for at in chunk.key]})
        self._reader.add(records)
        self._reader.must_store()
