"""Connections to PostgreSQL, for SQL and for replication, and its errors as sentences."""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg.pq import ExecStatus

from strandline.connect.failures import ConnectFailed, InvalidConnectorConfig, RetriableFailure

if TYPE_CHECKING:
    from strandline.cdc.postgres.settings import PostgresCdcConfig

LOOK_EVERY_MS: Final = 200
_PASSING: Final = ("08", "25006", "40", "53", "55P03", "57", "58")
"""Classes and codes of SQLSTATE that pass by themselves: connections, read only, conflicts, resources, shut-downs."""
_REFUSED: Final = ("authentication failed", "does not exist", "no pg_hba.conf entry", "is not permitted to log in")
"""In the message of a connection that will never succeed. The driver has no error codes for them."""
_TEXT: Final = {"client_encoding": "UTF8"}


class SlotInUse(RetriableFailure):
    """Another connection reads the slot."""


class Stopped(RetriableFailure):
    """The task is to stop, so what it was about to do is left undone."""


class ChangesLost(ConnectFailed):
    """Changes behind the stored position cannot be had any more; a snapshot is needed."""


def connect(
    config: PostgresCdcConfig, settings: Mapping[str, str], *, replication: bool = False
) -> psycopg.Connection[Any]:
    """Open a connection in autocommit mode, with settings of the session."""
    options = " ".join(f"-c {name}={_escaped(value)}" for name, value in settings.items())
    given: dict[str, Any] = config.connection_parameters() | {"options": options} | _TEXT
    if replication:
        given["replication"] = "database"
    try:
        # Not prepared, because a pooler may give each transaction another server process.
        return psycopg.connect(autocommit=True, prepare_threshold=None, **given)
    except psycopg.OperationalError as error:
        said = _said(error)
        if "replication" in said and "pg_hba.conf" in said:
            raise ConnectFailed(
                f"PostgreSQL refuses replication connections: {said}; add a line to pg_hba.conf"
            ) from None
        if "must be superuser or replication role" in said or "permission denied to start WAL sender" in said:
            raise ConnectFailed(
                f'the role "{config.database_user}" may not read the WAL: '
                f'run ALTER ROLE "{config.database_user}" REPLICATION'
            ) from None
        kind = ConnectFailed if any(each in said for each in _REFUSED) else RetriableFailure
        raise kind(f"PostgreSQL at {config.address} cannot be connected to: {said}") from None
    except psycopg.ProgrammingError as error:
        raise InvalidConnectorConfig(f"the settings database.* are no PostgreSQL connection: {_said(error)}") from None


def command(connection: psycopg.Connection[Any], text: str, stopping: threading.Event) -> list[tuple[str | None, ...]]:
    """Run a command of the replication protocol, and return its rows as texts.

    Making a slot waits for every transaction that runs, so this looks whether the task is to stop.
    """
    pgconn = connection.pgconn
    pgconn.send_query(text.encode())
    poll = select.poll()
    poll.register(pgconn.socket, select.POLLIN)
    pgconn.flush()
    while pgconn.is_busy():
        if stopping.is_set():
            raise Stopped("the task stops while it waits for PostgreSQL")
        poll.poll(LOOK_EVERY_MS)
        pgconn.consume_input()
    result = pgconn.get_result()
    assert result is not None
    while pgconn.get_result() is not None:
        continue
    if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        raise psycopg.errors.error_from_result(result)
    rows = []
    for row in range(result.ntuples):
        values = (result.get_value(row, column) for column in range(result.nfields))
        rows.append(tuple(None if each is None else bytes(each).decode() for each in values))
    return rows


@contextmanager
def failures(config: PostgresCdcConfig) -> Iterator[None]:
    """Turn errors of the driver into those of connectors."""
    try:
        yield
    except psycopg.Error as error:
        raise failure_of(error, config) from error


def failure_of(error: psycopg.Error, config: PostgresCdcConfig) -> ConnectFailed:
    """Return a sentence about an error, with what to do where that is known."""
    state = error.sqlstate or ""
    said = _said(error)
    slot = config.slot_name
    match state:
        case "55006":
            return SlotInUse(
                f'another connection reads the replication slot "{slot}" ({said}): stop it, or set another slot.name'
            )
        case "55000" if "wal_level" in said or ("logical decoding" in said.lower() and "requires" in said):
            return ConnectFailed(
                "PostgreSQL does not write what logical replication needs: "
                "set wal_level=logical in postgresql.conf and restart the server"
            )
        case "55000" | "58P01" if "slot" in said or "WAL" in said:
            return ChangesLost(
                f'the replication slot "{slot}" cannot give the changes since the stored position ({said}): '
                f"drop it and take a new snapshot, for example with snapshot.mode=when_needed"
            )
        case "42704" if "replication slot" in said:
            return ChangesLost(missing_slot(slot))
        case "42704" if "publication" in said:
            return ConnectFailed(
                f'the publication "{config.publication_name}" does not exist: create it, '
                f"or set publication.autocreate.mode, and drop the slot if it is older than the publication"
            )
        case "42501":
            return ConnectFailed(f'the role "{config.database_user}" lacks a right: {said}')
        case "53400":
            return ConnectFailed(f"PostgreSQL has no room for a slot ({said}): raise max_replication_slots")
    if state.startswith(_PASSING) or (isinstance(error, psycopg.OperationalError) and not state):
        return RetriableFailure(f"PostgreSQL at {config.address} is away or busy: {said}")
    return ConnectFailed(f"PostgreSQL refuses: {said}")


def missing_slot(slot: str) -> str:
    """Return the sentence about a slot that is not there, while a position is stored."""
    return (
        f'the replication slot "{slot}" does not exist any more, so changes since the stored position are lost: '
        f"set snapshot.mode=when_needed for a new snapshot, or reset the offsets of the connector"
    )


def quoted(name: str) -> str:
    """Return a name as SQL's and the replication protocol's quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as a string of the replication protocol, where a backslash is plain."""
    return "'" + text.replace("'", "''") + "'"


def lsn_text(lsn: int) -> str:
    """Return a position of the WAL as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_of(text: str) -> int:
    """Return a position of the WAL as a number."""
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


def _said(error: Exception) -> str:
    """Return an error's first line, without the statement."""
    diagnosis = getattr(error, "diag", None)
    primary = getattr(diagnosis, "message_primary", None)
    lines = str(primary or error).strip().splitlines()
    return lines[-1 if primary is None else 0].strip() if lines else type(error).__name__
