"""What the three services have in common: tables that are made at the start, and a loop over messages.

A message and its effect are one transaction of the database: the id goes into the inbox, new events into the outbox.
The offset is committed after that. A service that is killed in between gets the message again, and its inbox says that
it is done.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from confluent_kafka import Consumer, Message

from strandline import inbox, outbox

Handler = Callable[[psycopg.Connection[Any], dict[str, Any]], None]
WAIT_S = 0.2


def prepare(dsn: str, *statements: str) -> None:
    """Make the tables of a service; those that exist stay as they are."""
    with psycopg.connect(dsn) as connection:
        for each in statements:
            connection.execute(each.encode())
        outbox.create(connection)
        inbox.create(connection)


def serve(name: str, topics: Sequence[str], handlers: dict[str, Handler]) -> None:
    """Handle messages until the process ends: `python NAME.py DATABASE BOOTSTRAP`."""
    dsn, bootstrap = sys.argv[1:]
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            # A service that was killed has its partitions again at once when it is back.
            "group.instance.id": name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "topic.metadata.refresh.interval.ms": 500,
        }
    )
    consumer.subscribe(list(topics))
    while True:
        message = consumer.poll(1)
        if message is None or message.error() is not None:
            continue
        while not _handled(dsn, name, message, handlers):
            time.sleep(WAIT_S)
        consumer.commit(message)


def _handled(dsn: str, name: str, message: Message, handlers: dict[str, Handler]) -> bool:
    """Handle a message; return False if the database is away. A new connection for each keeps the example short."""
    kind = dict(message.headers() or ())["eventType"].decode()
    try:
        with psycopg.connect(dsn) as connection:
            if kind in handlers and inbox.once(connection, message, consumer=name):
                handlers[kind](connection, json.loads(message.value() or b"{}"))
    except psycopg.OperationalError:
        return False
    return True
