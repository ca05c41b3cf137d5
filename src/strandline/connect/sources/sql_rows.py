"""Rows behind a position, in the order of positions, in pages that never split rows with the same one."""

from __future__ import annotations

import datetime
import decimal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from strandline.connect.failures import ConnectFailed
from strandline.connect.records import SourceRecord
from strandline.connect.sources.sql_columns import ColumnRules, SqlColumn, ValueInvalid
from strandline.connect.sources.sql_shapes import PositionColumns, SqlShape, query_shape, table_shape

GROUP_ROWS_MAX: Final = 100_000
"""Rows with the same timestamp, which are one batch in the mode `timestamp`."""
SHAPE_S_MAX: Final = 60.0
"""How long a table's columns are taken for granted; a column that was added is seen within this time."""
_UTC_NOW: Final[dict[str, Any]] = {
    "postgresql": sa.func.now(),
    "mysql": sa.func.utc_timestamp(6),
    "mariadb": sa.func.utc_timestamp(6),
    "mssql": sa.func.sysutcdatetime(),
}
"""The clocks of databases; with others it is the worker's."""


@dataclass(frozen=True)
class SqlPage:
    """Records, the position behind them, and whether there are more."""

    records: Sequence[SourceRecord]
    offset: Mapping[str, Any]
    has_more: bool


@dataclass(frozen=True)
class RowSettings:
    """What is the same for every table of a source."""

    rules: ColumnRules
    positions: PositionColumns
    rows_max: int
    delay: datetime.timedelta


