"""Runs a profile: SQL before a connector starts, SQL while it streams, and waits for what it has emitted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import psycopg
from tests.cdc.profile import MARKER, PREFIX, CdcProfile, Seen, Step

CdcRecord = dict[str, Any]
"""A record as JSON: `topic`, `key`, `value`, and `headers` as pairs; all with schemas."""
Records = Callable[[], Sequence[CdcRecord]]
"""Returns what the connector has emitted until now. Raises if it has failed."""
COMES_WITHIN_S: Final = 30.0
_POLL_S: Final = 0.02


def prepare(profile: CdcProfile, dsn: str) -> None:
    """Run what comes before the connector starts."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        _run(connection, profile.before, list)
        connection.execute(f"create table {MARKER} (id int primary key)")
        connection.execute(f"insert into {MARKER} values (0)")


def stream(profile: CdcProfile, dsn: str, records: Records) -> None:
    """Wait for the end of the snapshot, run the statements, and wait until their records have come."""
    wait(records, Seen(f"public.{MARKER}", 1))
    with psycopg.connect(dsn, autocommit=True) as connection:
        _run(connection, profile.during, records)
        connection.execute(f"insert into {MARKER} values (1)")
    for each in (Seen(f"public.{MARKER}", 2), *profile.ends_with):
        wait(records, each)


def wait(records: Records, seen: Seen) -> None:
    """Wait until enough records of a topic have come."""
    names = (f"{PREFIX}.{seen.topic}", f"{seen.topic}.{PREFIX}")
    deadline = time.monotonic() + COMES_WITHIN_S
    while True:
        found = [each["topic"] for each in records()]
        if sum(topic in names for topic in found) >= seen.count:
            return
        counts = {topic: found.count(topic) for topic in set(found)}
        assert time.monotonic() < deadline, f"{seen} did not come, but {counts}"
        time.sleep(_POLL_S)


def _run(connection: psycopg.Connection, steps: Sequence[Step], records: Records) -> None:
    for step in steps:
        if isinstance(step, Seen):
            wait(records, step)
        elif isinstance(step, str):
            connection.execute(step.encode())
        else:
            connection.execute("begin")
            for statement in step:
                connection.execute(statement.encode())
            if step[-1] != "rollback":
                connection.execute("commit")
