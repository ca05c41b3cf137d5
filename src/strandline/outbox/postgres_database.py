"""The outbox of a PostgreSQL database, for a relay that polls.

One relay works at a time: it holds an advisory lock of its session, and others wait for that. Rows are not locked one
by one (SKIP LOCKED), because a relay that skips a row that another one holds would send the next row of its key first.
Nor does an open transaction hold the lock: it would keep VACUUM from removing deleted rows.

Rows are found by what is left in the table and never by a position, so one whose transaction commits late is found too.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

import psycopg
from psycopg import errors, sql

from strandline.connect.failures import ConnectFailed, RetriableFailure
from strandline.outbox.rows import PARKED_SHOWN_MAX, AfterSend, OutboxRow, OutboxStatus
from strandline.outbox.tables import CHANNEL, DEFAULT_TABLE, QualifiedTable

CONNECT_S_MAX: Final = 10
_LOCK_CLASS: Final = 0x5374724F
"""The upper half of the lock's number; the lower one is the table's oid."""
_KEEPALIVE: Final = "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3"
"""Has the server drop a relay whose machine is gone within half a minute, and its lock with it."""


class PostgresOutbox:
    """One table, over a session of its own. Poolers that share sessions cannot be between."""

    identity: str

    def __init__(self, dsn: str, table: str) -> None:
        scheme, separator, rest = dsn.partition("://")
        self._dsn = f"{scheme.partition('+')[0]}{separator}{rest}" if separator else dsn
        self._text = table
        name = QualifiedTable.of(table)
        self._table = sql.Identifier(*(each for each in name if each))
        self._connection: psycopg.Connection[Any] | None = None
        self._oid = 0

    def open(self) -> None:
        with _failures(self._text):
            self._connection = psycopg.connect(
                self._dsn, autocommit=True, connect_timeout=CONNECT_S_MAX, client_encoding="utf8"
            )
            self._connection.execute(_KEEPALIVE)
            # Its statements have to work, whatever the role's default is.
            self._connection.execute("SET default_transaction_read_only = off; SET statement_timeout = 0")
            row = self._connection.execute(
                "SELECT %s::regclass::oid, system_identifier, (SELECT oid FROM pg_database "
                "WHERE datname = current_database()) FROM pg_control_system()",
                [self._table.as_string(self._connection)],
            ).fetchone()
            assert row is not None
            self._oid = row[0]
            parts = "/".join(str(each) for each in row)
            # Without the name: it has several forms, and a table that is renamed is still the same one.
            self.identity = f"{DEFAULT_TABLE}-{hashlib.sha256(parts.encode()).hexdigest()[:16]}"
            self._connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(CHANNEL)))

    def try_lock(self) -> bool:
        with _failures(self._text):
            row = self._session.execute("SELECT pg_try_advisory_lock(%s)", [_LOCK_CLASS << 32 | self._oid]).fetchone()
        return bool(row and row[0])

    def rows(self, limit: int) -> Sequence[OutboxRow]:
        query = sql.SQL(
            "SELECT seq, uuid_send(id), aggregatetype, aggregateid, type, payload, headers, "
            # Infinity, which a row may have, is no number.
            "(date_part('epoch', least(greatest(created_at, 'epoch'), clock_timestamp())) * 1000)::bigint, "
            "(SELECT {}::regclass::oid) FROM {} WHERE sent_at IS NULL AND failed IS NULL ORDER BY seq LIMIT %s"
        ).format(self._table.as_string(self._session), self._table)
        with _failures(self._text):
            found = self._session.execute(query, [limit], binary=True).fetchall()
        if found and found[0][-1] != self._oid:
            # The lock is that of the table before, so another relay may move the rows of this one.
            raise RetriableFailure(f"the table {self._text} was replaced by another one of this name")
        return [OutboxRow(*each[:-1]) for each in found]

    def settle(self, ids: Sequence[bytes], after: AfterSend) -> None:
        if after == "delete":
            statement = sql.SQL("DELETE FROM {} WHERE id = ANY(%s::uuid[])")
        else:
            statement = sql.SQL(
                "UPDATE {} SET sent_at = clock_timestamp() WHERE id = ANY(%s::uuid[]) AND sent_at IS NULL"
            )
        with _failures(self._text):
            self._session.execute(statement.format(self._table), [[each.hex() for each in ids]])

    def park(self, row: OutboxRow, why: str) -> None:
        statement = sql.SQL("UPDATE {} SET failed = %s WHERE id = %s::uuid").format(self._table)
        with _failures(self._text):
            self._session.execute(statement, [why, row.id.hex()])

    def status(self) -> OutboxStatus:
        query = sql.SQL(
            "SELECT count(*), date_part('epoch', clock_timestamp() - min(created_at) "
            "FILTER (WHERE isfinite(created_at))), "
            "(SELECT count(*) FROM {0} WHERE failed IS NOT NULL), EXISTS (SELECT 1 FROM pg_locks WHERE "
            "locktype = 'advisory' AND classid = %s AND objid = %s AND objsubid = 1 AND granted AND database = "
            "(SELECT oid FROM pg_database WHERE datname = current_database())) "
            "FROM {0} WHERE sent_at IS NULL AND failed IS NULL"
        ).format(self._table)
        parked = sql.SQL("SELECT id::text, failed FROM {} WHERE failed IS NOT NULL ORDER BY seq LIMIT %s")
        with _failures(self._text):
            row = self._session.execute(query, [_LOCK_CLASS, self._oid]).fetchone()
            assert row is not None
            found = self._session.execute(parked.format(self._table), [PARKED_SHOWN_MAX]).fetchall()
        return OutboxStatus(row[0], None if row[1] is None else max(0.0, row[1]), found, row[2], row[3])

    def wait(self, timeout_s: float) -> None:
        with _failures(self._text):
            # All are taken: psycopg keeps those that came during a statement, and each left would be one look in vain.
            for _ in self._session.notifies(timeout=timeout_s, stop_after=1):
                pass

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()

    @property
    def _session(self) -> psycopg.Connection[Any]:
        assert self._connection is not None, "it is open"
        return self._connection


@contextlib.contextmanager
def _failures(table: str) -> Iterator[None]:
    """Turn psycopg's errors into those of connectors, in one sentence."""
    try:
        yield
    except errors.UndefinedTable:
        raise ConnectFailed(
            f"the database has no table {table}: create it with outbox.create, or a migration"
        ) from None
    except errors.UndefinedColumn as error:
        raise ConnectFailed(f"the table {table} is no outbox: {_first_line(error)}") from None
    except errors.InsufficientPrivilege as error:
        raise ConnectFailed(
            f"the role of the relay may not use {table}: {_first_line(error)}; grant SELECT, UPDATE and DELETE"
        ) from None
    except errors.FeatureNotSupported as error:
        # A prepared statement does not survive ALTER COLUMN TYPE; another session prepares it again.
        raise RetriableFailure(f"the table {table} was altered: {_first_line(error)}") from None
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        raise RetriableFailure(f"the database of {table} is away or busy: {_first_line(error)}") from None
    except psycopg.Error as error:
        raise ConnectFailed(f"the database of {table} refuses: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
