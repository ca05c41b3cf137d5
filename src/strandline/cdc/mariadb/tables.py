"""The captured tables of a connector: chosen, described and converted once for each shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from strandline.cdc.expressions import NamePatterns
from strandline.cdc.mariadb import catalogue
from strandline.cdc.mariadb.column_types import ColumnTypes
from strandline.cdc.mariadb.connection import close, connect, explained
from strandline.cdc.mariadb.settings import MariadbCdcConfig
from strandline.cdc.mariadb.shapes import MariadbTableShape
from strandline.cdc.mariadb.table_map import table_names, table_shape
from strandline.cdc.model import CapturedTable
from strandline.cdc.selection import TableSelection
from strandline.connect.failures import ConnectFailed

_T = TypeVar("_T")
MAPS_KEPT_MAX: Final = 10_000


@dataclass(frozen=True, eq=False)
class BinlogTable:
    """A captured table, and how its rows are read from the binlog."""

    captured: CapturedTable
    shape: MariadbTableShape


class MariadbTables:
    """Knows which tables are captured, and what they look like."""

    def __init__(self, config: MariadbCdcConfig) -> None:
        self._config = config
        self._selection = TableSelection(config)
        self._include = NamePatterns(config.database_include_list)
        self._exclude = NamePatterns(config.database_exclude_list)
        self._types = ColumnTypes(
            config.decimal_handling_mode,
            config.time_precision_mode,
            config.binary_handling_mode,
            config.bigint_unsigned_handling_mode,
        )
        self._maps: dict[bytes, BinlogTable | None] = {}
        self._charsets: dict[int, str] | None = None

    def has_database(self, name: str) -> bool:
        """Return whether a database is captured."""
        if name in catalogue.SYSTEM:
            return False
        return self._include.matches(name) if self._include else not self._exclude.matches(name)

    def has_table(self, database: str, name: str) -> bool:
        """Return whether a table is captured."""
        return self.has_database(database) and self._selection.has_table(f"{database}.{name}")

    def mapped(self, body: bytes) -> BinlogTable | None:
        """Return the table of a table map, whose id and flags were cut off; None if it is not captured."""
        if body in self._maps:
            return self._maps[body]
        found: BinlogTable | None = None
        database, name = table_names(body)
        if self.has_table(database, name):
            if self._charsets is None:
                self._charsets = self._ask(catalogue.charsets)
            shape = table_shape(body, self._charsets)
            if catalogue.may_be_refined(shape):
                shape = catalogue.refined(shape, self.known(database, name))
            found = BinlogTable(self.captured(shape), shape)
        if len(self._maps) >= MAPS_KEPT_MAX:
            self._maps.clear()
        self._maps[body] = found
        return found

    def captured(self, shape: MariadbTableShape) -> CapturedTable:
        """Return a table with its columns as fields."""
        full_name = shape.full_name
        names = [each.name for each in shape.columns]
        key = self._selection.key_columns(full_name, names) or shape.key
        columns = tuple(
            self._selection.captured(
                full_name, self._types.column(full_name, each), is_key=each.name in key, length=each.length or None
            )
            for each in shape.columns
        )
        return CapturedTable(shape.database, "", shape.name, columns, key, is_before_whole=True)

    def known(self, database: str, name: str) -> MariadbTableShape | None:
        """Return a table as the catalogue has it now; None if there is none."""
        return self._ask(lambda connection: catalogue.table(connection, database, name))

    def forget(self) -> None:
        """Describe tables again, because one was altered in a way that its table map does not show."""
        self._maps.clear()

    def _ask(self, question: Callable[[Any], _T]) -> _T:
        """Ask the catalogue. The connection is made for it alone, because questions are rare."""
        connection = connect(self._config)
        try:
            with explained(self._config):
                return question(connection)
        finally:
            close(connection)


def unknown_rows(name: str, file: str, position: int, why: str) -> ConnectFailed:
    """Return the failure of rows that cannot be read."""
    return ConnectFailed(f"changes of {name} in the binlog {file} at {position} cannot be read: {why}")
