"""What `inbox.once` adds to a handler: `python -m bench.inbox_overhead [DSN]`.

The plain handler updates one row and inserts another in a transaction, and commits. Both handlers take turns in short
rounds, so that a busy machine slows both; the figure is the median over the rounds. Without a DSN it starts a
PostgreSQL of its own that syncs its log, as one in production does.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
import sqlalchemy as sa
from sqlalchemy.orm import Session
from tests.connect.postgres_server import PostgresServer

from strandline import inbox
from strandline.queue import QueueTask

ROUNDS: Final = 40
MESSAGES: Final = 50
TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS accounts (id int PRIMARY KEY, balance bigint NOT NULL)",
    "INSERT INTO accounts SELECT each, 0 FROM generate_series(0, 999) each ON CONFLICT DO NOTHING",
    "CREATE TABLE IF NOT EXISTS bookings (account int NOT NULL, amount bigint NOT NULL)",
)
UPDATE: Final = "UPDATE accounts SET balance = balance + 1 WHERE id = {}"
INSERT: Final = "INSERT INTO bookings VALUES ({}, 1)"
Handler = Callable[[QueueTask], None]


def psycopg_handlers(dsn: str) -> tuple[Handler, Handler]:
    connection = psycopg.connect(dsn)
    update, insert = UPDATE.format("%s"), INSERT.format("%s")

    def effect(message: QueueTask) -> None:
        connection.execute(update, [message.offset % 1000])
        connection.execute(insert, [message.offset % 1000])

    def plain(message: QueueTask) -> None:
        effect(message)
        connection.commit()

    def once(message: QueueTask) -> None:
        if inbox.once(connection, message, consumer="bench"):
            effect(message)
        connection.commit()

    return plain, once


def sqlalchemy_handlers(dsn: str) -> tuple[Handler, Handler]:
    engine = sa.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn))
    update, insert = sa.text(UPDATE.format(":id")), sa.text(INSERT.format(":id"))

    def effect(session: Session, message: QueueTask) -> None:
        session.execute(update, {"id": message.offset % 1000})
        session.execute(insert, {"id": message.offset % 1000})

    def plain(message: QueueTask) -> None:
        with Session(engine) as session, session.begin():
            effect(session, message)

    def once(message: QueueTask) -> None:
        with Session(engine) as session, session.begin():
            if inbox.once(session, message, consumer="bench"):
                effect(session, message)

    return plain, once


def measure(plain: Handler, once: Handler) -> tuple[float, float]:
    """Return microseconds of a message with both handlers."""
    times: dict[Any, list[float]] = {plain: [], once: []}
    offset = 0
    for turn in range(ROUNDS + 2):
        for handler in (plain, once) if turn % 2 else (once, plain):
            began = time.perf_counter()
            for _ in range(MESSAGES):
                handler(QueueTask("orders", 0, offset, None, b"", (("id", b"%032x" % offset),), 0, 1))
                offset += 1
            if turn >= 2:
                times[handler].append((time.perf_counter() - began) / MESSAGES * 1e6)
    return statistics.median(times[plain]), statistics.median(times[once])


@contextmanager
def database(given: str | None) -> Iterator[str]:
    if given is not None:
        yield given
        return
    server = PostgresServer(fsync="on").start()
    try:
        yield server.fresh_database()
    finally:
        server.remove()


def main(given: str | None = None) -> None:
    with database(given) as dsn:
        for name, handlers in (("psycopg", psycopg_handlers), ("sqlalchemy", sqlalchemy_handlers)):
            with psycopg.connect(dsn) as connection:
                for each in TABLES:
                    connection.execute(each)
                connection.execute("DROP TABLE IF EXISTS inbox")
                inbox.create(connection)
            plain, once = measure(*handlers(dsn))
            print(f"{name:12} plain {plain:7.0f} us   once {once:7.0f} us   overhead {100 * (once / plain - 1):5.1f} %")


if __name__ == "__main__":
    main(*sys.argv[1:])
