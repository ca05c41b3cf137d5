"""The relay of an outbox in PostgreSQL: how fast it empties a full table, and how long an event takes to the log.

The relay is `strandline outbox relay` with its defaults, in a process of its own. Writers and the consumer are other
processes, on the same machine. PostgreSQL does not sync its files.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from confluent_kafka import Consumer, TopicPartition
from tests.connect.postgres_server import PostgresServer

from bench import measure
from bench.brokers import STRANDLINE, Broker
from bench.figures import Figure, at_least, at_most
from bench.stage import Stage
from strandline import outbox

NAME = "outbox"
SUMMARY = "the relay of an outbox in PostgreSQL: events/s of a full table, and the time from commit to log"
EVENTS: Final = 200_000
PARTITIONS: Final = 6
RATE: Final = 1_000
STEADY_S: Final = 30
LEFT_OUT_S: Final = 5
RATE_SHARE_MIN: Final = 0.98
"""A writer that reaches less of its rate is named below the table."""
WAIT_S: Final = 300.0
_FILL: Final = (
    "INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) SELECT gen_random_uuid(), %s, "
    "'key-' || each %% 1000, 'OrderPlaced', convert_to(each || repeat('x', 200), 'UTF8') "
    "FROM generate_series(1, %s) each"
)


@dataclass
class Relay:
    """A relay at work."""

    pid: int
    dsn: str


def run(stage: Stage) -> list[Figure]:
    stage.put_shared_pair_away()
    server = PostgresServer().start()
    broker = stage.start(STRANDLINE)
    try:
        return [*_full(stage, broker, server), *_steady(stage, broker, server)]
    finally:
        stage.discard(broker)
        server.remove()


@contextlib.contextmanager
def _relaying(stage: Stage, broker: Broker, server: PostgresServer, *, notify: bool) -> Iterator[Relay]:
    """Run a relay of a fresh database; yield it when it works."""
    dsn = server.fresh_database()
    with psycopg.connect(dsn) as connection:
        outbox.create(connection, notify=notify)
    command = [sys.executable, "-m", "strandline", "outbox", "relay"]
    command += ["--database", dsn, "--bootstrap", broker.bootstrap]
    log = stage.root / "relay.log"
    with log.open("wb") as words:
        process = subprocess.Popen(command, stdout=words, stderr=words)
    try:
        # The first event shows that the relay works. Its topic stays.
        topic = f"ready-{psycopg.conninfo.conninfo_to_dict(dsn)['dbname']}"
        broker.create_topic(topic, 1)
        with psycopg.connect(dsn) as connection:
            outbox.add(connection, topic, None, "ready")
        _wait_empty(dsn)
        yield Relay(process.pid, dsn)
        assert process.poll() is None, f"the relay ended: {log.read_text()}"
    finally:
        process.terminate()
        process.wait(WAIT_S)


def _wait_empty(dsn: str) -> None:
    """Wait until all rows are sent and deleted."""
    until_s = time.monotonic() + WAIT_S
    with psycopg.connect(dsn, autocommit=True) as connection:
        while connection.execute("SELECT EXISTS (SELECT FROM outbox)").fetchone() != (False,):
            assert time.monotonic() < until_s, f"the outbox was not empty within {WAIT_S:.0f} s"
            time.sleep(0.02)


# A full table


def _full(stage: Stage, broker: Broker, server: PostgresServer) -> list[Figure]:
    count = stage.scaled(EVENTS, 10_000)
    measured: dict[str, list[float]] = {}
    warm_rounds = stage.scaled(1, 0)
    with _relaying(stage, broker, server, notify=True) as relay:
        for number in range(warm_rounds + stage.scaled(min(stage.rounds, 3), 1)):
            found = _full_round(broker, relay, f"full-{number}", count)
            stage.say("  " + "  ".join(f"{name} {each:,.0f}" for name, each in found.items()))
            if number >= warm_rounds:
                for name, each in found.items():
                    measured.setdefault(name, []).append(each)
    note = f"{count:,} events of 200 B, committed at once, to {PARTITIONS} partitions; until the last row is deleted"
    return [
        Figure("full outbox", "events/s", measured["events/s"], target=at_least(10_000.0), note=note),
        Figure("full outbox, CPU of the relay", "events per CPU-second", measured["events per CPU-second"]),
    ]


def _full_round(broker: Broker, relay: Relay, topic: str, count: int) -> dict[str, float]:
    broker.create_topic(topic, PARTITIONS)
    with psycopg.connect(relay.dsn) as connection:
        connection.execute(_FILL, [topic, count])
        cpu_s, began_s = measure.cpu_seconds(relay.pid), time.monotonic()
        connection.commit()
        _wait_empty(relay.dsn)
    seconds, cpu_s = time.monotonic() - began_s, measure.cpu_seconds(relay.pid) - cpu_s
    with _reader(broker, topic, PARTITIONS) as consumer:
        numbers = {value.rstrip(b"x") for value, _ in itertools.islice(_seen(consumer), count)}
        assert len(numbers) == count, f"{count - len(numbers)} events are lost, others doubled"
        assert not consumer.consume(1, 0.5), "an event came twice"
    broker.delete_topic(topic)
    return {"events/s": count / seconds, "events per CPU-second": count / cpu_s}


# A steady rate


def _steady(stage: Stage, broker: Broker, server: PostgresServer) -> list[Figure]:
    figures = []
    for notify, how in ((True, "woken by NOTIFY"), (False, "polling every 50 ms")):
        taken: dict[str, list[float]] = {}
        for _ in range(stage.scaled(min(stage.rounds, 3), 1)):
            found = _steady_round(stage, broker, server, notify=notify)
            stage.say(f"  {how}  " + "  ".join(f"{name} {each:.4g}" for name, each in found.items()))
            for name, each in found.items():
                taken.setdefault(name, []).append(each)
        if min(taken["rate"]) < RATE_SHARE_MIN * RATE:
            stage.remarks.append(f"{NAME}: the writer reached {min(taken['rate']):.0f} of {RATE} events/s ({how})")
        for name in ("p50", "p99"):
            target = at_most(100.0) if name == "p99" else None
            note = "read_committed; a transaction for each event"
            title = f"commit to log at {RATE:,} events/s, {how}, {name}"
            figures.append(Figure(title, "ms", taken[name], target=target, note=note))
        figures.append(Figure(f"CPU of the relay at {RATE:,} events/s, {how}", "% of a core", taken["cpu"]))
    return figures


def _steady_round(stage: Stage, broker: Broker, server: PostgresServer, *, notify: bool) -> dict[str, float]:
    seconds, left_out_s = stage.scaled(STEADY_S, 4), stage.scaled(LEFT_OUT_S, 1)
    topic, count = "steady", RATE * seconds
    broker.create_topic(topic, 1)
    with _relaying(stage, broker, server, notify=notify) as relay, _reader(broker, topic, 1) as consumer:
        command = [sys.executable, "-m", "bench.steady_outbox", relay.dsn, topic, str(RATE), str(seconds)]
        cpu_s = measure.cpu_seconds(relay.pid)
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            try:
                seen = {int(value): now_ns for value, now_ns in itertools.islice(_seen(consumer), count)}
                commits_ns = json.loads(writer.communicate(timeout=WAIT_S)[0])
            finally:
                writer.kill()
        cpu_s = measure.cpu_seconds(relay.pid) - cpu_s
    broker.delete_topic(topic)
    assert len(seen) == count, f"{count - len(seen)} events are lost, others doubled"
    counted = range(RATE * left_out_s, count)
    delays_ms = [(seen[each] - commits_ns[each]) / 1e6 for each in counted]
    written_s = (max(commits_ns) - min(commits_ns)) / 1e9
    return {
        "p50": measure.percentile(delays_ms, 50),
        "p99": measure.percentile(delays_ms, 99),
        "max": max(delays_ms),
        "rate": count / written_s,
        "cpu": 100 * cpu_s / written_s,
    }


def _seen(consumer: Any) -> Iterator[tuple[bytes, int]]:
    """Yield values, with the time at which each came. Fail if none comes for long."""
    last_s = time.monotonic()
    while time.monotonic() < last_s + WAIT_S:
        messages = consumer.consume(1000, 0.002)
        now_ns = time.time_ns()
        for each in messages:
            assert each.error() is None, each.error()
            last_s = time.monotonic()
            yield each.value(), now_ns
    raise AssertionError(f"no event came for {WAIT_S:.0f} s")


@contextlib.contextmanager
def _reader(broker: Broker, topic: str, partitions: int) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": topic,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "log_level": 3,
        }
    )
    consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
    try:
        yield consumer
    finally:
        consumer.close()
