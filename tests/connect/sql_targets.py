"""The three databases that SQL sinks write to, behind one face for tests."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from strandline.connect.records import SinkRecord, TopicPosition
from strandline.connect.schema import Schema
from strandline.connect.sink import RecordList
from strandline.connect.sinks.sql.duckdb import DuckdbSink
from strandline.connect.sinks.sql.postgres import PostgresSink
from strandline.connect.sinks.sql.sink import SqlSink
from strandline.connect.sinks.sql.sqlite import SqliteSink

SINKS: dict[str, type[SqlSink]] = {"postgres": PostgresSink, "sqlite": SqliteSink, "duckdb": DuckdbSink}
ORDERS = TopicPosition("orders", 0)


@dataclass
class Target:
    """A database, asked by connections of the test's own."""

    kind: str
    url: str
    _sinks: list[SqlSink] = field(default_factory=list)

    def sink(self, *, resume: Sequence[TopicPosition] = (ORDERS,), **settings: str) -> SqlSink:
        """Return an open sink that has claimed its partitions. `pk_mode` is the setting pk.mode."""
        sink = self.unopened(**settings)
        sink.open()
        sink.resume(resume)
        return sink

    def unopened(self, **settings: str) -> SqlSink:
        properties = {"name": "copy", "connection.url": self.url}
        properties |= {name.replace("_", "."): value for name, value in settings.items()}
        kind = SINKS[self.kind]
        self._sinks.append(kind(kind.Config(properties)))
        return self._sinks[-1]

    def fresh(self, sink: SqlSink) -> SqlSink:
        """Return an open sink that writes beside the target of another."""
        self._sinks.append(sink.fresh_target())
        self._sinks[-1].open()
        return self._sinks[-1]

    def close(self) -> None:
        """Close every sink."""
        for each in self._sinks:
            each.close()

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        connection: Any
        if self.kind == "postgres":
            connection = psycopg.connect(self.url, autocommit=True)
        elif self.kind == "sqlite":
            connection = sqlite3.connect(self.url, isolation_level=None)
        else:
            connection = duckdb.connect(self.url)
        try:
            cursor = connection.execute(statement)
            return [] if cursor.description is None else list(cursor.fetchall())
        finally:
            connection.close()

    def offset(self, topic: str = "orders", connector: str = "copy") -> int | None:
        found = self.query(
            f"""select "offset" from strandline_sink_offsets where connector = '{connector}' and topic = '{topic}'"""
        )
        return found[0][0] if found else None

    def has_table(self, name: str) -> bool:
        try:
            self.query(f'select 1 from "{name}"')
        except (psycopg.errors.UndefinedTable, sqlite3.OperationalError, duckdb.CatalogException):
            return False
        return True


def record(
    offset: int,
    key: Any,
    value: Any,
    *,
    topic: str = "orders",
    key_schema: Schema | None = None,
    value_schema: Schema | None = None,
) -> SinkRecord:
    return SinkRecord(
        topic,
        value,
        key,
        0,
        key_schema=key_schema,
        value_schema=value_schema,
        offset=offset,
        original_topic=topic,
        original_partition=0,
    )


def batch(*pairs: tuple[Any, Any], start: int = 0, topic: str = "orders") -> RecordList:
    """Return records with these keys and values, from an offset on."""
    return RecordList(record(start + index, key, value, topic=topic) for index, (key, value) in enumerate(pairs))


@pytest.fixture(params=["postgres", "sqlite", "duckdb"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    """Give each database in turn, empty."""
    yield from _made(request, tmp_path)


@pytest.fixture(params=["postgres", "sqlite", pytest.param("duckdb", marks=pytest.mark.slow)])
def stepped(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    """Give each database in turn, for tests with many steps: DuckDB takes its time to commit."""
    yield from _made(request, tmp_path)


def _made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    kind = request.param
    url = request.getfixturevalue("postgres") if kind == "postgres" else str(tmp_path / "target.db")
    made = Target(kind, url)
    yield made
    made.close()


@pytest.fixture
def server(postgres: str) -> Iterator[Target]:
    """Give an empty database of PostgreSQL."""
    made = Target("postgres", postgres)
    yield made
    made.close()
