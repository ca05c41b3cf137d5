"""Waits until a transaction that the stream has sent is visible to other connections.

A commit is written to the WAL first, and is sent from there. Only then does PostgreSQL make it visible to snapshots;
with synchronous replication it waits for the standby in between. A catalogue that is read too early is the one before
the transaction: it lacks the columns that ALTER TABLE has added, or has them without NOT NULL.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Final

import psycopg

from strandline.cdc.postgres.connection import Stopped
from strandline.connect.failures import RetriableFailure

VISIBLE_S_MAX: Final = 10.0
"""How long a commit may take from the WAL to snapshots before the task gives up, and tries again."""
_FIRST_PAUSE_S: Final = 0.002
_PAUSE_S_MAX: Final = 0.1
_XIDS: Final = 2**32
_SNAPSHOT: Final = "select pg_catalog.pg_current_snapshot()::text"
"""The oldest transaction that runs, the next one that begins, and all between them that run: `xmin:xmax:xid,xid`."""


def wait_until_visible(connection: psycopg.Connection[Any], xid: int, stopping: threading.Event) -> None:
    """Wait until a connection sees what a transaction did, which the stream says to be committed."""
    until_s = time.monotonic() + VISIBLE_S_MAX
    pause_s = _FIRST_PAUSE_S
    while True:
        row = connection.execute(_SNAPSHOT).fetchone()
        assert row is not None
        if is_visible(xid, row[0]):
            return
        if time.monotonic() > until_s:
            raise RetriableFailure(
                f"the transaction {xid} is committed but not visible for {VISIBLE_S_MAX:g} s, and the catalogue cannot "
                f"be read before: it may wait for a standby of synchronous_standby_names that is away"
            )
        if stopping.wait(pause_s):
            raise Stopped("the task stops while it waits for a transaction of PostgreSQL")
        pause_s = min(2 * pause_s, _PAUSE_S_MAX)


def is_visible(xid: int, snapshot: str) -> bool:
    """Return whether a snapshot sees a transaction that has ended. The stream has the lower 32 bits of its number."""
    _, following, running = snapshot.split(":")
    distance = (int(following) - xid) % _XIDS
    return 0 < distance < _XIDS // 2 and all(int(each) % _XIDS != xid for each in running.split(",") if each)
