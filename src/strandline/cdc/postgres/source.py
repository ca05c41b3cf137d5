"""PostgresCdcSource: the changes of a PostgreSQL database, each once, in Debezium's envelope.

At the first start it reads all rows in a snapshot that belongs to a position of the WAL, and goes on from there with
the stream of a replication slot. The position is stored with the records, in one transaction, and PostgreSQL learns it
only afterwards: so the slot never is ahead of the log. A snapshot that is interrupted starts over, and its rows come
again as `r`; the changes between the two snapshots come before, because only they tell of rows that were deleted.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import psycopg

from strandline.cdc.envelope import POSTGRES_SOURCE
from strandline.cdc.events import EventMaker
from strandline.cdc.names import TopicNames
from strandline.cdc.postgres import publications, slots
from strandline.cdc.postgres.changes import LSN_MAX, ChangeReader
from strandline.cdc.postgres.connection import (
    ChangesLost,
    SlotInUse,
    Stopped,
    connect,
    failure_of,
    failures,
    lsn_of,
    lsn_text,
    missing_slot,
)
from strandline.cdc.postgres.guard import SlotGuard
from strandline.cdc.postgres.incremental import IncrementalSnapshots
from strandline.cdc.postgres.inspection import gauges, inspect
from strandline.cdc.postgres.positions import PostgresMark, WalPosition
from strandline.cdc.postgres.replication import ReplicationStream
from strandline.cdc.postgres.settings import SSL_FILES, PostgresCdcConfig
from strandline.cdc.postgres.slots import ExportedSnapshot
from strandline.cdc.postgres.snapshot import InitialSnapshot, enter, finished
from strandline.cdc.postgres.tables import Tables
from strandline.cdc.postgres.types import SESSION_SETTINGS
from strandline.connect.failures import ConnectFailed, RetriableFailure
from strandline.connect.records import Batch, SourceOffsets, SourcePosition, SourceRecord
from strandline.connect.source import Source
from strandline.runtime.fault_points import fault_point

WAIT_S: Final = 0.2
"""How long the reader waits for changes before it looks whether it is to stop."""
IDLE_POSITION_S: Final = 10.0
"""After this time the position is stored though no captured table has changed, so that the slot moves."""
SLOT_FREE_S_MAX: Final = 5.0
"""How long the server may take to see that the reader before this one is gone."""
_SETTINGS: Final = SESSION_SETTINGS | {
    # A role may have limits that fit its other sessions; a snapshot takes long, and a connection may be idle for days.
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
}
_log = logging.getLogger(__name__)


class PostgresCdcSource(Source):
    """Captures the changes of a PostgreSQL database. Exactly once."""

    Config = PostgresCdcConfig
    config: PostgresCdcConfig
    exactly_once: ClassVar[bool] = True
    waits_for_schemas: ClassVar[bool] = True
    transaction_timeout_ms: ClassVar[int] = 900_000
    """As long as a cluster allows by default: a transaction of the database is one of the log, however large."""

    def __init__(self, config: PostgresCdcConfig) -> None:
        super().__init__(config)
        self._sql: psycopg.Connection[Any] | None = None
        self._stream: ReplicationStream | None = None
        self._guard: SlotGuard | None = None
        self._guard_failure: ConnectFailed | None = None
        """Why the guard has ended the task, which may be while there is no stream."""
        self._committed: WalPosition | None = None
        self._system_id = ""
        self._partition = config.partition

    @classmethod
    def only_partition(cls, config: PostgresCdcConfig) -> Mapping[str, Any]:
        return config.partition

    @classmethod
    def check_offsets(cls, config: PostgresCdcConfig, offsets: Sequence[SourcePosition]) -> None:
        super().check_offsets(config, offsets)
        for _, offset in offsets:
            if offset is not None:
                WalPosition.of(offset)

    def open(self) -> None:
        self._check_paths()
        with failures(self.config):
            self._sql = connect(self.config, _SETTINGS)
            self._check_server(self._sql)
            self._names = TopicNames(self.config)
            self._events = EventMaker(self.config, self._names, POSTGRES_SOURCE)
            self._tables = Tables(self.config, self._sql)

    def read(self, offsets: SourceOffsets) -> Iterator[Batch]:
        stored = offsets.get(self._partition)
        position = None if stored is None else WalPosition.of(stored)
        try:
            with failures(self.config):
                yield from self._read(position)
        except Stopped:
            return
        except ChangesLost as error:
            if self.config.snapshot_mode != "when_needed":
                raise
            # The next start finds the slot as it is, and takes a snapshot.
            raise RetriableFailure(str(error)) from error

    async def committed(self, positions: Sequence[SourcePosition]) -> None:
        # A coroutine, because a plain method would wait for `read`, which waits for changes.
        fault_point("cdc-before-confirm")
        stream = self._stream
        for _, offset in positions:
            self._committed = self._committed if offset is None else WalPosition.of(offset)
        if stream is None or self.config.lsn_flush_mode == "manual":
            return
        for _, offset in positions:
            if offset is not None:
                stream.confirm(WalPosition.of(offset).lsn)

    def close(self) -> None:
        if self._guard is not None:
            self._guard.close()
        self._end_stream()
        if self._sql is None:
            return
        try:
            if self.config.slot_drop_on_stop and self.stopping.is_set():
                self._drop_slot(self._sql)
        finally:
            self._sql.close()

    def gauges(self) -> Mapping[str, float]:
        return gauges(None if self._guard is None else self._guard.state, self._committed)

    def inspect(self, offsets: SourceOffsets) -> Mapping[str, Any]:
        self._check_paths()
        return inspect(self.config, offsets)

    def rows_now(self) -> tuple[PostgresMark, Iterator[Sequence[SourceRecord]]]:
        """Return every captured row as it is now, and the position of the WAL that this is."""
        with failures(self.config):
            assert self._sql is not None
            lacking = publications.lacking(self._sql, self.config, self._tables.is_streamed)
            if lacking is not None:
                raise ConnectFailed(lacking)
            reader = connect(self.config, _SETTINGS)
            with connect(self.config, _SETTINGS, replication=True) as exporter:
                name = f"{self.config.slot_name[:40]}_rows_{exporter.info.backend_pid}"
                exported = slots.create(exporter, self.config, self.stopping, temporary_name=name)
                enter(reader, exported)
        return PostgresMark(exported.lsn), self._rows(reader, exported)

    def _rows(self, reader: psycopg.Connection[Any], exported: ExportedSnapshot) -> Iterator[Sequence[SourceRecord]]:
        position = WalPosition(exported.lsn)
        with failures(self.config), reader:
            snapshot = InitialSnapshot(self.config, reader, self._tables, self._events, position, self.stopping)
            for batch in snapshot.batches(publications.published(reader, self.config)):
                yield batch.records

    def has_reached(self, offset: Mapping[str, Any], mark: PostgresMark) -> bool:
        """Return whether a stored offset is at or behind a position of `rows_now`."""
        position = WalPosition.of(offset)
        return not position.is_snapshot and position.lsn >= mark.lsn

    def _check_paths(self) -> None:
        for name in SSL_FILES:
            path = getattr(self.config, f"database_{name}")
            if path and path != "system":
                self.paths.check(path)

    def _check_server(self, connection: psycopg.Connection[Any]) -> None:
        if connection.info.server_version < slots.OLDEST_VERSION:
            raise ConnectFailed("the source needs PostgreSQL 15 or newer")
        row = connection.execute(
            "select current_setting('wal_level'), r.rolreplication or r.rolsuper,"
            " (select system_identifier::text from pg_control_system())"
            " from pg_roles r where r.rolname = current_user"
        ).fetchone()
        assert row is not None
        wal_level, may_replicate, self._system_id = row
        if wal_level != "logical":
            raise ConnectFailed(
                f"PostgreSQL has wal_level={wal_level}, and logical replication needs more: "
                f"set wal_level=logical in postgresql.conf and restart the server"
            )
        if not may_replicate and not self._is_managed_role(connection):
            raise ConnectFailed(
                f'the role "{self.config.database_user}" may not read the WAL: '
                f'run ALTER ROLE "{self.config.database_user}" REPLICATION'
            )

    @staticmethod
    def _is_managed_role(connection: psycopg.Connection[Any]) -> bool:
        """Return whether a cloud provider's role gives the right, as `rds_replication`."""
        row = connection.execute(
            "select exists (select from pg_roles where rolname in ('rds_replication', 'rdsrepladmin', 'rds_superuser')"
            " and pg_has_role(current_user, oid, 'member'))"
        ).fetchone()
        return row is not None and bool(row[0])

    def _read(self, stored: WalPosition | None) -> Iterator[Batch]:
        sql = self._sql
        assert sql is not None
        mode = self.config.snapshot_mode
        if stored is not None and not stored.is_snapshot and not publications.exists(sql, self.config):
            # PostgreSQL 18 leaves changes without a publication out, and older servers do not decode them at all.
            lost = ChangesLost(publications.missing_publication(self.config))
            if mode != "when_needed":
                raise lost
            _log.warning("%s", lost)
            self._drop_slot(sql)
        if self.config.publication_autocreate_mode != "no_tables":
            candidates = publications.candidates(sql, via_root=self.config.publish_via_partition_root)
            publications.ensure(sql, self.config, [each for each in candidates if self._tables.is_streamed(each)])
        else:
            publications.ensure(sql, self.config, ())
        is_finished = stored is not None and not stored.is_snapshot
        if mode == "initial_only" and is_finished:
            return
        needs_snapshot = mode not in ("no_data", "never") and not is_finished
        if stored is not None and is_finished:
            try:
                self._check_position(sql, stored)
            except ChangesLost as error:
                if mode != "when_needed":
                    raise
                _log.warning("%s; taking a new snapshot", error)
                needs_snapshot = True
            else:
                needs_snapshot = mode == "always"
        if needs_snapshot:
            position = yield from self._snapshot(sql, self._catch_up_from(sql, stored))
            if mode == "initial_only":
                return
        elif stored is not None and is_finished:
            position = stored
        else:
            position = self._begin_without_snapshot(sql)
            yield Batch((), self._partition, position.stored())
        yield from self._stream_from(position)

    def _catch_up_from(self, sql: psycopg.Connection[Any], stored: WalPosition | None) -> WalPosition | None:
        """Return where the stream begins before another snapshot: the log may have rows that are deleted since."""
        if stored is None:
            return None
        try:
            self._check_position(sql, stored)
        except ChangesLost as error:
            _log.warning("%s; rows that were deleted since the snapshot before have no event", error)
            return None
        return stored

    def _check_position(self, sql: psycopg.Connection[Any], stored: WalPosition) -> None:
        """Raise ChangesLost if the slot does not have what follows the stored position."""
        slot = self.config.slot_name
        if stored.system_id is not None and stored.system_id != self._system_id:
            raise ChangesLost(
                f"{self.config.address} is another database server than the one of the stored position: "
                f"reset the offsets of the connector, or set snapshot.mode=when_needed"
            )
        state = slots.look(sql, self.config)
        if state is None:
            raise ChangesLost(missing_slot(slot))
        slots.check(state, self.config)
        if state.is_lost:
            raise ChangesLost(
                f'PostgreSQL has removed WAL that the replication slot "{slot}" needs, because it was behind by more '
                f"than max_slot_wal_keep_size ({state.keep_limit}): set snapshot.mode=when_needed for a new snapshot"
            )
        if state.confirmed_lsn is not None and state.confirmed_lsn > stored.lsn:
            raise ChangesLost(
                f'the replication slot "{slot}" is at {lsn_text(state.confirmed_lsn)}, past the stored position '
                f"{lsn_text(stored.lsn)}: it was made again or read by another program, and changes are lost; "
                f"set snapshot.mode=when_needed for a new snapshot"
            )
        row = sql.execute(
            "select (case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end)::text"
        ).fetchone()
        if row is not None and row[0] is not None and lsn_of(row[0]) < stored.lsn:
            raise ChangesLost(
                f"the WAL of PostgreSQL ends at {row[0]}, before the stored position {lsn_text(stored.lsn)}: the "
                f"server was restored from a backup, or promoted without the last changes; set "
                f"snapshot.mode=when_needed for a new snapshot"
            )

    def _begin_without_snapshot(self, sql: psycopg.Connection[Any]) -> WalPosition:
        """Return where an existing slot is, or a new one begins."""
        state = slots.look(sql, self.config)
        if state is not None:
            slots.check(state, self.config)
            if not state.is_lost and state.confirmed_lsn is not None:
                return WalPosition(state.confirmed_lsn, system_id=self._system_id)
            self._drop_slot(sql)
        with connect(self.config, _SETTINGS, replication=True) as exporter:
            exported = slots.create(exporter, self.config, self.stopping)
        return WalPosition(exported.lsn, system_id=self._system_id)

    def _snapshot(
        self, sql: psycopg.Connection[Any], catch_up_from: WalPosition | None
    ) -> Generator[Batch, None, WalPosition]:
        """Yield the rows of all tables. Return the position that they belong to."""
        if self.stopping.wait(self.config.snapshot_delay_ms / 1000):
            raise Stopped("the task stops before the snapshot")
        reader = connect(self.config, _SETTINGS)
        try:
            with connect(self.config, _SETTINGS, replication=True) as exporter:
                exported = self._exported(sql, exporter)
                enter(reader, exported)
            fault_point("cdc-slot-created")
            if catch_up_from is not None:
                # Deletes before the snapshot are in the stream only.
                yield from self._stream_from(catch_up_from, until_lsn=exported.lsn)
                if self.stopping.is_set():
                    raise Stopped("the task stops before the snapshot")
            position = WalPosition(exported.lsn, system_id=self._system_id, is_snapshot=True)
            snapshot = InitialSnapshot(self.config, reader, self._tables, self._events, position, self.stopping)
            _log.info("snapshot at %s begins", lsn_text(exported.lsn))
            yield from snapshot.batches(publications.published(reader, self.config))
            _log.info("snapshot at %s has %d rows", lsn_text(exported.lsn), snapshot.rows)
        finally:
            reader.close()
        return finished(position)

    def _exported(self, sql: psycopg.Connection[Any], exporter: psycopg.Connection[Any]) -> ExportedSnapshot:
        """Make the slot, and return its snapshot. A slot that exists has none: a temporary one gives it.

        The existing slot is behind that snapshot, so the stream can begin where it was taken.
        """
        state = slots.look(sql, self.config)
        if state is not None:
            slots.check(state, self.config)
            if not state.is_lost:
                name = f"{self.config.slot_name[:40]}_snapshot_{exporter.info.backend_pid}"
                return slots.create(exporter, self.config, self.stopping, temporary_name=name)
            self._drop_slot(sql)
        return slots.create(exporter, self.config, self.stopping)

    def _drop_slot(self, sql: psycopg.Connection[Any]) -> None:
        until_s = time.monotonic() + SLOT_FREE_S_MAX
        while True:
            try:
                slots.drop(sql, self.config)
            except psycopg.errors.ObjectInUse as error:
                if time.monotonic() > until_s:
                    raise failure_of(error, self.config) from error
                time.sleep(WAIT_S)
            else:
                return

    def _stream_from(self, position: WalPosition, until_lsn: int = LSN_MAX) -> Iterator[Batch]:
        """Yield the changes from a position on, for ever or until a position."""
        self._raise_guard_failure()
        self._stream = stream = self._started(position.lsn)
        # The guard may have failed before it could see this stream.
        self._raise_guard_failure()
        if self._guard is None:
            self._guard = SlotGuard(self.config, self._fail)
            self._guard.start()
        reader = ChangeReader(self.config, self._tables, self._events, position, self.stopping, until_lsn)
        assert self._sql is not None
        snapshots = IncrementalSnapshots(self.config, self._sql, self._tables, self._events, reader, self.stopping)
        stored_lsn = position.lsn
        now_s = time.monotonic()
        idle_s, beat_s = now_s + IDLE_POSITION_S, now_s
        is_busy = False
        while not self.stopping.is_set() and not reader.is_at_end:
            for lsn, message in stream.take(0 if is_busy else WAIT_S):
                reader.feed(lsn, message)
                while reader.is_large:
                    fault_point("cdc-stream-batch")
                    yield reader.take()
            if not stream.is_empty:
                continue
            is_busy = snapshots.advance()
            now_s = time.monotonic()
            if self.config.is_heartbeat_on and now_s >= beat_s and not reader.is_in_transaction:
                beat_s = now_s + self.config.heartbeat_interval_ms / 1000
                reader.add([self._events.heartbeat()])
            is_idle_due = reader.is_reply_wanted or now_s >= idle_s
            is_moved = is_idle_due and not reader.is_in_transaction and reader.position.lsn > stored_lsn
            if reader.has_whole or is_moved:
                fault_point("cdc-stream-batch")
                yield reader.take()
                stored_lsn = reader.position.lsn
                reader.is_reply_wanted = False
                idle_s = now_s + IDLE_POSITION_S
        if reader.is_at_end and reader.has_whole:
            yield reader.take()
        self._end_stream()

    def _started(self, start_lsn: int) -> ReplicationStream:
        parameters = {
            "proto_version": "1",
            "publication_names": publications.quoted_name(self.config),
            "messages": "true" if self.config.logical_messages else "false",
        }
        until_s = time.monotonic() + SLOT_FREE_S_MAX
        while True:
            connection = connect(self.config, _SETTINGS, replication=True)
            stream = ReplicationStream(connection, self.config, start_lsn)
            try:
                stream.start(parameters)
            except SlotInUse:
                stream.close()
                if time.monotonic() > until_s or self.stopping.wait(WAIT_S):
                    raise
            except BaseException:
                stream.close()
                raise
            else:
                _log.info(
                    "streaming slot %s from %s (process %d)", self.config.slot_name, lsn_text(start_lsn), os.getpid()
                )
                return stream

    def _raise_guard_failure(self) -> None:
        if self._guard_failure is not None:
            raise self._guard_failure

    def _fail(self, failure: ConnectFailed) -> None:
        self._guard_failure = failure
        stream = self._stream
        if stream is not None:
            stream.fail(failure)

    def _end_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
