"""A fresh target in the place of the old one: tables are renamed and offsets moved in one transaction."""

from __future__ import annotations

from strandline.connect.failures import ConnectFailed
from strandline.connect.sinks.sql.database import Database
from strandline.connect.sinks.sql.offsets import OFFSETS, WrittenTables, move_offsets
from strandline.connect.sinks.sql.tables import TableName
from strandline.runtime.fault_points import fault_point


def swap_tables(database: Database, connector: str, suffix: str) -> None:
    """Rename each table to `table__old_<n>`, and the fresh one to `table`."""
    fresh, current = WrittenTables(database, connector + suffix), WrittenTables(database, connector)
    replaced = WrittenTables(database, _replaced(connector))
    with database.changing_tables():
        # A table is noted before it is created.
        written = [each for each in fresh.all() if database.shape(each) is not None]
        if not written:
            raise ConnectFailed(f"{connector} has no fresh target: it was never written, or is swapped already")
        for name in written:
            target = TableName(name.table.removesuffix(suffix), name.schema)
            if database.shape(target) is not None:
                old = _old_name(database, target)
                database.rename(target, old.table)
                replaced.add(old)
                fault_point("sql-swap-old-renamed")
            database.rename(name, target.table)
            current.add(target)
            fault_point("sql-swap-new-renamed")
        fresh.clear()
        move_offsets(database, connector + suffix, connector)
        fault_point("sql-swap-offsets-moved")
    fault_point("sql-swap-committed")


def discard_target(database: Database, connector: str) -> None:
    """Drop the tables of a fresh target, and its offsets."""
    with database.changing_tables():
        _drop(database, WrittenTables(database, connector))
        database.run(f"delete from {OFFSETS} where connector = {database.mark}", (connector,))


def drop_old_tables(database: Database, connector: str) -> None:
    """Drop every table that was replaced."""
    with database.changing_tables():
        _drop(database, WrittenTables(database, _replaced(connector)))


def _drop(database: Database, written: WrittenTables) -> None:
    for name in written.all():
        database.run(f"drop table if exists {database.table(name)}")
    written.clear()


def _old_name(database: Database, name: TableName) -> TableName:
    number = 1
    while database.shape(old := name.with_suffix(f"__old_{number}")) is not None:
        number += 1
    wrong = database.wrong_name(old.table)
    if wrong is not None:
        raise ConnectFailed(f"{name} cannot be put aside: {wrong}")
    return old


def _replaced(connector: str) -> str:
    """Return the name under which tables of a connector are noted that were replaced."""
    return f"{connector}__old"
