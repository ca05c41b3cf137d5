"""Runs a PostgreSQL source as a worker does, without a cluster: what it committed, with kills between any two steps."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.connect.postgres_server import the_server

from strandline.cdc.postgres.source import PostgresCdcSource
from strandline.connect.records import Batch, SourceRecord

WITHIN_S: Final = 30.0


def properties_of(dsn: str, **settings: str) -> dict[str, str]:
    """Return the config of a source; `_` in a setting's name stands for a dot."""
    given = conninfo_to_dict(dsn)
    return {
        "topic.prefix": "db",
        "database.hostname": str(given["host"]),
        "database.user": str(given["user"]),
        "database.dbname": str(given["dbname"]),
        # Slots belong to the whole server, and tests share one.
        "slot.name": f"slot_{given['dbname']}",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }


class Captured:
    """What a cluster would hold of one source: committed records and the position."""

    def __init__(self, dsn: str, **settings: str) -> None:
        self.dsn = dsn
        self.properties = properties_of(dsn, **settings)
        self.records: list[SourceRecord] = []
        self.transactions: list[list[SourceRecord]] = []
        """The records of each commit."""
        self.offset: dict[str, Any] | None = None
        self._open: list[SourceRecord] = []
        self.batches = 0

    def source(self) -> PostgresCdcSource:
        assert PostgresCdcSource.Config.errors_of(self.properties) == {}
        return PostgresCdcSource(PostgresCdcSource.Config(self.properties))

    def get(self, partition: Mapping[str, Any]) -> Mapping[str, Any] | None:
        assert partition == {"server": "db"}
        return self.offset

    def all(self) -> list[Any]:
        return []

    def commit(self, batch: Batch) -> bool:
        """Take a batch; return whether it is committed by now."""
        self.batches += 1
        self._open += batch.records
        if batch.is_open:
            assert not list(batch.positions())
            return False
        if self._open:
            self.transactions.append(self._open)
        self.records += self._open
        self._open = []
        for _, offset in batch.positions():
            self.offset = json.loads(json.dumps(offset))
        return True

    def run(self, until: Callable[[Captured], bool], *, batches_max: int | None = None, confirms: bool = True) -> None:
        """Run one instance until enough is committed; it is killed behind `batches_max` batches."""
        if until(self):
            return
        source = self.source()
        self._open = []
        batches: Any = iter(())
        given = 0
        timer = _Deadline(source)
        try:
            source.open()
            batches = source.read(self)
            for batch in batches:
                timer.check()
                given += 1
                if self.commit(batch) and confirms:
                    asyncio.run(source.committed([*batch.positions()]))
                if until(self) or given == batches_max:
                    return
        finally:
            timer.cancel()
            if hasattr(batches, "close"):
                batches.close()
            source.close()

    def of(self, table: str) -> list[SourceRecord]:
        """Return the records of a table."""
        return [each for each in self.records if each.topic == f"db.public.{table}"]

    def rows(self, table: str, field: str) -> list[tuple[str, Any]]:
        """Return the operation and a field of each event of a table, without tombstones."""
        values = [each.value for each in self.of(table) if each.value is not None]
        return [(each["op"], (each["after"] or each["before"])[field]) for each in values]


class _Deadline:
    """Ends a source that gives too little."""

    def __init__(self, source: PostgresCdcSource) -> None:
        self._timer = threading.Timer(WITHIN_S, source.stopping.set)
        self._timer.daemon = True
        self._timer.start()
        self._source = source

    def cancel(self) -> None:
        self._timer.cancel()

    def check(self) -> None:
        assert not self._source.stopping.is_set()


def holds(count: int) -> Callable[[Captured], bool]:
    """Return whether so many records are committed."""
    return lambda captured: len(captured.records) >= count


def run_sql(dsn: str, *statements: str) -> None:
    """Run statements, each in a transaction of its own."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for each in statements:
            connection.execute(each)


@pytest.fixture
def postgres() -> Iterator[str]:
    """Give the DSN of a fresh database; its slots are dropped, because a server has few."""
    dsn = the_server().fresh_database()
    yield dsn
    with psycopg.connect(dsn, autocommit=True) as connection:
        mine = "from pg_replication_slots where database = current_database()"
        connection.execute(f"select pg_terminate_backend(active_pid, 5000) {mine} and active")
        connection.execute(f"select pg_drop_replication_slot(slot_name) {mine}")
