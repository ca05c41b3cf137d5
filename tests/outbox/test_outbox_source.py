"""The relay as a connector: killed around each commit, beside another one, and in a real worker."""

from __future__ import annotations

import psycopg
import pytest
from tests.connect.driving import Store, drive, opened, read_with_kills
from tests.connect.running import RunningWorker
from tests.outbox.relays import by_key, messages_of, wait_until

from strandline import EmbeddedBroker, outbox
from strandline.connect.failures import InvalidConnectorConfig, RetriableFailure
from strandline.outbox.source import OutboxSource, OutboxSourceConfig

CONVERTERS = {"key.converter": "StringConverter", "value.converter": "ByteArrayConverter"}


def add(database: str, topic: str, first: int, count: int) -> None:
    with psycopg.connect(database) as connection:
        outbox.create(connection)
        for number in range(first, first + count):
            outbox.add(connection, topic, f"k{number % 3}", f"k{number % 3}:{number}")


def source(database: str, **settings: str) -> OutboxSource:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return OutboxSource(OutboxSourceConfig({"connection.url": database, **given}))


def next_source(database: str, **settings: str) -> OutboxSource:
    """Return a source when the session of the one before has ended, which PostgreSQL does a little later."""
    locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
    with psycopg.connect(database, autocommit=True) as connection:
        wait_until(lambda: connection.execute(locks).fetchone() == (0,), "the lock of the relay is free")
    return source(database, **settings)


async def test_a_source_killed_around_each_commit_gives_each_row_once(postgres: str) -> None:
    add(postgres, "t", 0, 25)
    store = Store()
    await read_with_kills(
        lambda: next_source(postgres, batch_max_rows="10"), store, until=lambda store: len(store.records) >= 25
    )
    add(postgres, "t", 25, 5)
    await drive(next_source(postgres), store, until=lambda store: len(store.records) >= 30)
    assert store.values == [f"k{number % 3}:{number}".encode() for number in range(30)]
    with psycopg.connect(postgres) as connection:
        assert connection.execute("SELECT count(*) FROM outbox").fetchone() == (0,)


async def test_a_second_relay_waits_for_the_first(postgres: str) -> None:
    add(postgres, "t", 0, 1)
    async with opened(source(postgres)):
        second = source(postgres)
        with pytest.raises(RetriableFailure, match="another relay"):
            await second.open()
        await second.close()
    async with opened(source(postgres)):
        pass


def test_settings_are_checked() -> None:
    assert not OutboxSourceConfig.errors_of({"connection.url": "x", **CONVERTERS})
    errors = OutboxSourceConfig.errors_of({"connection.url": "x", "value.converter": "JsonConverter", "table": "."})
    assert set(errors) == {"key.converter", "value.converter", "table"}
    OutboxSource.check_offsets(None, [({"outbox": "outbox"}, None)])
    with pytest.raises(InvalidConnectorConfig, match="no position"):
        OutboxSource.check_offsets(None, [({"outbox": "outbox"}, {"sent": ""})])


def test_a_worker_runs_the_relay(postgres: str, broker: EmbeddedBroker) -> None:
    broker.create_topic("worked", 2)
    add(postgres, "worked", 0, 40)
    with RunningWorker(broker.bootstrap, group_id="outbox", plugin_modules="strandline.outbox.source") as worker:
        worker.lead()
        settings = {"connection.url": postgres, **CONVERTERS}
        worker.create("relay", "strandline.outbox.source:OutboxSource", settings)
        with psycopg.connect(postgres, autocommit=True) as connection:
            wait_until(lambda: connection.execute("SELECT count(*) FROM outbox").fetchone() == (0,), "rows are sent")
            add(postgres, "worked", 40, 20)
            wait_until(lambda: connection.execute("SELECT count(*) FROM outbox").fetchone() == (0,), "rows are sent")
    messages = messages_of(broker.bootstrap, "worked", 2)
    found = by_key([each.value().decode() for each in messages])
    assert sorted(number for each in found.values() for number in each) == list(range(60))
    assert all(numbers == sorted(numbers) for numbers in found.values())
    assert all(each.key().decode() == each.value().decode().partition(":")[0] for each in messages)
    assert [name for name, _ in messages[0].headers()] == ["id"]
