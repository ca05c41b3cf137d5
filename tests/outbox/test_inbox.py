"""The inbox: an effect happens once, however often and from wherever a message comes."""

from __future__ import annotations

import datetime
import sqlite3
import threading
from typing import Any

import aiokafka
import kafka
import psycopg
import pytest
import sqlalchemy as sa
from confluent_kafka import Consumer, Producer
from sqlalchemy.orm import Session
from tests.outbox.relays import messages_of
from tests.outbox.test_adding import url_of

from strandline import EmbeddedBroker, inbox
from strandline.connect.records import Header, SinkRecord
from strandline.effects import id_of, place_of
from strandline.outbox import sessions
from strandline.queue import QueueTask


def task(offset: int, *headers: tuple[str, bytes | None]) -> QueueTask:
    return QueueTask("orders", 3, offset, None, b"", headers, 0, 1)


def test_a_message_has_its_effect_once_for_each_consumer(postgres: str) -> None:
    with psycopg.connect(postgres) as connection:
        inbox.create(connection)
        inbox.create(connection)
        assert inbox.once(connection, task(1), consumer="billing") is True
        assert inbox.once(connection, task(1), consumer="billing") is False
        assert inbox.once(connection, task(1), consumer="mail") is True
        assert inbox.once(connection, task(2), consumer="billing") is True
        connection.rollback()
        inbox.create(connection)
        assert inbox.once(connection, task(1), consumer="billing") is True, "its transaction was rolled back"


@pytest.mark.parametrize("is_committed", [True, False])
def test_of_two_transactions_at_once_one_has_the_effect(postgres: str, is_committed: bool) -> None:
    with psycopg.connect(postgres) as connection:
        inbox.create(connection)
    found: list[bool] = []
    with (
        psycopg.connect(postgres) as first,
        psycopg.connect(postgres) as second,
        psycopg.connect(postgres, autocommit=True) as watching,
    ):
        assert inbox.once(first, task(1))
        thread = threading.Thread(target=lambda: found.append(inbox.once(second, task(1))))
        thread.start()
        while not watching.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchall():
            assert thread.is_alive(), "the second transaction waits for the first"
        if is_committed:
            first.commit()
        else:
            first.rollback()
        thread.join()
    assert found == [not is_committed]


def test_sqlalchemy_and_sqlite_have_an_inbox(postgres: str) -> None:
    for engine in (sa.create_engine(url_of(postgres)), sa.create_engine("sqlite://")):
        with Session(engine) as session, session.begin():
            inbox.create(session)
            assert inbox.once(session, task(1)) is True
            assert inbox.once(session, task(1)) is False
        engine.dispose()


async def test_async_sessions_are_awaited(postgres: str) -> None:
    async with await psycopg.AsyncConnection.connect(postgres) as connection:
        await inbox.create(connection)
        assert await inbox.once(connection, task(1)) is True
        assert await inbox.once(connection, task(1)) is False


@pytest.mark.parametrize("database", ["postgresql", "sqlite"])
def test_old_ids_are_pruned(postgres: str, database: str) -> None:
    connection: Any = psycopg.connect(postgres) if database == "postgresql" else sqlite3.connect(":memory:")
    inbox.create(connection)
    for offset in range(5):
        inbox.once(connection, task(offset), consumer="a" if offset < 4 else "b")
    ago = "processed_at - interval '9 days'" if database == "postgresql" else "processed_at - 9 * 86400"
    connection.execute(f"UPDATE inbox SET processed_at = {ago} WHERE message_id <> 'orders-3-0'")
    week = datetime.timedelta(days=7)
    assert inbox.prune(connection, week, consumer="a", rows_max=2) == 2
    assert inbox.prune(connection, week, consumer="a") == 1
    assert inbox.prune(connection, week) == 1
    assert connection.execute("SELECT message_id FROM inbox").fetchall() == [("orders-3-0",)]
    connection.close()


def test_the_id_of_a_message_is_its_header_or_its_place() -> None:
    assert id_of(task(7)) == "orders-3-7"
    assert id_of(task(7, ("id", b"a"), ("id", b"b"))) == "b"
    assert id_of(task(7, ("id", None))) == "orders-3-7"
    assert id_of(task(7, ("id", b""))) == "orders-3-7"
    for odd in (b"\xff", b"a\0", b"x" * 256):
        assert id_of(task(7, ("id", odd))).startswith("sha256:")
    sink = SinkRecord("renamed", offset=9, original_topic="t", original_partition=1, headers=[Header("id", "x")])
    assert (id_of(sink), place_of(sink)) == ("x", ("t", 1, 9))
    for wrong in (object(), "x", b"x", None):
        with pytest.raises(TypeError, match="is no message: it needs topic, partition and offset"):
            id_of(wrong)


