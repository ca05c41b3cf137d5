"""A fresh table in the place of an old one.

The old rows are copied to `<table>__old_<n>`. Then one commit gives the table the columns, the rows and the offsets of
the fresh one, which is removed. So readers see the old rows or the new ones; a crash leaves one copy too many at most.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from strandline.connect.failures import ConnectFailed
from strandline.connect.records import TopicPosition
from strandline.connect.sinks.lake.lake_table import LakeTable, change
from strandline.runtime.fault_points import fault_point

OLD: Final = "__old_"

OpenTable = Callable[[str], LakeTable]
"""Returns a table by its name, read again."""


def swap_tables(
    opened: OpenTable, fresh_names: Collection[str], suffix: str, positions: Collection[TopicPosition]
) -> None:
    """Replace each table by the fresh one that has its name with a suffix. `positions` are those that were read."""
    found = {name: table for name in fresh_names if (table := opened(name)).columns() is not None}
    if not found or not positions:
        raise ConnectFailed("there is no fresh table: it was never written, or is swapped already")
    for name, fresh in found.items():
        target = name.removesuffix(suffix)
        _keep(opened, target)
        fault_point("switch-copied")
        _replace(opened(target), fresh, positions)
        fault_point("switch-committed")
        fresh.drop()


def drop_old_tables(opened: OpenTable, names: Collection[str]) -> None:
    """Remove every copy of tables that were replaced."""
    for name in names:
        # From the last on: the next number is found by counting, also after a crash.
        for each in reversed(_copies(opened, name)):
            each.drop()


def _keep(opened: OpenTable, name: str) -> None:
    """Copy the rows of a table, if there is one."""
    table = opened(name)
    if table.columns() is None:
        return
    rows = table.read()
    copy = opened(f"{name}{OLD}{len(_copies(opened, name)) + 1}")
    copy.create(rows.schema)
    change(copy, lambda: copy.commit(rows, None, {}))


def _copies(opened: OpenTable, name: str) -> list[LakeTable]:
    found: list[LakeTable] = []
    while (table := opened(f"{name}{OLD}{len(found) + 1}")).columns() is not None:
        found.append(table)
    return found


def _replace(table: LakeTable, fresh: LakeTable, positions: Collection[TopicPosition]) -> None:
    # A partition of which the fresh table has nothing keeps its offset: what is below it makes no row.
    offsets = {each: offset for each in positions if (offset := fresh.offset(each)) is not None}
    change(table, lambda: table.replace(fresh, offsets))
