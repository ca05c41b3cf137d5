"""Adding events: in the caller's transaction, by every library, checked before they get in."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import json
import sqlite3
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from strandline import outbox

ROOT = Path(__file__).parents[2]


def url_of(dsn: str) -> sa.URL:
    parts = dict(each.split("=") for each in dsn.split())
    return sa.URL.create(
        "postgresql+psycopg", username=parts["user"], database=parts["dbname"], query={"host": parts["host"]}
    )


def rows_of(dsn: str) -> list[Any]:
    with psycopg.connect(dsn) as connection:
        return connection.execute("SELECT aggregatetype, aggregateid, payload FROM outbox ORDER BY seq").fetchall()


def test_sqlalchemy_sessions_and_connections_add_in_their_transaction(postgres: str) -> None:
    engine = sa.create_engine(url_of(postgres))
    with engine.begin() as connection:
        outbox.create(connection)
    with Session(engine) as session:
        outbox.add(session, "orders", 1, {"n": 1})
        session.rollback()
        outbox.add(session, "orders", 2, {"n": 2})
        session.commit()
    with engine.begin() as connection:
        outbox.add(connection, "orders", 3, {"n": 3})
    engine.dispose()
    assert rows_of(postgres) == [("orders", "2", b'{"n":2}'), ("orders", "3", b'{"n":3}')]


async def test_async_sessions_are_awaited(postgres: str) -> None:
    engine = create_async_engine(url_of(postgres))
    async with engine.begin() as connection:
        await outbox.create(connection)
    async with AsyncSession(engine) as session:
        added = await outbox.add(session, "orders", "k", "1")
        assert isinstance(added, uuid.UUID)
        await session.rollback()
        await outbox.add(session, "orders", "k", "2")
        await session.commit()
    await engine.dispose()
    async with await psycopg.AsyncConnection.connect(postgres) as raw:
        await outbox.add(raw, "orders", "k", "3")
        async with raw.cursor() as cursor:
            await outbox.add(cursor, "orders", "k", "4")
    assert [row[2] for row in rows_of(postgres)] == [b"2", b"3", b"4"]


def test_psycopg_connections_and_cursors_add(postgres: str) -> None:
    with psycopg.connect(postgres) as connection:
        outbox.create(connection)
    with psycopg.connect(postgres, cursor_factory=psycopg.RawCursor) as connection:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 7")
            outbox.add(cursor, "orders", "k", b"\x00\xff")
            assert cursor.fetchone() == (7,), "the caller's rows stay"
        with connection.transaction() as savepoint:
            outbox.add(connection, "orders", "k", "of a savepoint that is rolled back")
            raise psycopg.Rollback(savepoint)
        with connection.pipeline():
            outbox.add(connection, "orders", "k", "2")
    assert [row[2] for row in rows_of(postgres)] == [b"\x00\xff", b"2"]


def test_a_connection_that_commits_by_itself_is_refused(postgres: str) -> None:
    with psycopg.connect(postgres, autocommit=True) as connection:
        outbox.create(connection)
        with pytest.raises(outbox.NotInTransaction, match=r"with connection\.transaction"):
            outbox.add(connection, "orders", "k", "1")
        with connection.transaction():
            outbox.add(connection, "orders", "k", "1")
    lite = sqlite3.connect(":memory:", isolation_level=None)
    outbox.create(lite)
    with pytest.raises(outbox.NotInTransaction):
        outbox.add(lite, "orders", "k", "1")
    lite.close()
    with pytest.raises(TypeError, match="no session"):
        outbox.add(object(), "orders", "k", "1")


def test_an_engine_of_sqlalchemy_that_commits_by_itself_is_refused(postgres: str) -> None:
    engine = sa.create_engine(url_of(postgres), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        outbox.create(connection)
        with pytest.raises(outbox.NotInTransaction, match="AUTOCOMMIT"):
            outbox.add(connection, "orders", "k", "1")
    with Session(engine) as session, pytest.raises(outbox.NotInTransaction):
        outbox.add(session, "orders", "k", "1")
    engine.dispose()
    assert rows_of(postgres) == []
    with pytest.raises(TypeError, match="Engine is no session"):
        outbox.add(engine, "orders", "k", "1")


async def test_an_async_engine_that_commits_by_itself_is_refused(postgres: str) -> None:
    engine = create_async_engine(url_of(postgres), isolation_level="AUTOCOMMIT")
    async with engine.connect() as connection:
        await outbox.create(connection)
    async with AsyncSession(engine) as session:
        with pytest.raises(outbox.NotInTransaction):
            await outbox.add(session, "orders", "k", "1")
    await engine.dispose()
    assert rows_of(postgres) == []


def test_a_listener_that_begins_transactions_of_sqlite_is_no_autocommit() -> None:
    engine = sa.create_engine("sqlite://")

    @sa.event.listens_for(engine, "connect")
    def leave_to_listener(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    with engine.connect() as connection:
        outbox.create(connection)
        connection.commit()
        outbox.add(connection, "orders", "k", "1")
        connection.rollback()
        assert connection.scalar(sa.text("SELECT count(*) FROM outbox")) == 0
    engine.dispose()


def test_an_event_without_a_table_is_a_message_of_its_transaction(postgres: str) -> None:
    with psycopg.connect(postgres) as connection:
        connection.execute("SELECT pg_create_logical_replication_slot('emitted', 'test_decoding')")
        connection.commit()
        outbox.emit(connection, "orders", "k", "rolled back")
        connection.rollback()
        added = outbox.emit(connection, "orders", "k", {"n": "ü"}, event_type="Made", headers={"a": "b"})
        outbox.emit(connection, "orders", None, b"\xff")
        connection.commit()
        found = connection.execute("SELECT data FROM pg_logical_slot_get_changes('emitted', NULL, NULL)").fetchall()
        connection.commit()
        connection.execute("SELECT pg_drop_replication_slot('emitted')")
    messages = [json.loads(row[0][row[0].index("{") :]) for row in found if "prefix: outbox" in row[0]]
    assert messages[0] == {
        "id": str(added),
        "aggregatetype": "orders",
        "aggregateid": "k",
        "type": "Made",
        "payload": '{"n":"ü"}',
        "headers": '{"a": "b"}',
    }
    assert (messages[1]["payload"], messages[1]["payload_base64"]) == (None, "/w==")
    assert len(messages) == 2


@dataclasses.dataclass
class Paid:
    at: datetime.date
    amount: decimal.Decimal


class Sent(BaseModel):
    to: str


@pytest.mark.parametrize(
    ("event", "payload", "kind"),
    [
        ({"ü": [1, None]}, '{"ü":[1,null]}'.encode(), ""),
        ("text", b"text", ""),
        (b"\xff", b"\xff", ""),
        (None, None, ""),
        (Paid(datetime.date(2026, 1, 2), decimal.Decimal("1.50")), b'{"at":"2026-01-02","amount":"1.50"}', "Paid"),
        (Sent(to="x"), b'{"to":"x"}', "Sent"),
    ],
)
def test_events_are_encoded(event: Any, payload: bytes | None, kind: str) -> None:
    connection = sqlite3.connect(":memory:")
    outbox.create(connection)
    outbox.add(connection, "t", uuid.UUID(int=1), event)
    assert connection.execute("SELECT payload, type FROM outbox").fetchone() == (payload, kind)
    connection.close()


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"topic": "a b"}, "'a b' is no name of a topic"),
        ({"topic": ".."}, "no name of a topic"),
        ({"topic": "x" * 250}, "no name of a topic"),
        ({"key": b"\xff"}, "not UTF-8"),
        ({"key": "a\0"}, "cannot hold"),
        ({"key": 1.5}, "must be text or a number"),
        ({"key": "x" * 256}, "256 characters"),
        ({"event": {"a": float("nan")}}, "cannot be written as JSON"),
        ({"event": object()}, "object has no form in JSON"),
        ({"event": "x" * 1_000_001}, "1,000,00. bytes"),
        ({"headers": {"a": 1}}, "must be text"),
        ({"headers": {"id": "1"}}, "written by the relay"),
        ({"headers": [("a", "b")]}, "are list, and must be a dict"),
        ({"event_type": "x" * 256}, "the type of an event for t has 256 characters"),
        ({"event_type": "\ud800"}, "cannot hold"),
        ({"id": "7"}, "no UUID"),
    ],
)
def test_what_could_not_be_sent_is_not_added(change: dict[str, Any], match: str) -> None:
    connection = sqlite3.connect(":memory:")
    outbox.create(connection)
    given = {"topic": "t", "key": "k", "event": {}} | change
    with pytest.raises(outbox.EventInvalid, match=match):
        outbox.add(connection, **given)
    assert connection.execute("SELECT count(*) FROM outbox").fetchone() == (0,)
    connection.close()


def test_an_id_is_added_once(postgres: str) -> None:
    with psycopg.connect(postgres) as connection:
        outbox.create(connection)
        outbox.add(connection, "t", "k", "1", id=uuid.UUID(int=1))
        with pytest.raises(psycopg.errors.UniqueViolation):
            outbox.add(connection, "t", "k", "2", id=str(uuid.UUID(int=1)))
        connection.rollback()


def test_alembic_creates_and_drops_the_tables(postgres: str, tmp_path: Path) -> None:
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    from strandline import inbox

    def tables(connection: sa.Connection) -> set[str]:
        return set(sa.inspect(connection).get_table_names())

    for engine in (sa.create_engine(url_of(postgres)), sa.create_engine(f"sqlite:///{tmp_path / 'a.db'}")):
        with engine.begin() as connection:
            op = Operations(MigrationContext.configure(connection))
            outbox.upgrade(op)
            inbox.upgrade(op)
            assert tables(connection) == {"outbox", "inbox"}
            outbox.downgrade(op)
            inbox.downgrade(op)
            assert tables(connection) == set()
        engine.dispose()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["postgresql", "sqlite"])
def test_django_migrates_adds_and_receives(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    database = str(tmp_path / "django.db") if name == "sqlite" else request.getfixturevalue("postgres")
    ended = subprocess.run(
        [sys.executable, "-m", "tests.outbox.django_program", name, database],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split("\n")[-2] == "[('orders', '2'), ('orders', '3')] True False"


def test_a_database_without_tables_for_it_is_named() -> None:
    with pytest.raises(ValueError, match="mysql"):
        outbox.ddl("mysql+pymysql")
    with pytest.raises(ValueError, match="no name of a table"):
        outbox.ddl("postgresql", table=".x")


def test_the_package_loads_no_client_of_the_log() -> None:
    program = (
        "import sys; from strandline import outbox, inbox; outbox.add, inbox.once; "
        "print('confluent_kafka' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "False\n"


def test_changes_of_a_session_are_written_before_the_event(postgres: str) -> None:
    """Else two sessions that change a row could add their events in the other order."""

    class Base(DeclarativeBase):
        pass

    class Order(Base):
        __tablename__ = "orders"
        id: Mapped[int] = mapped_column(primary_key=True)

    engine = sa.create_engine(url_of(postgres))
    Base.metadata.create_all(engine)
    statements: list[str] = []
    sa.event.listen(engine, "before_cursor_execute", lambda *given: statements.append(given[2][:18]))
    with Session(engine) as session, session.begin():
        outbox.create(session)
        statements.clear()
        session.add(Order(id=1))
        outbox.add(session, "orders", 1, {})
    engine.dispose()
    assert statements == ["INSERT INTO orders", 'INSERT INTO "outbo']
