"""Replication slots: made, looked at, guarded and dropped."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from strandline.cdc.postgres.connection import command, lsn_of, quoted
from strandline.cdc.postgres.settings import PostgresCdcConfig
from strandline.connect.failures import ConnectFailed

FAILOVER_SINCE: Final = 170000
OLDEST_VERSION: Final = 150000
_LOOK: Final = """
    select s.plugin, s.database, s.active, s.active_pid, s.restart_lsn::text, s.confirmed_flush_lsn::text, s.wal_status,
           pg_wal_lsn_diff(case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end,
                           s.restart_lsn)::bigint,
           current_setting('max_slot_wal_keep_size')
    from pg_replication_slots s where s.slot_name = %s
"""


@dataclass(frozen=True)
class SlotState:
    """A slot as the catalogue shows it."""

    plugin: str | None
    database: str | None
    is_active: bool
    active_pid: int | None
    restart_lsn: int | None
    confirmed_lsn: int | None
    wal_status: str | None
    held_bytes: int
    """WAL that the server keeps for the slot."""
    keep_limit: str
    """`max_slot_wal_keep_size` of the server; -1 is none."""

    @property
    def is_lost(self) -> bool:
        """Whether the server has removed WAL that the slot needs."""
        return self.wal_status == "lost" or self.restart_lsn is None


@dataclass(frozen=True)
class ExportedSnapshot:
    """A snapshot that sees exactly the transactions whose commits lie before a position of the WAL."""

    lsn: int
    name: str


def look(connection: psycopg.Connection[Any], config: PostgresCdcConfig) -> SlotState | None:
    """Return the state of the connector's slot; None if there is none."""
    row = connection.execute(_LOOK, (config.slot_name,)).fetchone()
    if row is None:
        return None
    plugin, database, is_active, pid, restart, confirmed, status, held, limit = row
    return SlotState(
        plugin,
        database,
        is_active,
        pid,
        None if restart is None else lsn_of(restart),
        None if confirmed is None else lsn_of(confirmed),
        status,
        held or 0,
        limit,
    )


def check(state: SlotState, config: PostgresCdcConfig) -> None:
    """Raise ConnectFailed if the slot is another kind of slot, or another database's."""
    if state.plugin != "pgoutput" or state.database != config.database_dbname:
        raise ConnectFailed(
            f'the replication slot "{config.slot_name}" is one of the plugin {state.plugin} and the database '
            f"{state.database}: set another slot.name"
        )


def create(
    connection: psycopg.Connection[Any],
    config: PostgresCdcConfig,
    stopping: threading.Event,
    *,
    temporary_name: str | None = None,
) -> ExportedSnapshot:
    """Make a slot on a replication connection. Its snapshot lives until the connection's next command."""
    options = ["SNAPSHOT 'export'"]
    if config.slot_failover and temporary_name is None:
        if connection.info.server_version < FAILOVER_SINCE:
            raise ConnectFailed("slot.failover needs PostgreSQL 17: set it to false")
        options.append("FAILOVER")
    kind = "LOGICAL" if temporary_name is None else "TEMPORARY LOGICAL"
    slot = quoted(temporary_name or config.slot_name)
    ((_, lsn, snapshot, _),) = command(
        connection, f"CREATE_REPLICATION_SLOT {slot} {kind} pgoutput ({', '.join(options)})", stopping
    )
    assert lsn is not None
    assert snapshot is not None
    return ExportedSnapshot(lsn_of(lsn), snapshot)


def drop(connection: psycopg.Connection[Any], config: PostgresCdcConfig) -> None:
    """Drop the slot, if it exists and is not in use."""
    connection.execute(
        "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s", (config.slot_name,)
    )