class SqlRows:
    """The rows of one table, or of a query."""

    def __init__(
        self, engine: sa.Engine, settings: RowSettings, *, table: str = "", query: str = "", topic: str
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._table = table
        self._query = query
        self._topic = topic
        self._shape: SqlShape | None = None
        self._shape_at_s = 0.0
        self._known: dict[str, SqlColumn] = {}
        """Columns whose type a value has shown."""

    @property
    def partition(self) -> dict[str, str]:
        """The partition of the source that positions belong to."""
        return {"table": self._table} if self._table else {"query": "query"}

    def page(self, offset: Mapping[str, Any] | None) -> SqlPage:
        """Return the rows behind a position."""
        if self._shape is not None and time.monotonic() - self._shape_at_s < SHAPE_S_MAX:
            try:
                return self._page(self._shape, offset)
            except (sa.exc.ProgrammingError, sa.exc.OperationalError):
                # A column may be gone: the table is looked at again, and a second failure is the caller's.
                self._shape = None
        return self._page(self._look(), offset)

    def whole(self) -> Iterator[list[SourceRecord]]:
        """Yield every row, in pages of one statement."""
        shape = self._look()
        with self._engine.connect().execution_options(stream_results=True) as connection:
            for rows in connection.execute(sa.select(*shape.selected)).partitions(self._settings.rows_max):
                yield self._records(shape, rows)

    def now(self) -> datetime.datetime:
        """Return the time of the database."""
        with self._engine.connect() as connection:
            return self._now(connection)

    def _look(self) -> SqlShape:
        settings = self._settings
        with self._engine.connect() as connection:
            if self._table:
                self._shape = table_shape(connection, self._table, settings.rules, settings.positions)
            else:
                self._shape = query_shape(connection, self._query, settings.rules, settings.positions)
        self._shape_at_s = time.monotonic()
        return self._shape

    def _page(self, shape: SqlShape, offset: Mapping[str, Any] | None) -> SqlPage:
        rows_max = self._settings.rows_max
        with self._engine.connect() as connection:
            behind = self._limits(connection, shape, offset or {})
            rows = self._fetch(connection, shape, behind, rows_max + 1)
            has_more = len(rows) > rows_max
            if has_more:
                last = self._position(shape, rows[-1])
                whole = [row for row in rows if self._position(shape, row) != last]
                rows = whole or self._group(connection, shape, rows[-1])
        if not rows:
            return SqlPage((), offset or {}, False)
        if offset and self._offset(shape, rows[0]) == offset:
            raise ConnectFailed(f"{shape.name} gives rows of the stored position again: its clock is finer than 1 us")
        return SqlPage(self._records(shape, rows), self._offset(shape, rows[-1]), has_more)

    def _group(self, connection: sa.Connection, shape: SqlShape, row: sa.Row[Any]) -> Sequence[sa.Row[Any]]:
        """Return all rows with the position of one."""
        same = [each == value for each, value in zip(shape.position(), self._position(shape, row), strict=True)]
        rows = self._fetch(connection, shape, same, GROUP_ROWS_MAX + 1)
        if len(rows) > GROUP_ROWS_MAX:
            raise ConnectFailed(
                f"more than {GROUP_ROWS_MAX} rows of {shape.name} have the position {self._offset(shape, row)}: "
                "use mode=timestamp+incrementing"
            )
        return rows

    def _fetch(
        self, connection: sa.Connection, shape: SqlShape, conditions: Sequence[Any], rows_max: int
    ) -> Sequence[sa.Row[Any]]:
        order = shape.position()
        labelled = [each.label(f"strandline_position_{index}") for index, each in enumerate(order)]
        statement = sa.select(*shape.selected, *labelled).where(*conditions).order_by(*order).limit(rows_max)
        return connection.execute(statement).all()

    def _limits(self, connection: sa.Connection, shape: SqlShape, offset: Mapping[str, Any]) -> list[Any]:
        """Return the conditions of rows that follow a position and are old enough."""
        conditions = [each.is_not(None) for each in shape.position()]
        if shape.timestamp is None:
            return [*conditions, shape.id > offset["incrementing"]] if "incrementing" in offset else conditions
        conditions.append(self._instant(shape) < self._bound(shape, self._now(connection) - self._settings.delay))
        if "initial" in offset:
            start = datetime.datetime.fromtimestamp(offset["initial"] / 1000, datetime.UTC)
            conditions.append(self._instant(shape) > self._bound(shape, start))
        if "timestamp" in offset:
            last = offset["timestamp"]
            if not self._settings.rules.is_sqlite:
                last = datetime.datetime.fromisoformat(last)
            behind = shape.timestamp > last
            if shape.id is not None and "incrementing" in offset:
                behind = sa.or_(behind, sa.and_(shape.timestamp == last, shape.id > offset["incrementing"]))
            conditions.append(behind)
        return conditions

    def _now(self, connection: sa.Connection) -> datetime.datetime:
        clock = _UTC_NOW.get(connection.dialect.name)
        if clock is None:
            return datetime.datetime.now(datetime.UTC)
        found: datetime.datetime = connection.execute(sa.select(clock)).scalar_one()
        return found.replace(tzinfo=datetime.UTC) if found.tzinfo is None else found

    def _instant(self, shape: SqlShape) -> Any:
        """Return the timestamp in a form that `_bound` can be compared with."""
        is_sqlite = self._settings.rules.is_sqlite
        return sa.func.strftime("%Y-%m-%d %H:%M:%f", shape.timestamp) if is_sqlite else shape.timestamp

    def _bound(self, shape: SqlShape, instant: datetime.datetime) -> Any:
        local = instant.astimezone(self._settings.rules.timezone)
        if self._settings.rules.is_sqlite:
            return local.strftime("%Y-%m-%d %H:%M:%S.") + f"{local.microsecond // 1000:03d}"
        return local if shape.has_zone else local.replace(tzinfo=None)

    def _position(self, shape: SqlShape, row: sa.Row[Any]) -> tuple[Any, ...]:
        return tuple(row)[len(shape.selected) :]

    def _offset(self, shape: SqlShape, row: sa.Row[Any]) -> dict[str, Any]:
        found = list(self._position(shape, row))
        offset: dict[str, Any] = {}
        if shape.timestamp is not None:
            value = found.pop(0)
            offset["timestamp"] = value.isoformat() if isinstance(value, datetime.date) else value
        if shape.id is not None:
            offset["incrementing"] = _whole_number(shape, found.pop(0))
        return offset

    def _records(self, shape: SqlShape, rows: Sequence[sa.Row[Any]]) -> list[SourceRecord]:
        for index, column in enumerate(shape.columns):
            if column.is_guessed and column.name not in self._known:
                value = next((row[index] for row in rows if row[index] is not None), None)
                if value is not None:
                    self._known[column.name] = self._settings.rules.inferred(column.name, value)
        if self._known:
            shape = shape.with_columns([self._known.get(each.name, each) for each in shape.columns])
        return [self._record(shape, row) for row in rows]

    def _record(self, shape: SqlShape, row: sa.Row[Any]) -> SourceRecord:
        try:
            value = {column.name: column.value(given) for column, given in zip(shape.columns, row, strict=False)}
        except ValueInvalid as error:
            raise ConnectFailed(f"a row of {shape.name} cannot be read: {error}") from None
        key = {each.name: value[each.name] for each in shape.key_columns}
        return SourceRecord(
            topic=self._topic,
            value=value,
            value_schema=shape.value_schema,
            key=key or None,
            key_schema=shape.key_schema,
        )


def _whole_number(shape: SqlShape, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | decimal.Decimal) or value != int(value):
        raise ConnectFailed(f"the incrementing column of {shape.name} has {value!r}, which is no whole number")
    return int(value)