async def test_messages_of_all_clients_have_the_same_id(broker: EmbeddedBroker) -> None:
    broker.create_topic("clients", 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("clients", b"x", headers={"id": b"one"})
    producer.produce("clients", b"y")
    producer.flush()
    expected = ["one", "clients-0-1"]
    assert [id_of(each) for each in messages_of(broker.bootstrap, "clients")] == expected
    python = kafka.KafkaConsumer("clients", bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
    assert [id_of(next(python)) for _ in expected] == expected
    python.close()
    async with aiokafka.AIOKafkaConsumer(
        "clients", bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        assert [id_of(await consumer.getone()) for _ in expected] == expected


@pytest.mark.slow
def test_an_error_of_a_consumer_is_no_message(broker: EmbeddedBroker) -> None:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "x", "enable.partition.eof": True}
    consumer = Consumer(settings | {"auto.offset.reset": "earliest"})
    broker.create_topic("empty", 1)
    consumer.subscribe(["empty"])
    message = None
    while message is None:
        message = consumer.poll(1)
    consumer.close()
    with pytest.raises(TypeError, match="error of the consumer"):
        id_of(message)


def statements_of(connection: psycopg.Connection, name: str) -> list[str]:
    """Return the statements that a session sent: each was one round trip."""
    connection.rollback()
    found = connection.execute(
        "SELECT query FROM pg_stat_activity WHERE application_name = %s AND pid <> pg_backend_pid()", [name]
    ).fetchall()
    connection.rollback()
    return [each for (each,) in found]


@pytest.mark.parametrize("library", ["psycopg", "sqlalchemy"])
def test_begin_and_the_inbox_are_one_round_trip(postgres: str, library: str) -> None:
    with psycopg.connect(postgres) as watching, psycopg.connect(postgres, application_name="handler") as connection:
        inbox.create(watching)
        watching.commit()
        session: Any = connection
        if library == "sqlalchemy":
            session = sa.create_engine("postgresql+psycopg://", creator=lambda: connection).connect()
        for offset, expected in ((1, True), (1, False), (2, True)):
            assert inbox.once(session, task(offset, ("id", b"it's %s \\ :x")), consumer=f"c{offset}") is expected
            (sent,) = statements_of(watching, "handler")
            assert sent.startswith("BEGIN; ")
            assert "EXECUTE" in sent
            session.commit()
        # psycopg deallocates what is prepared with a rollback.
        assert inbox.once(session, task(3)) is True
        session.rollback()
        connection.execute("DEALLOCATE ALL")
        connection.commit()
        assert inbox.once(session, task(3)) is True
        session.commit()
        assert inbox.once(session, task(3)) is False
        session.rollback()
        if library == "sqlalchemy":
            session.close()


def test_the_inbox_works_in_sessions_that_others_prepare_statements_in(postgres: str) -> None:
    """As behind a pooler that shares sessions."""
    with psycopg.connect(postgres) as connection:
        inbox.create(connection)
        connection.execute("PREPARE strandline_0 AS SELECT 1")
        connection.commit()
        for expected in (True, False):
            assert inbox.once(connection, task(1)) is expected
            connection.commit()
    with psycopg.connect(postgres, prepare_threshold=None) as connection:
        assert inbox.once(connection, task(2)) is True


def test_a_missing_inbox_fails_as_the_library_does(postgres: str) -> None:
    with psycopg.connect(postgres) as connection, pytest.raises(psycopg.errors.UndefinedTable):
        inbox.once(connection, task(1))
    engine = sa.create_engine(url_of(postgres))
    with Session(engine) as session, pytest.raises(sa.exc.ProgrammingError, match="inbox"):
        inbox.once(session, task(1))
    engine.dispose()


async def test_a_database_that_is_far_gets_begin_and_insert_in_one_trip(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_shares_begin", lambda connection: connection.info.transaction_status == 0)
    async with await psycopg.AsyncConnection.connect(postgres) as connection:
        await inbox.create(connection)
        await connection.commit()
        for expected in (True, False):
            assert await inbox.once(connection, task(1)) is expected
            await connection.commit()
        assert await inbox.once(connection, task(2)) is True
        await connection.rollback()
        assert await inbox.once(connection, task(2)) is True
