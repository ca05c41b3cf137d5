"""SqlSource on SQLite and PostgreSQL: each row once, whenever the task is killed, and values with their types."""

from __future__ import annotations

import datetime
import sqlite3
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.connect.driving import Store, batches_of, drive, opened, read_with_kills

from strandline.connect.failures import ConnectFailed, InvalidConnectorConfig, RetriableFailure
from strandline.connect.schema import DATE, TIMESTAMP, ConnectType
from strandline.connect.sources.sql_tables import SqlSource

LONG_AGO = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)


def source(url: str, **settings: str) -> SqlSource:
    """Return a source; `_` in a setting's name stands for a dot."""
    given = {"connection.url": url, "topic.prefix": "db.", "mode": "incrementing", "poll.interval.ms": "5"}
    given |= {name.replace("_", "."): value for name, value in settings.items()}
    assert SqlSource.Config.errors_of(given) == {}
    return SqlSource(SqlSource.Config(given))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data.db"


@pytest.fixture
def sqlite(file: Path) -> Callable[..., None]:
    """Run statements on a database in a file."""

    def run(statement: str, rows: Any = None) -> None:
        connection = sqlite3.connect(file)
        with connection:
            if rows is None:
                connection.executescript(statement)
            else:
                connection.executemany(statement, rows)
        connection.close()

    return run


@pytest.fixture
def url(file: Path) -> str:
    return f"sqlite:///{file}"


def holds(count: int) -> Callable[[Store], bool]:
    return lambda store: len(store.records) >= count


async def test_incrementing_gives_each_row_once_with_a_kill_at_each_batch(sqlite: Any, url: str) -> None:
    sqlite("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)")
    sqlite("INSERT INTO t VALUES (?, ?)", [(number, f"n{number}") for number in range(-3, 20)])
    store = Store()
    batches = await read_with_kills(lambda: source(url, batch_max_rows="4"), store, until=holds(23))
    assert [value["id"] for value in store.values] == list(range(-3, 20))
    assert batches == 6
    assert store.get({"table": "t"}) == {"incrementing": 19}
    first = store.records[0]
    assert (first.topic, first.key) == ("db.t", {"id": -3})
    sqlite("INSERT INTO t VALUES (99, 'later')")
    await drive(source(url), store, until=holds(24))
    assert store.values[-1] == {"id": 99, "name": "later"}


@pytest.mark.parametrize("rows_max", [1, 2, 3, 7, 100])
async def test_timestamp_mode_never_splits_rows_of_the_same_time(sqlite: Any, url: str, rows_max: int) -> None:
    sqlite("CREATE TABLE t (name TEXT, at DATETIME)")
    times = [0, 0, 1, 2, 2, 2, 2, 2, 3, 4, 4]
    rows = [(f"n{place}", f"2024-01-01 00:00:0{second}") for place, second in enumerate(times)]
    sqlite("INSERT INTO t VALUES (?, ?)", rows)
    sqlite("INSERT INTO t VALUES ('never', NULL)")
    store = Store()
    settings = {"mode": "timestamp", "timestamp.column.name": "at", "batch.max.rows": str(rows_max)}
    await read_with_kills(lambda: source(url, **settings), store, until=holds(len(rows)))
    assert sorted(value["name"] for value in store.values) == sorted(name for name, _ in rows)
    seconds = [value["at"].second for value in store.values]
    assert seconds == sorted(seconds)
    assert store.values[0]["at"] == LONG_AGO


