"""SqlSource: rows of any database that SQLAlchemy reaches, with the settings of Confluent's JDBC source."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar
from zoneinfo import ZoneInfo

import sqlalchemy as sa

from strandline.connect.config import Config, Long, Password, option
from strandline.connect.failures import ConnectFailed, InvalidConnectorConfig, RetriableFailure
from strandline.connect.paths import PathRules
from strandline.connect.records import Batch, SourceOffsets, SourceRecord
from strandline.connect.source import Source
from strandline.connect.sources.sql_columns import NUMERIC_MAPPINGS, ColumnRules
from strandline.connect.sources.sql_rows import RowSettings, SqlRows
from strandline.connect.sources.sql_shapes import PositionColumns, find_table
from strandline.connect.sources.time_zones import check_zone
from strandline.connect.tasks.calls import CallThread

T = TypeVar("T")
NOW: Final = -1
"""The `timestamp.initial` that means the time of the first start."""
CLOSE_S_MAX: Final = 5.0
"""How long `close` waits for a statement that still runs."""
_FILE_DATABASES: Final = ("sqlite", "duckdb")
_NOT_IN_TOPICS: Final = re.compile(r"[^A-Za-z0-9._-]", re.ASCII)
_PASSING: Final = (sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.DisconnectionError, sa.exc.TimeoutError)


class SqlSourceConfig(Config):
    """Settings of SqlSource."""

    connection_url: str = option("URL of SQLAlchemy, as postgresql+psycopg://host/database.", importance="HIGH")
    connection_user: str | None = option("User, if the URL has none.", default=None)
    connection_password: Password | None = option("Password, if the URL has none.", default=None)
    topic_prefix: str = option("Begin of the topics' names; with `query` the whole name.", importance="HIGH")
    mode: Literal["bulk", "incrementing", "timestamp", "timestamp+incrementing"] = option(
        "How new rows are found.", importance="HIGH"
    )
    incrementing_column_name: str | None = option(
        "Column that only grows; without it the primary key, if that is one column.", default=None
    )
    timestamp_column_name: list[str] = option(
        "Columns with the time of the last change; the first that is not null counts.", default=[]
    )
    table_whitelist: list[str] = option("Tables, also as schema.table.", default=[])
    table_include_list: list[str] = option("The same by its newer name.", default=[])
    table_blacklist: list[str] = option("Tables that are left out, if no others are named.", default=[])
    query: str | None = option("A SELECT that is read instead of tables.", default=None)
    key_columns: list[str] | None = option(
        "Columns of the key; the primary key without it, none if it is empty.", default=None
    )
    poll_interval_ms: int = option("Time between polls.", default=5000, low=0)
    batch_max_rows: int = option("Rows of one batch.", default=1000, low=1)
    timestamp_delay_interval_ms: Long = option(
        "Age at which a row is read, so that transactions that began before it are seen.", default=1000, low=0
    )
    timestamp_initial: Long | None = option("Begin, in ms since 1970; -1 is the time of the first start.", default=None)
    db_timezone: str = option("Zone of timestamps that have none.", default="UTC", check=check_zone)
    numeric_mapping: str = option("What NUMERIC becomes.", default="none", choices=NUMERIC_MAPPINGS)
    task_tables: str | None = option("The tables of one task, as JSON; set by the connector.", default=None)

    def check_all(self) -> Sequence[tuple[str, str]]:
        errors = []
        named = [*self.table_whitelist, *self.table_include_list]
        if self.query and named:
            errors.append(("query", "query and a list of tables exclude each other"))
        if "timestamp" in self.mode and not self.timestamp_column_name:
            errors.append(("timestamp.column.name", f"mode={self.mode} needs timestamp.column.name"))
        if "incrementing" in self.mode and self.query and not self.incrementing_column_name:
            errors.append(("incrementing.column.name", f"mode={self.mode} of a query needs incrementing.column.name"))
        try:
            self.url()
        except InvalidConnectorConfig as error:
            errors.append(("connection.url", str(error)))
        return errors

    def url(self) -> sa.URL:
        """Return the URL with user and password. The message of a failure does not show it, for its password."""
        try:
            url = sa.make_url(self.connection_url)
        except sa.exc.ArgumentError:
            raise InvalidConnectorConfig(
                "connection.url is no URL of SQLAlchemy, as postgresql+psycopg://host/database"
            ) from None
        if url.drivername in ("postgresql", "postgres"):
            # Until 2.1 SQLAlchemy took psycopg2 here, which the extra does not have.
            url = url.set(drivername="postgresql+psycopg")
        return url.set(username=self.connection_user or url.username, password=self.connection_password or url.password)

    def engine(self) -> sa.Engine:
        """Return an engine that has not connected yet."""
        url = self.url()
        try:
            engine = sa.create_engine(url, pool_pre_ping=True, hide_parameters=True)
        except (sa.exc.ArgumentError, ImportError) as error:
            raise InvalidConnectorConfig(f"connection.url cannot be used: {error}") from None
        if engine.dialect.name == "postgresql":
            sa.event.listen(engine, "connect", self._set_zone)
        return engine

    def _set_zone(self, connection: Any, _: Any) -> None:
        """Have PostgreSQL compare timestamps with and without zone as the settings say."""
        cursor = connection.cursor()
        cursor.execute("SELECT set_config('TimeZone', %s, false)", (self.db_timezone,))
        cursor.close()
        connection.commit()

    def check_paths(self, paths: PathRules) -> None:
        """Raise InvalidConnectorConfig if the database is a file that is not allowed."""
        url = self.url()
        name = (url.database or "").removeprefix("file:").partition("?")[0]
        if url.get_backend_name() in _FILE_DATABASES and name not in ("", ":memory:"):
            paths.check(name)

    def rows(self, engine: sa.Engine) -> list[SqlRows]:
        """Return what the task reads."""
        is_sqlite = engine.dialect.name == "sqlite"
        positions = PositionColumns(
            self.timestamp_column_name if "timestamp" in self.mode else (),
            "incrementing" in self.mode,
            self.incrementing_column_name or None,
            self.key_columns,
        )
        settings = RowSettings(
            ColumnRules(self.numeric_mapping, ZoneInfo(self.db_timezone), is_sqlite),
            positions,
            self.batch_max_rows,
            datetime.timedelta(milliseconds=self.timestamp_delay_interval_ms),
        )
        if self.query:
            return [SqlRows(engine, settings, query=self.query, topic=self.topic_prefix)]
        tables = json.loads(self.task_tables) if self.task_tables else self.tables(engine)
        return [SqlRows(engine, settings, table=each, topic=self.topic_of(each)) for each in tables]

    def tables(self, engine: sa.Engine) -> list[str]:
        """Return the tables that are read. Raise InvalidConnectorConfig if two of them have the same topic."""
        named = [*self.table_whitelist, *self.table_include_list]
        inspector = sa.inspect(engine)
        for each in named:
            find_table(inspector, each)
        if not named:
            named = [each for each in inspector.get_table_names() if each not in self.table_blacklist]
        by_topic: dict[str, str] = {}
        for each in dict.fromkeys(named):
            other = by_topic.setdefault(self.topic_of(each), each)
            if other != each:
                raise InvalidConnectorConfig(
                    f"tables {other} and {each} would both have the topic {self.topic_of(each)}"
                )
        return list(by_topic.values())

    def topic_of(self, table: str) -> str:
        """Return the topic of a table: characters that a topic cannot have become `_`."""
        return self.topic_prefix + _NOT_IN_TOPICS.sub("_", table)


class SqlSource(Source):
    """Reads new rows of tables, or of a query. Exactly once, except with `mode=bulk`."""

    Config = SqlSourceConfig
    config: SqlSourceConfig

    @classmethod
    def tasks(cls, config: SqlSourceConfig, tasks_max: int) -> Sequence[Mapping[str, str]]:
        """Share the tables among tasks."""
        if config.query:
            return [{}]
        engine = config.engine()
        try:
            with _failures():
                tables = config.tables(engine)
        finally:
            engine.dispose()
        if not tables:
            raise InvalidConnectorConfig("the database has no tables to read; name some in table.include.list")
        count = min(tasks_max, len(tables))
        return [{"task.tables": json.dumps(tables[index::count])} for index in range(count)]

    async def open(self) -> None:
        self.config.check_paths(self.paths)
        self._engine = self.config.engine()
        self._thread = CallThread("sql-source")

    async def close(self) -> None:
        if hasattr(self, "_thread"):
            # Behind what the thread still does: a connection is not taken from under it.
            disposed = asyncio.ensure_future(self._thread.call(self._engine.dispose))
            await asyncio.wait([disposed], timeout=CLOSE_S_MAX)
            self._thread.close()

    async def read(self, offsets: SourceOffsets) -> AsyncIterator[Batch]:
        tables = await self._in_thread(self.config.rows, self._engine)
        reading = self._read_whole if self.config.mode == "bulk" else self._read_new
        positions = {each: offsets.get(each.partition) for each in tables}
        while True:
            async with contextlib.aclosing(reading(positions)) as batches:
                async for batch in batches:
                    yield batch

    async def _read_new(self, positions: dict[SqlRows, Mapping[str, Any] | None]) -> AsyncGenerator[Batch, None]:
        """Yield one page of each table, and wait if none has more."""
        has_more = False
        for rows, offset in tuple(positions.items()):
            if offset is None and self.config.timestamp_initial is not None and self.config.mode != "incrementing":
                # Stored before the first row: a restart must not take a later time for the begin.
                positions[rows] = offset = {"initial": await self._in_thread(self._begin_ms, rows)}
                yield Batch((), rows.partition, offset)
            page = await self._in_thread(rows.page, offset)
            has_more = has_more or page.has_more
            if page.records:
                positions[rows] = page.offset
                yield Batch(page.records, rows.partition, page.offset)
        if not has_more:
            await asyncio.sleep(self.config.poll_interval_ms / 1000)

    async def _read_whole(self, positions: dict[SqlRows, Mapping[str, Any] | None]) -> AsyncGenerator[Batch, None]:
        """Yield every row of each table whose last copy is old enough, then wait."""
        interval_ms = self.config.poll_interval_ms
        for rows, offset in tuple(positions.items()):
            if offset is not None and _now_ms() < offset["finished_ms"] + interval_ms:
                continue
            pages = rows.whole()
            try:
                page = await self._in_thread(_next_page, pages)
                while page is not None:
                    following = await self._in_thread(_next_page, pages)
                    if following is None:
                        break
                    yield Batch(page, rows.partition)
                    page = following
            finally:
                await self._in_thread(pages.close)  # type: ignore[attr-defined]  # it is a generator
            positions[rows] = {"finished_ms": _now_ms()}
            yield Batch(page or (), rows.partition, positions[rows])
        next_ms = min(offset["finished_ms"] for offset in positions.values() if offset) + interval_ms
        await asyncio.sleep(max(0, next_ms - _now_ms()) / 1000)

    def _begin_ms(self, rows: SqlRows) -> int:
        initial = self.config.timestamp_initial
        return int(rows.now().timestamp() * 1000) if initial in (None, NOW) else int(initial or 0)

    async def _in_thread(self, function: Callable[..., T], *args: Any) -> T:
        def call() -> T:
            with _failures():
                return function(*args)

        return await self._thread.call(call)


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    """Turn SQLAlchemy's errors into those of connectors, without statements and parameters."""
    try:
        yield
    except _PASSING as error:
        raise RetriableFailure(f"the database is away or busy: {_first_line(error)}") from None
    except sa.exc.DBAPIError as error:
        kind = RetriableFailure if error.connection_invalidated else ConnectFailed
        raise kind(f"the database refuses: {_first_line(error)}") from None
    except sa.exc.SQLAlchemyError as error:
        raise ConnectFailed(f"the database cannot be read: {_first_line(error)}") from None


def _first_line(error: sa.exc.SQLAlchemyError) -> str:
    lines = str(getattr(error, "orig", None) or error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _next_page(pages: Iterator[list[SourceRecord]]) -> list[SourceRecord] | None:
    return next(pages, None)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
