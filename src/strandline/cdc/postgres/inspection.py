"""What PostgreSQL says of a source: its slot, how far it is behind, its tables, and what is about to go wrong."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import psycopg

from strandline.cdc.model import CapturedTable
from strandline.cdc.names import TopicNames
from strandline.cdc.postgres import publications, slots
from strandline.cdc.postgres.connection import connect, failures, lsn_of, lsn_text, missing_slot
from strandline.cdc.postgres.positions import WalPosition
from strandline.cdc.postgres.settings import PostgresCdcConfig
from strandline.cdc.postgres.slots import SlotState
from strandline.cdc.postgres.tables import Tables
from strandline.cdc.postgres.types import SESSION_SETTINGS
from strandline.connect.records import SourceOffsets

_IDENTITIES: Final = {"d": "default", "n": "nothing", "f": "full", "i": "index"}
_END: Final = (
    "select (case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end)::text,"
    " current_setting('server_version')"
)
_TABLE: Final = """
    select c.relreplident, array(
        select a.attname::text from pg_index i join pg_attribute a on a.attrelid = c.oid and a.attnum = any(i.indkey)
        where i.indrelid = c.oid and i.indisprimary order by a.attnum)
    from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = %s and c.relname = %s
"""


def inspect(config: PostgresCdcConfig, offsets: SourceOffsets) -> dict[str, Any]:
    """Return the state of a source as JSON. Raise ConnectFailed if the database cannot be asked."""
    stored = offsets.get({"server": config.topic_prefix})
    position = None if stored is None else WalPosition.of(stored)
    with failures(config), connect(config, SESSION_SETTINGS) as connection:
        row = connection.execute(_END).fetchone()
        assert row is not None
        end_lsn, version = lsn_of(row[0]), row[1]
        slot = slots.look(connection, config)
        behind = None if position is None else max(0, end_lsn - position.lsn)
        return {
            "database": config.address,
            "server": f"PostgreSQL {version}",
            "position": None if position is None else lsn_text(position.lsn),
            "end": lsn_text(end_lsn),
            "behind_bytes": behind,
            "behind_s": _behind_s(position, slot, behind),
            "snapshot": _snapshot(config, position),
            "slot": None if slot is None else _slot(config, slot),
            "publication": config.publication_name,
            "tables": _tables(connection, config),
            "problems": _problems(config, position, slot) + _publication_problems(connection, config, position),
        }


def _behind_s(position: WalPosition | None, slot: SlotState | None, behind: int | None) -> float | None:
    """Return the age of the last commit that is in the log, if there is more to read; 0 if there is not."""
    if position is None or behind is None:
        return None
    confirmed = None if slot is None else slot.confirmed_lsn
    if not behind or (confirmed is not None and slot is not None and slot.is_active and confirmed >= position.lsn):
        # A reader that has confirmed everything it was sent is not behind: the rest is no change of its tables.
        return 0.0 if slot is not None and slot.is_active else None
    return None if position.ts_us is None else max(0.0, time.time() - position.ts_us / 1e6)


def _snapshot(config: PostgresCdcConfig, position: WalPosition | None) -> str:
    if position is None:
        return "not begun" if config.snapshot_mode not in ("no_data", "never") else "none"
    if position.is_snapshot:
        return "under way"
    if position.incremental is not None:
        return "incremental, under way"
    return "done" if config.snapshot_mode not in ("no_data", "never") else "none"


def _slot(config: PostgresCdcConfig, slot: SlotState) -> dict[str, Any]:
    return {
        "name": config.slot_name,
        "is_active": slot.is_active,
        "wal_status": slot.wal_status,
        "held_bytes": slot.held_bytes,
        "keep_limit": slot.keep_limit,
        "confirmed": None if slot.confirmed_lsn is None else lsn_text(slot.confirmed_lsn),
    }


def _tables(connection: psycopg.Connection[Any], config: PostgresCdcConfig) -> list[dict[str, Any]]:
    names, tables = TopicNames(config), Tables(config, connection)
    found = []
    for each in publications.published(connection, config):
        if not tables.is_streamed((each.schema, each.name)):
            continue
        row = connection.execute(_TABLE, (each.schema, each.name)).fetchone()
        table = CapturedTable(config.database_dbname, each.schema, each.name, (), ())
        identity, key = ("d", []) if row is None else row
        found.append(
            {
                "table": table.full_name,
                "topic": names.table(table),
                "columns": len(each.columns),
                "key": key,
                "identity": _IDENTITIES.get(identity, identity),
            }
        )
    return found


def _problems(config: PostgresCdcConfig, position: WalPosition | None, slot: SlotState | None) -> list[str]:
    """Return what is wrong, or soon will be, in sentences."""
    if slot is None:
        return [] if position is None else [missing_slot(config.slot_name)]
    name, held = config.slot_name, f"{slot.held_bytes:,} bytes of WAL"
    if slot.is_lost:
        return [f'PostgreSQL has removed WAL that the slot "{name}" needs: set snapshot.mode=when_needed']
    found = []
    if slot.wal_status == "unreserved":
        found.append(f'the slot "{name}" holds {held}, and the next checkpoint may remove some of it')
    if config.slot_guard_warn_bytes and slot.held_bytes > config.slot_guard_warn_bytes:
        found.append(f'the slot "{name}" holds {held}, more than slot.guard.warn.bytes')
    # The position was read before the slot, so a task that runs may have confirmed more by now.
    if position is not None and not position.is_snapshot and not slot.is_active:
        confirmed = slot.confirmed_lsn or 0
        if confirmed > position.lsn:
            found.append(
                f'the slot "{name}" is at {lsn_text(confirmed)}, past the stored position {lsn_text(position.lsn)}, so '
                f"changes are lost: set snapshot.mode=when_needed for a new snapshot"
            )
    # The slot of a snapshot is not read until the snapshot ends.
    is_unread = not slot.is_active and (position is None or not position.is_snapshot)
    if is_unread and slot.keep_limit == "-1" and slot.held_bytes:
        found.append(
            f'no task reads the slot "{name}", which holds {held} and will fill the disk of the database: start the '
            f"connector, drop the slot, or set max_slot_wal_keep_size"
        )
    return found


def _publication_problems(
    connection: psycopg.Connection[Any], config: PostgresCdcConfig, position: WalPosition | None
) -> list[str]:
    """Return what keeps changes of captured tables out of the stream."""
    if position is None:
        return []
    if not publications.exists(connection, config):
        return [publications.missing_publication(config)]
    lacking = publications.lacking(connection, config, Tables(config, connection).is_streamed)
    return [] if lacking is None else [lacking]


def gauges(slot: SlotState | None, position: WalPosition | None) -> Mapping[str, float]:
    """Return the numbers of a source that runs, for its metrics."""
    found: dict[str, float] = {}
    if slot is not None:
        found["slot_held_bytes"] = slot.held_bytes
        found["slot_is_lost"] = int(slot.is_lost)
    if position is not None and position.ts_us is not None:
        found["last_commit_timestamp_seconds"] = position.ts_us / 1e6
    return found