@pytest.mark.parametrize("rows_max", [1, 3, 5])
async def test_timestamp_and_id_cut_a_group_of_equal_times(sqlite: Any, url: str, rows_max: int) -> None:
    sqlite("CREATE TABLE t (id INTEGER PRIMARY KEY, at TEXT)")
    # ISO texts with a T, as many programs store them in SQLite.
    rows = [(100 - place, f"2024-01-01T00:00:0{place // 4}Z") for place in range(12)]
    sqlite("INSERT INTO t VALUES (?, ?)", rows)
    store = Store()
    settings = {
        "mode": "timestamp+incrementing",
        "timestamp.column.name": "at",
        "incrementing.column.name": "id",
        "batch.max.rows": str(rows_max),
    }
    batches = await read_with_kills(lambda: source(url, **settings), store, until=holds(12))
    assert [(value["at"], value["id"]) for value in store.values] == sorted((at, id) for id, at in rows)
    assert batches == -(-12 // rows_max)
    sqlite("UPDATE t SET at = '2024-01-02T00:00:00Z' WHERE id = 100")
    await drive(source(url, **settings), store, until=holds(13))
    assert store.values[-1] == {"id": 100, "at": "2024-01-02T00:00:00Z"}


async def test_rows_younger_than_the_delay_wait(sqlite: Any, url: str) -> None:
    sqlite("CREATE TABLE t (name TEXT, at DATETIME)")
    sqlite("INSERT INTO t VALUES ('old', '2024-01-01 00:00:00'), ('new', CURRENT_TIMESTAMP)")
    store = Store()
    settings = {"mode": "timestamp", "timestamp.column.name": "at", "timestamp.delay.interval.ms": "3600000"}
    async with opened(source(url, **settings)) as opened_source:
        batches = batches_of(opened_source, store)
        store.commit(await anext(batches))
        await batches.aclose()
    assert [value["name"] for value in store.values] == ["old"]
    await drive(source(url, **settings | {"timestamp.delay.interval.ms": "1"}), store, until=holds(2))
    assert [value["name"] for value in store.values] == ["old", "new"]


async def test_a_first_start_at_a_time_is_stored_before_the_first_row(sqlite: Any, url: str) -> None:
    sqlite("CREATE TABLE t (name TEXT, at DATETIME)")
    sqlite("INSERT INTO t VALUES ('old', '2024-01-01 00:00:00'), ('new', '2024-01-01T00:00:02')")
    store = Store()
    begin = str(int(LONG_AGO.timestamp() * 1000) + 1000)
    settings = {"mode": "timestamp", "timestamp.column.name": "at", "timestamp.initial": begin}
    await read_with_kills(lambda: source(url, **settings), store, until=holds(1))
    assert [value["name"] for value in store.values] == ["new"]
    store = Store()
    settings["timestamp.initial"] = "-1"
    await drive(source(url, **settings), store, until=lambda store: bool(store.all()))
    stored = store.get({"table": "t"})
    await drive(source(url, **settings), store, until=lambda store: True)
    assert store.get({"table": "t"}) == stored
    assert stored is not None
    assert stored["initial"] > LONG_AGO.timestamp() * 1000


async def test_bulk_copies_everything_and_remembers_only_whole_copies(sqlite: Any, url: str) -> None:
    sqlite("CREATE TABLE t (id INTEGER)")
    sqlite("INSERT INTO t VALUES (?)", [(number,) for number in range(10)])
    store = Store()
    settings = {"mode": "bulk", "batch.max.rows": "4", "poll.interval.ms": "3600000"}
    async with opened(source(url, **settings)) as opened_source:
        batches = batches_of(opened_source, store)
        store.commit(await anext(batches))
        await batches.aclose()
    assert store.all() == []
    await drive(source(url, **settings), store, until=lambda store: bool(store.all()))
    assert [value["id"] for value in store.values] == [*range(4), *range(10)]
    assert store.records[0].key is None


async def test_tables_are_shared_and_odd_names_are_quoted(sqlite: Any, url: str) -> None:
    sqlite('CREATE TABLE "Odd ""Näme""; --" ("select" INTEGER PRIMARY KEY, "a:b" TEXT, "%s" TEXT)')
    sqlite("""INSERT INTO "Odd ""Näme""; --" VALUES (1, 'x', 'y')""")
    sqlite("CREATE TABLE b (id INTEGER PRIMARY KEY); CREATE TABLE c (id INTEGER PRIMARY KEY)")
    sqlite("INSERT INTO b VALUES (1); INSERT INTO c VALUES (1)")
    config = source(url).config
    shared = SqlSource.tasks(config, 2)
    assert len(shared) == 2
    assert len(SqlSource.tasks(config, 10)) == 3
    store = Store()
    for each in shared:
        count = len(store.records) + each["task.tables"].count(",") + 1
        await drive(source(url, **each), store, until=holds(count))
    assert sorted(each.topic for each in store.records) == ["db.Odd__N_me___--", "db.b", "db.c"]
    assert {"select": 1, "a:b": "x", "%s": "y"} in store.values
    sqlite("CREATE TABLE [a b] (id INTEGER); CREATE TABLE [a:b] (id INTEGER)")
    with pytest.raises(InvalidConnectorConfig, match=r"both have the topic db\.a_b"):
        SqlSource.tasks(config, 2)


async def test_a_query_is_read_as_it_is_written(sqlite: Any, url: str) -> None:
    sqlite("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, price REAL)")
    sqlite("INSERT INTO t VALUES (1, 'a :b:c %d', NULL), (2, 'x', 1.5), (3, 'a :b:c %d', 2.5)")
    query = r"SELECT id, name AS \"the name\", price FROM t WHERE name = 'a :b:c %d' ; -- why: :not".replace("\\", "")
    settings = {"query": query.replace(";", ""), "incrementing.column.name": "id", "batch.max.rows": "1"}
    store = Store()
    await read_with_kills(lambda: source(url, **settings), store, until=holds(2))
    assert store.values == [
        {"id": 1, "the name": "a :b:c %d", "price": None},
        {"id": 3, "the name": "a :b:c %d", "price": 2.5},
    ]
    assert {each.topic for each in store.records} == {"db."}
    schema = store.records[-1].value_schema
    assert schema is not None
    assert [field.schema.kind for field in schema.fields] == [
        ConnectType.INT64,
        ConnectType.STRING,
        ConnectType.FLOAT64,
    ]


async def test_a_column_that_comes_or_goes_while_the_task_runs(sqlite: Any, url: str) -> None:
    sqlite("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT)")
    sqlite("INSERT INTO t VALUES (1, 'x')")
    store = Store()
    async with opened(source(url)) as opened_source:
        batches = batches_of(opened_source, store)
        store.commit(await anext(batches))
        sqlite("ALTER TABLE t DROP COLUMN a; ALTER TABLE t ADD COLUMN b INTEGER; INSERT INTO t VALUES (2, 7)")
        store.commit(await anext(batches))
        assert store.values == [{"id": 1, "a": "x"}, {"id": 2, "b": 7}]
        sqlite("DROP TABLE t")
        with pytest.raises(ConnectFailed, match="no table t") as failed:
            await anext(batches)
        assert not isinstance(failed.value, RetriableFailure)


async def test_a_database_that_is_away_is_tried_again(tmp_path: Path) -> None:
    away = f"postgresql://reader:hidden-word@127.0.0.1:1/x?host={tmp_path}"
    async with opened(source(away, table_whitelist="t")) as opened_source:
        with pytest.raises(RetriableFailure) as failed:
            await anext(batches_of(opened_source, Store()))
    assert "hidden-word" not in str(failed.value)


def test_settings_that_do_not_fit_are_named() -> None:
    def wrong(**settings: str) -> dict[str, list[str]]:
        given = {"connection.url": "sqlite://", "topic.prefix": "t", "mode": "incrementing"}
        return SqlSource.Config.errors_of(given | {name.replace("_", "."): each for name, each in settings.items()})

    assert wrong() == {}
    assert "timestamp.column.name" in wrong(mode="timestamp")
    assert "incrementing.column.name" in wrong(query="SELECT 1")
    assert "query" in wrong(query="SELECT 1", table_whitelist="t", incrementing_column_name="id")
    assert "String must be one of: bulk" in wrong(mode="other")["mode"][0]
    assert "connection.url" in wrong(connection_url="jdbc:postgresql:secret")
    assert "db.timezone" in wrong(db_timezone="Mars/Olympus")


async def test_values_that_do_not_fit_their_column_name_it(sqlite: Any, url: str) -> None:
    sqlite("CREATE TABLE t (id INTEGER PRIMARY KEY, price DECIMAL(6, 2))")
    sqlite("INSERT INTO t VALUES (1, 12.5), (2, 'much')")
    store = Store()
    await drive(source(url, batch_max_rows="1"), store, until=holds(1))
    assert store.values == [{"id": 1, "price": Decimal("12.50")}]
    with pytest.raises(ConnectFailed, match="a row of t cannot be read: column price"):
        await drive(source(url), store, until=holds(2))


POSTGRES_TABLE = """
CREATE TABLE "Orders of Zoë" (
    id bigserial PRIMARY KEY, small smallint, whole int NOT NULL, flag boolean, price numeric(20, 2), digits numeric,
    count numeric(5, 0), ratio double precision, name varchar(30), body jsonb, raw bytea, day date, at time,
    local timestamp, instant timestamptz, ident uuid, tags text[], span interval
)
"""


def postgres_url(dsn: str) -> str:
    parts = dict(each.split("=", 1) for each in dsn.split())
    return f"postgresql://{parts['user']}@/{parts['dbname']}?host={parts['host']}"


async def test_postgres_types_become_connects(postgres: str) -> None:
    with psycopg.connect(postgres) as connection:
        connection.execute(POSTGRES_TABLE)
        connection.execute(
            'INSERT INTO "Orders of Zoë" VALUES (DEFAULT, 1, 2, true, 1234567890123.45, 0.1000, 42, 0.5, %s, %s, %s, '
            "'2024-02-29', '12:30:01.5', '2024-01-01 10:00', '2024-01-01 10:00+02', %s, '{a,NULL}', '1 day')",
            ("Zoë ☃", '{"a": "ü"}', b"\x00\xff", "00000000-0000-0000-0000-000000000007"),
        )
        connection.execute('INSERT INTO "Orders of Zoë" (whole) VALUES (3)')
    store = Store()
    settings = {"numeric.mapping": "precision_only", "db.timezone": "Europe/Berlin"}
    await drive(source(postgres_url(postgres), **settings), store, until=holds(2))
    assert [each.topic for each in store.records] == ["db.Orders_of_Zo_"] * 2
    full, empty = store.values
    utc = datetime.UTC
    assert full["instant"].astimezone(utc) == datetime.datetime(2024, 1, 1, 8, tzinfo=utc)
    assert full["local"].astimezone(utc) == datetime.datetime(2024, 1, 1, 9, tzinfo=utc)
    del full["instant"], full["local"]
    assert full == {
        "id": 1,
        "small": 1,
        "whole": 2,
        "flag": True,
        "price": Decimal("1234567890123.45"),
        "digits": "0.1000",
        "count": 42,
        "ratio": 0.5,
        "name": "Zoë ☃",
        "body": '{"a": "ü"}',
        "raw": b"\x00\xff",
        "day": datetime.date(2024, 2, 29),
        "at": datetime.time(12, 30, 1, 500000),
        "ident": "00000000-0000-0000-0000-000000000007",
        "tags": ["a", None],
        "span": "1 day, 0:00:00",
    }
    assert {name for name, value in empty.items() if value is not None} == {"id", "whole"}
    schema = store.records[0].value_schema
    assert schema is not None
    kinds = {field.name: (field.schema.kind, field.schema.name, field.schema.optional) for field in schema.fields}
    assert kinds["whole"] == (ConnectType.INT32, None, False)
    assert kinds["small"] == (ConnectType.INT16, None, True)
    assert kinds["count"] == (ConnectType.INT32, None, True)
    assert kinds["day"] == (ConnectType.INT32, DATE, True)
    assert kinds["local"] == (ConnectType.INT64, TIMESTAMP, True)


async def test_postgres_microseconds_and_zones_keep_positions_exact(postgres: str) -> None:
    with psycopg.connect(postgres) as connection:
        connection.execute(
            "CREATE SCHEMA shop; CREATE TABLE shop.sale (id int PRIMARY KEY, a timestamptz, b timestamp)"
        )
        connection.execute(
            "INSERT INTO shop.sale SELECT n, timestamptz '2024-03-31 02:59:59.999999+02' + n / 3 * interval '1 us', "
            "timestamp '2024-03-31 02:59:59.999999' + n / 3 * interval '1 us' FROM generate_series(1, 7) n"
        )
    for column, mode in (("a", "timestamp"), ("b", "timestamp"), ("a", "timestamp+incrementing")):
        store = Store()
        settings = {"mode": mode, "timestamp.column.name": column, "table.include.list": "shop.sale"}
        settings |= {"batch.max.rows": "3", "db.timezone": "Europe/Berlin"}
        await read_with_kills(partial(source, postgres_url(postgres), **settings), store, until=holds(7))
        assert sorted(value["id"] for value in store.values) == list(range(1, 8))
        assert {each.topic for each in store.records} == {"db.shop.sale"}


async def test_postgres_tells_the_types_of_a_query(postgres: str) -> None:
    query = (
        "SELECT n::int AS id, NULL::numeric(9,2) AS price, now() - interval '1 h' AS at, NULL::text AS \"a b\" "
        "FROM generate_series(1, 3) n;  -- 100% :fine"
    )
    store = Store()
    settings = {"query": query, "mode": "timestamp+incrementing", "timestamp.column.name": "at"}
    settings |= {"incrementing.column.name": "id", "topic.prefix": "all", "key.columns": "id"}
    with pytest.raises(ConnectFailed, match="syntax error"):
        await drive(source(postgres_url(postgres), **settings), store, until=holds(3))
    settings["query"] = query.replace(";", "")
    await drive(source(postgres_url(postgres), **settings), store, until=holds(3))
    schema = store.records[0].value_schema
    assert schema is not None
    assert [each.schema.kind for each in schema.fields] == [
        ConnectType.INT32,
        ConnectType.BYTES,
        ConnectType.INT64,
        ConnectType.STRING,
    ]
    assert [each.key for each in store.records] == [{"id": 1}, {"id": 2}, {"id": 3}]
