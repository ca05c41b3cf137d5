"""The outbox of a SQLite file, for a relay that polls. A lock on a file beside it makes one relay the only one."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import socket
import sqlite3
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from strandline.connect.failures import ConnectFailed, RetriableFailure
from strandline.outbox.rows import AfterSend, OutboxRow
from strandline.outbox.tables import QualifiedTable

BUSY_S_MAX: Final = 10.0
POLL_S: Final = 0.01
_CHUNK: Final = 500
"""Ids in one statement."""


class SqliteOutbox:
    """One table. `wait` looks whether another connection has changed the file, which costs no read of the table."""

    identity: str

    def __init__(self, url: str, table: str) -> None:
        self._path = Path(url.removeprefix("sqlite+pysqlite:").removeprefix("sqlite:").removeprefix("///")).absolute()
        self._table = QualifiedTable.of(table).quoted
        self._text = table
        self._connection: sqlite3.Connection | None = None
        self._lock = -1
        self._version = -1

    def open(self) -> None:
        if not self._path.is_file():
            raise ConnectFailed(f"there is no database file {self._path}")
        with self._failures():
            self._connection = sqlite3.connect(
                self._path, timeout=BUSY_S_MAX, isolation_level=None, check_same_thread=False
            )
            self._connection.execute(f"SELECT seq, id, sent_at, failed FROM {self._table} LIMIT 0")
        place = f"{socket.gethostname()}/{self._path.resolve()}/{self._text}"
        self.identity = f"{self._text}-{hashlib.sha256(place.encode()).hexdigest()[:16]}"

    def try_lock(self) -> bool:
        if self._lock < 0:
            self._lock = os.open(f"{self._path}-{self._text}.relay", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def rows(self, limit: int) -> Sequence[OutboxRow]:
        query = (
            "SELECT seq, id, aggregatetype, aggregateid, type, payload, headers, CAST(created_at * 1000 AS INTEGER) "
            f"FROM {self._table} WHERE sent_at IS NULL AND failed IS NULL ORDER BY seq LIMIT ?"
        )
        with self._failures():
            # Before the rows: what is committed in between is found by the next look.
            self._version = self._data_version()
            found = self._session.execute(query, [limit]).fetchall()
        return [_row(*each) for each in found]

    def settle(self, ids: Sequence[bytes], after: AfterSend) -> None:
        begin = (
            f"UPDATE {self._table} SET sent_at = {time.time()!r}" if after == "mark" else f"DELETE FROM {self._table}"
        )
        with self._failures(), self._transaction() as session:
            for at in range(0, len(ids), _CHUNK):
                texts = [str(uuid.UUID(bytes=each)) for each in ids[at : at + _CHUNK]]
                session.execute(f"{begin} WHERE id IN ({', '.join('?' * len(texts))})", texts)

    def park(self, row_id: bytes, why: str) -> None:
        with self._failures(), self._transaction() as session:
            session.execute(f"UPDATE {self._table} SET failed = ? WHERE id = ?", [why, str(uuid.UUID(bytes=row_id))])

    def wait(self, timeout_s: float) -> None:
        until = time.monotonic() + timeout_s
        with self._failures():
            while self._data_version() == self._version and (left_s := until - time.monotonic()) > 0:
                time.sleep(min(left_s, POLL_S))

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _data_version(self) -> int:
        return int(self._session.execute("PRAGMA data_version").fetchone()[0])

    @property
    def _session(self) -> sqlite3.Connection:
        assert self._connection is not None, "it is open"
        return self._connection

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        session = self._session
        session.execute("BEGIN IMMEDIATE")
        try:
            yield session
        except BaseException:
            session.execute("ROLLBACK")
            raise
        session.execute("COMMIT")

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                raise ConnectFailed(
                    f"{self._path} has no table {self._text}: create it with outbox.create, or a migration"
                ) from None
            if "no such column" in str(error):
                raise ConnectFailed(f"the table {self._text} is no outbox: {error}") from None
            raise RetriableFailure(f"{self._path} is busy or away: {error}") from None
        except sqlite3.Error as error:
            raise ConnectFailed(f"{self._path} refuses: {error}") from None


def _row(
    seq: int, row_id: Any, topic: Any, key: Any, kind: Any, payload: Any, headers: Any, created_ms: Any
) -> OutboxRow:
    """Return a row whose values have the right types: other programs may have stored any."""
    return OutboxRow(
        seq,
        _id_bytes(row_id),
        str(topic),
        None if key is None else str(key),
        str(kind),
        payload if payload is None or isinstance(payload, bytes) else str(payload).encode(),
        None if headers is None else str(headers),
        created_ms if isinstance(created_ms, int) else 0,
    )


def _id_bytes(text: str) -> bytes:
    try:
        return uuid.UUID(text).bytes
    except (ValueError, AttributeError, TypeError):
        raise ConnectFailed(f"an outbox row has an id that is no UUID: {text!r}. Correct or delete it") from None
