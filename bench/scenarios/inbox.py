"""What `inbox.once` adds to a handler of messages.

The plain handler reads an order from JSON, updates one row and inserts another, and commits. Both handlers take turns
in short runs, so that a busy machine slows both. Each round of a figure is the median of these runs.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Final

import psycopg
import sqlalchemy as sa
from sqlalchemy.orm import Session
from tests.connect.postgres_server import PostgresServer

from bench.figures import Figure, ratio_at_most
from bench.stage import Stage
from strandline import inbox
from strandline.queue import QueueTask

NAME = "inbox"
SUMMARY = "a handler in PostgreSQL with and without inbox.once, by psycopg and by SQLAlchemy"
PLAIN: Final = "plain handler"
RUNS: Final = 20
MESSAGES: Final = 50
"""Messages of a run."""
ACCOUNTS: Final = 1000
_TABLES: Final = (
    "CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL)",
    f"INSERT INTO accounts SELECT each, 0 FROM generate_series(0, {ACCOUNTS - 1}) each",
    "CREATE TABLE bookings (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, account int NOT NULL, "
    "amount bigint NOT NULL, at timestamptz NOT NULL DEFAULT now())",
)
_UPDATE: Final = "UPDATE accounts SET balance = balance + {1} WHERE id = {0}"
_INSERT: Final = "INSERT INTO bookings (account, amount) VALUES ({0}, {1})"
Handler = Callable[[QueueTask], None]
Handlers = tuple[Handler, Handler, Callable[[], None]]
"""Without the inbox, with it, and what ends both."""


def run(stage: Stage) -> list[Figure]:
    stage.put_shared_pair_away()
    figures = []
    for fsync in ("on", "off"):
        server = PostgresServer(fsync=fsync).start()
        try:
            for library, handlers in (("psycopg", _psycopg), ("SQLAlchemy", _sqlalchemy)):
                figures.append(_overhead(stage, library, handlers, server, fsync))
        finally:
            server.remove()
    return figures


def _overhead(
    stage: Stage, library: str, handlers: Callable[[str], Handlers], server: PostgresServer, fsync: str
) -> Figure:
    dsn = server.fresh_database()
    with psycopg.connect(dsn) as connection:
        for each in _TABLES:
            connection.execute(each)
        inbox.create(connection)
    plain, once, close = handlers(dsn)
    with_inbox: list[float] = []
    without: list[float] = []
    offset = 0
    for number in range(1 + stage.scaled(stage.rounds, 1)):
        taken: dict[Handler, list[float]] = {plain: [], once: []}
        for turn in range(stage.scaled(RUNS, 2)):
            for handler in (plain, once) if turn % 2 else (once, plain):
                taken[handler].append(_run(handler, offset))
                offset += MESSAGES
        plain_us, once_us = statistics.median(taken[plain]), statistics.median(taken[once])
        stage.say(f"  round {number} {library}, fsync={fsync}  plain {plain_us:.0f} us  once {once_us:.0f} us")
        if number:
            without.append(plain_us)
            with_inbox.append(once_us)
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT (SELECT count(*) FROM bookings), (SELECT count(*) FROM inbox)").fetchone()
    assert row == (offset, offset // 2), f"the handlers had other effects than one a message: {row}"
    close()
    # A server without fsync commits in no time, which none in production does.
    target = ratio_at_most(1.15) if fsync == "on" else None
    note = f"an UPDATE, an INSERT and a commit for each message, one after the other; fsync={fsync}"
    return Figure(f"inbox.once, {library}, fsync={fsync}", "us/message", with_inbox, without, PLAIN, target, note)


def _run(handler: Handler, offset: int) -> float:
    """Return the microseconds of a message."""
    messages = [
        QueueTask(
            "orders",
            0,
            each,
            None,
            json.dumps({"account": each * 7919 % ACCOUNTS, "amount": each % 90 + 10}).encode(),
            (("id", b"%032x" % each),),
            0,
            1,
        )
        for each in range(offset, offset + MESSAGES)
    ]
    began_s = time.perf_counter()
    for each in messages:
        handler(each)
    return (time.perf_counter() - began_s) / MESSAGES * 1e6


def _psycopg(dsn: str) -> Handlers:
    connection = psycopg.connect(dsn)
    update, insert = (each.format("%(account)s", "%(amount)s") for each in (_UPDATE, _INSERT))

    def effect(message: QueueTask) -> None:
        order = json.loads(message.value or b"")
        connection.execute(update, order)
        connection.execute(insert, order)

    def plain(message: QueueTask) -> None:
        effect(message)
        connection.commit()

    def once(message: QueueTask) -> None:
        if inbox.once(connection, message, consumer="bench"):
            effect(message)
        connection.commit()

    return plain, once, connection.close


def _sqlalchemy(dsn: str) -> Handlers:
    engine = sa.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn))
    update, insert = (sa.text(each.format(":account", ":amount")) for each in (_UPDATE, _INSERT))

    def effect(session: Session, message: QueueTask) -> None:
        order = json.loads(message.value or b"")
        session.execute(update, order)
        session.execute(insert, order)

    def plain(message: QueueTask) -> None:
        with Session(engine) as session, session.begin():
            effect(session, message)

    def once(message: QueueTask) -> None:
        with Session(engine) as session, session.begin():
            if inbox.once(session, message, consumer="bench"):
                effect(session, message)

    return plain, once, engine.dispose
