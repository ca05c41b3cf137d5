"""The publication: made, and kept equal to the tables that are captured.

A publication of ours can only be changed for the future: PostgreSQL decodes old changes with the publication as it was
when they were written. So a table that is added gives its changes from then on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from strandline.cdc.postgres.connection import quoted
from strandline.cdc.postgres.settings import PostgresCdcConfig
from strandline.connect.failures import ConnectFailed

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PublishedTable:
    """A table of the publication, with the columns and rows that it gives."""

    schema: str
    name: str
    columns: tuple[str, ...]
    row_filter: str | None

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"


TableId = tuple[str, str]
"""Schema and name."""


def ensure(connection: psycopg.Connection[Any], config: PostgresCdcConfig, captured: Sequence[TableId]) -> None:
    """Make the publication, or change it, as `publication.autocreate.mode` says."""
    name = config.publication_name
    found = connection.execute("select puballtables from pg_publication where pubname = %s", (name,)).fetchone()
    mode = config.publication_autocreate_mode
    if found is None:
        if mode == "disabled":
            raise ConnectFailed(
                f'the publication "{name}" does not exist: create it, or set publication.autocreate.mode to filtered'
            )
        _create(connection, config, captured)
    elif mode == "filtered" and not found[0]:
        _change(connection, config, captured)


def exists(connection: psycopg.Connection[Any], config: PostgresCdcConfig) -> bool:
    """Return whether the publication exists."""
    found = connection.execute("select from pg_publication where pubname = %s", (config.publication_name,)).fetchone()
    return found is not None


def missing_publication(config: PostgresCdcConfig) -> str:
    """Return the message for a publication that was dropped behind a stored position."""
    return (
        f'the publication "{config.publication_name}" was dropped, so changes behind the stored position may be '
        f"missing: set snapshot.mode=when_needed for a new snapshot"
    )


def lacking(
    connection: psycopg.Connection[Any], config: PostgresCdcConfig, is_captured: Callable[[TableId], bool]
) -> str | None:
    """Return the message for captured tables that a publication of ours has not; None if it has all."""
    if config.publication_autocreate_mode != "filtered":
        # An administrator chooses the tables of the publication.
        return None
    present = {(each.schema, each.name) for each in published(connection, config)}
    tables = candidates(connection, via_root=config.publish_via_partition_root)
    found = [".".join(each) for each in tables if each not in present and is_captured(each)]
    if not found:
        return None
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return (
        f'the publication "{config.publication_name}" lacks the table {found[0]}{more}, so its changes are not '
        f"captured: run `strandline connect restart NAME --tasks`, and read the table by an incremental snapshot"
    )


def published(connection: psycopg.Connection[Any], config: PostgresCdcConfig) -> list[PublishedTable]:
    """Return the tables of the publication; of partitioned ones the roots, if it gives their rows so."""
    rows = connection.execute(
        "select schemaname, tablename, attnames::text[], rowfilter from pg_publication_tables where pubname = %s"
        " order by schemaname, tablename",
        (config.publication_name,),
    ).fetchall()
    return [PublishedTable(schema, name, tuple(columns), row_filter) for schema, name, columns, row_filter in rows]


def candidates(connection: psycopg.Connection[Any], *, via_root: bool) -> list[TableId]:
    """Return the tables that a publication may have."""
    kinds = "c.relkind in ('r', 'p') and not c.relispartition" if via_root else "c.relkind = 'r'"
    return connection.execute(
        f"""
        select n.nspname::text, c.relname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where {kinds} and c.relpersistence = 'p' and n.nspname not like 'pg\\_%%' and n.nspname <> 'information_schema'
        order by 1, 2
        """,
        (),
    ).fetchall()


def _create(connection: psycopg.Connection[Any], config: PostgresCdcConfig, captured: Sequence[TableId]) -> None:
    mode = config.publication_autocreate_mode
    target: sql.Composable
    if mode == "all_tables":
        target = sql.SQL("for all tables ")
    elif mode == "filtered":
        if not captured:
            raise ConnectFailed("no table matches table.include.list, so the publication would be empty")
        target = sql.SQL("for table {} ").format(_tables(captured))
    else:
        target = sql.SQL("")
    via_root = sql.Literal("true" if config.publish_via_partition_root else "false")
    statement = sql.SQL("create publication {} {}with (publish_via_partition_root = {})")
    try:
        connection.execute(statement.format(sql.Identifier(config.publication_name), target, via_root))
    except psycopg.errors.InsufficientPrivilege as error:
        advice = (
            "set publication.autocreate.mode=filtered, or have a superuser create it"
            if mode == "all_tables"
            else "grant CREATE on the database and the ownership of the tables, or create it by hand"
        )
        raise ConnectFailed(
            f'the role "{config.database_user}" may not create the publication "{config.publication_name}" '
            f"({error.diag.message_primary}): {advice}"
        ) from None
    _log.info("created the publication %s (%s)", config.publication_name, mode)


def _change(connection: psycopg.Connection[Any], config: PostgresCdcConfig, captured: Sequence[TableId]) -> None:
    """Add and remove tables one by one, so that column lists and filters of the others stay."""
    rows = connection.execute(
        "select n.nspname::text, c.relname::text from pg_publication_rel r join pg_class c on c.oid = r.prrelid"
        " join pg_namespace n on n.oid = c.relnamespace join pg_publication p on p.oid = r.prpubid"
        " where p.pubname = %s",
        (config.publication_name,),
    ).fetchall()
    present, wanted = set(rows), set(captured)
    publication = sql.Identifier(config.publication_name)
    for verb, tables in (("add", sorted(wanted - present)), ("drop", sorted(present - wanted))):
        if not tables:
            continue
        statement = sql.SQL(f"alter publication {{}} {verb} table {{}}")
        try:
            connection.execute(statement.format(publication, _tables(tables)))
        except psycopg.errors.InsufficientPrivilege as error:
            raise ConnectFailed(
                f'the role "{config.database_user}" may not change the publication "{config.publication_name}" '
                f"({error.diag.message_primary}): make it the owner, or set publication.autocreate.mode=disabled"
            ) from None
        names = ", ".join(".".join(each) for each in tables)
        _log.info("publication %s: %s table %s", config.publication_name, verb, names)


def _tables(tables: Sequence[TableId]) -> sql.Composable:
    return sql.SQL(", ").join(sql.Identifier(*each) for each in tables)


def quoted_name(config: PostgresCdcConfig) -> str:
    """Return the publication as pgoutput's option has it: a list of quoted names."""
    return quoted(config.publication_name)
