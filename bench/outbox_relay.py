"""How fast the polling relay is: `python -m bench.outbox_relay [EVENTS [RATE [SECONDS]]]`.

First a full outbox is emptied: events a second. Then one writer commits an event at a time at a steady rate, and a
consumer measures the time from `outbox.add` until it has the record: median and p99.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from typing import Any, Final

import psycopg
from confluent_kafka import Consumer, TopicPartition
from tests.connect.postgres_server import PostgresServer

import strandline
from strandline import outbox

FILL: Final = (
    "INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) SELECT gen_random_uuid(), 'full', "
    "'key' || each %% 1000, 'Filled', convert_to(repeat('x', 200), 'UTF8') FROM generate_series(1, %s) each"
)
WAIT_S: Final = 120.0


def empty(relay: outbox.OutboxRelay, events: int) -> float:
    """Return the events a second with which a relay empties the outbox."""
    relay.is_active.wait(WAIT_S)
    began, first = time.monotonic(), relay.counts.sent
    while relay.counts.sent < events:
        assert time.monotonic() - began < WAIT_S
        time.sleep(0.005)
    return (events - first) / (time.monotonic() - began)


def follow(bootstrap: str, count: int, delays: list[float]) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.assign([TopicPartition("steady", 0, 0)])
    until = time.monotonic() + WAIT_S
    while len(delays) < count and time.monotonic() < until:
        for message in consumer.consume(1000, 0.02):
            if message.error() is None:
                delays.append(time.time() - float(message.value()))
    consumer.close()


def write(connection: psycopg.Connection[Any], count: int, rate: int) -> float:
    """Add events at a rate, each in a transaction of its own; return the rate that was reached."""
    began = time.monotonic()
    for number in range(count):
        outbox.add(connection, "steady", f"key{number % 1000}", repr(time.time()))
        connection.commit()
        time.sleep(max(0.0, began + (number + 1) / rate - time.monotonic()))
    return count / (time.monotonic() - began)


def main(events: str = "200000", rate: str = "1000", seconds: str = "10") -> None:
    server = PostgresServer(fsync="on").start()
    try:
        dsn = server.fresh_database()
        with psycopg.connect(dsn) as connection:
            outbox.create(connection)
            connection.execute(FILL, [int(events)])
        with strandline.embedded() as log, psycopg.connect(dsn) as connection:
            log.create_topic("full", 6)
            log.create_topic("steady", 1)
            relay = outbox.OutboxRelay(dsn, log.bootstrap)
            working = threading.Thread(target=relay.run)
            working.start()
            try:
                print(f"full outbox   {empty(relay, int(events)):,.0f} events/s")
                delays: list[float] = []
                count = int(rate) * int(seconds)
                following = threading.Thread(target=follow, args=(log.bootstrap, count, delays))
                following.start()
                reached = write(connection, count, int(rate))
                following.join()
            finally:
                relay.stop()
                working.join()
            cuts = statistics.quantiles(delays, n=100)
            print(f"{reached:,.0f} events/s   p50 {cuts[49] * 1000:.1f} ms   p99 {cuts[98] * 1000:.1f} ms")
    finally:
        server.remove()


if __name__ == "__main__":
    main(*sys.argv[1:])
