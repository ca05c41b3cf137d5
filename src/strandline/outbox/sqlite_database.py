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
from urllib.parse import quote

from strandline.connect.failures import ConnectFailed, RetriableFailure
from strandline.outbox.rows import PARKED_SHOWN_MAX, AfterSend, OutboxRow, OutboxStatus
from strandline.outbox.tables import QualifiedTable

BUSY_S_MAX: Final = 10.0
POLL_S: Final = 0.01
_CHUNK: Final = 500
"""Ids in one statement."""


class SqliteOutbox:
    """One table. `wait` looks whether another connection has changed the file, which costs no read of the table."""

    identity: str

    def __init__(self, url: str, table: str) -> None:
        self._path = Path(url.removeprefix("sqlite+pysqlite:").removeprefix("sqlite:").removeprefix("///")).resolve()
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
            # Other programs may have stored bytes that are no text, with which sqlite3 would fail.
            self._connection.text_factory = bytes
            self._connection.execute(f"SELECT seq, id, sent_at, failed FROM {self._table} LIMIT 0")
        place = f"{socket.gethostname()}/{self._path}/{self._text}"
        self.identity = f"{self._text}-{hashlib.sha256(place.encode()).hexdigest()[:16]}"

    def try_lock(self) -> bool:
        path = self._lock_path
        try:
            if self._lock < 0:
                self._lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise ConnectFailed(f"the lock {path} of the relay cannot be taken: {error.strerror}") from None
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

    def park(self, row: OutboxRow, why: str) -> None:
        with self._failures(), self._transaction() as session:
            session.execute(f"UPDATE {self._table} SET failed = ? WHERE seq = ?", [why, row.seq])

    def status(self) -> OutboxStatus:
        with self._failures():
            waiting, oldest = self._session.execute(
                f"SELECT count(*), min(created_at) FROM {self._table} WHERE sent_at IS NULL AND failed IS NULL"
            ).fetchone()
            (parked,) = self._session.execute(f"SELECT count(*) FROM {self._table} WHERE failed IS NOT NULL").fetchone()
            found = self._session.execute(
                f"SELECT CAST(id AS BLOB), CAST(failed AS BLOB) FROM {self._table} WHERE failed IS NOT NULL "
                "ORDER BY seq LIMIT ?",
                [PARKED_SHOWN_MAX],
            ).fetchall()
        return OutboxStatus(
            waiting,
            max(0.0, time.time() - oldest) if isinstance(oldest, int | float) else None,
            [(row_id.decode(errors="replace"), why.decode(errors="replace")) for row_id, why in found],
            parked,
            self._is_locked(),
        )

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

    @property
    def _lock_path(self) -> str:
        return f"{self._path}-{quote(self._text, safe='')}.relay"

    def _is_locked(self) -> bool:
        """Return whether a relay has the lock. A relay that wants it in this moment tries again."""
        try:
            lock = os.open(self._lock_path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

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
    """Return a row whose values have the right types, or say what is wrong: other programs may have stored any."""
    wrong = ""
    texts: list[str | None] = []
    for name, value in (("aggregatetype", topic), ("aggregateid", key), ("type", kind), ("headers", headers)):
        try:
            texts.append(value.decode() if isinstance(value, bytes) else None if value is None else str(value))
        except UnicodeDecodeError:
            texts.append(None)
            wrong = f"its {name} is no text in UTF-8"
    event_id = _id_bytes(row_id)
    if not event_id:
        wrong = f"its id {row_id!r} is no UUID as outbox.add writes it, in lower case and with hyphens"
    return OutboxRow(
        seq,
        event_id,
        texts[0] or "",
        texts[1],
        texts[2] or "",
        payload if payload is None or isinstance(payload, bytes) else str(payload).encode(),
        texts[3],
        created_ms if isinstance(created_ms, int) else 0,
        wrong,
    )


def _id_bytes(stored: Any) -> bytes:
    """Return the bytes of an id; none for a text by which its row would not be found again."""
    try:
        text = stored.decode("ascii")
        found = uuid.UUID(text)
    except (ValueError, AttributeError):
        return b""
    return found.bytes if str(found) == text else b""
