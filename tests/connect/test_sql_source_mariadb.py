"""SqlSource on a real MariaDB: values with their types, each row once, and a server that is killed."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from functools import partial

import pytest
from tests.cdc.mariadb_server import MariadbDatabase, MariadbServer, needs_mariadb
from tests.connect.driving import Store, drive, opened, read_with_kills

from strandline.connect.failures import RetriableFailure
from strandline.connect.sources.sql_tables import SqlSource

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[MariadbServer]:
    needs_mariadb()
    made = MariadbServer()
    try:
        yield made.start()
    finally:
        made.remove()


@pytest.fixture
def database(server: MariadbServer) -> MariadbDatabase:
    return server.fresh_database()


def source(database: MariadbDatabase, **settings: str) -> SqlSource:
    """Return a source; `_` in a setting's name stands for a dot."""
    given = {
        "connection.url": f"mysql+pymysql://root@127.0.0.1:{database.server.port}/{database.name}?charset=utf8mb4",
        "topic.prefix": "db.",
        "mode": "incrementing",
        "poll.interval.ms": "5",
    }
    given |= {name.replace("_", "."): value for name, value in settings.items()}
    assert SqlSource.Config.errors_of(given) == {}
    return SqlSource(SqlSource.Config(given))


async def test_values_have_their_types(database: MariadbDatabase) -> None:
    database.run(
        "create table `Orders of Zoë` (id bigint unsigned auto_increment primary key, small smallint,"
        " whole int not null, flag boolean, price decimal(15,2), ratio double, name varchar(50), body json, raw blob,"
        " day date, at time(6), local datetime(6), kind enum('a', 'ü'), large bigint unsigned)",
        "insert into `Orders of Zoë` values (1, -1, 2, true, 1234567890123.45, 0.5, 'Zoë ☃', '{\"a\": \"ü\"}', x'00ff',"
        " '2024-02-29', '12:30:01.5', '2024-01-01 09:00:00.123456', 'ü', 18446744073709551615)",
        "insert into `Orders of Zoë` (id, whole) values (2, 0)",
    )
    store = Store()
    await drive(source(database), store, until=lambda store: len(store.records) >= 2)
    full, empty = store.values
    assert {each.topic for each in store.records} == {"db.Orders_of_Zo_"}
    assert full == {
        "id": Decimal(1),
        "small": -1,
        "whole": 2,
        "flag": 1,
        "price": Decimal("1234567890123.45"),
        "ratio": 0.5,
        "name": "Zoë ☃",
        "body": '{"a": "ü"}',
        "raw": b"\x00\xff",
        "day": datetime.date(2024, 2, 29),
        "at": datetime.time(12, 30, 1, 500_000),
        "local": datetime.datetime(2024, 1, 1, 9, 0, 0, 123_456, tzinfo=datetime.UTC),
        "kind": "ü",
        "large": Decimal(18446744073709551615),
    }
    assert {name for name, value in empty.items() if value is not None} == {"id", "whole"}


@pytest.mark.parametrize("mode", ["incrementing", "timestamp", "timestamp+incrementing"])
async def test_each_row_comes_once_though_the_task_is_killed_at_every_batch(
    database: MariadbDatabase, mode: str
) -> None:
    rows = 20
    database.run("create table sale (id int auto_increment primary key, changed datetime(6))")
    for number in range(rows):
        # Three rows at a time have the same timestamp.
        database.run(f"insert into sale (changed) values ('2024-03-31 02:59:59.99999{number // 3}')")
    settings = {"mode": mode, "table.include.list": "sale", "batch.max.rows": "4"}
    if "timestamp" in mode:
        settings["timestamp.column.name"] = "changed"
    store = Store()
    made = partial(source, database, **settings)
    assert await read_with_kills(made, store, until=lambda store: len(store.records) >= rows) > 1
    assert [value["id"] for value in store.values] == list(range(1, rows + 1))
    database.run("insert into sale (changed) values ('2024-04-01')")
    await drive(made(), store, until=lambda store: len(store.records) > rows)
    assert [value["id"] for value in store.values] == list(range(1, rows + 2))


async def test_a_server_that_is_killed_is_waited_for(server: MariadbServer, database: MariadbDatabase) -> None:
    database.run("create table sale (id int auto_increment primary key)", "insert into sale values (1), (2)")
    made = partial(source, database, table_include_list="sale")
    store = Store()

    def kill_behind(store: Store) -> bool:
        if len(store.records) == 2:
            server.kill()
        return False

    with pytest.raises(RetriableFailure, match="the database is away or busy"):
        await drive(made(), store, until=kill_behind)
    with pytest.raises(RetriableFailure):
        async with opened(made()) as opening:
            await drive(opening, store, until=lambda _: False)
    server.start()
    database.run("insert into sale values (3)")
    await drive(made(), store, until=lambda store: len(store.records) >= 3)
    assert [value["id"] for value in store.values] == [1, 2, 3]
