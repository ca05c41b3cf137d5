"""Change data capture of PostgreSQL beside Debezium's embedded engine, both into the same broker.

Both run one connector after another in a process that is warm. Debezium's producer is idempotent, with Kafka's
defaults, and its records come at least once; ours come exactly once. CPU is that of the process, not of PostgreSQL or
the broker.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
from confluent_kafka import Consumer, TopicPartition
from tests.connect.postgres_server import PostgresOnTcp

from bench import measure
from bench.brokers import STRANDLINE, Broker
from bench.cdc_engine.processes import DEBEZIUM, CaptureProcess, debezium, ours
from bench.figures import Figure, Target, ratio_at_least, ratio_at_most
from bench.kafka_jars import KafkaUnavailable
from bench.stage import Stage

NAME = "cdc"
SUMMARY = "snapshot and changes of PostgreSQL beside Debezium's engine: rows per CPU-second, delay, memory, start"
SNAPSHOT_ROWS: Final = 200_000
STREAM_ROWS: Final = 200_000
ROWS_OF_TRANSACTION: Final = 100
RATE: Final = 1_000
STEADY_S: Final = 30
LEFT_OUT_S: Final = 5
SHORT_POLL_MS: Final = 5
"""Debezium takes what its queue has every 500 ms by default, which no delay can be below."""
WAIT_S: Final = 600.0
_JSON: Final = "org.apache.kafka.connect.json.JsonConverter"
_TABLE: Final = """
    create table orders (
        id bigserial primary key, customer text not null, product text not null, units integer not null,
        price numeric(10, 2) not null, placed timestamptz not null, note text
    )
"""
_ROWS: Final = """
    insert into orders (customer, product, units, price, placed, note)
    select 'customer-' || n % 1000, 'SKU-' || n * 7919 % 10000, n % 10 + 1, n * 31 % 50000 / 100.0,
           timestamptz '2026-01-02 03:04:05+00' + n * interval '1 second', case when n % 3 = 0 then 'gift' end
    from generate_series(1, %s) n
"""
_TRANSACTIONS: Final = """
    do $$ begin
        for each in 1..{transactions} loop
            insert into orders (customer, product, units, price, placed, note)
            select 'customer-' || n % 1000, 'SKU-' || n * 7919 % 10000, n % 10 + 1, n * 31 % 50000 / 100.0,
                   timestamptz '2026-01-02 03:04:05+00' + n * interval '1 second', case when n % 3 = 0 then 'gift' end
            from generate_series(each * {rows}, each * {rows} + {rows} - 1) n;
            commit;
        end loop;
    end $$
"""


@dataclass
class Contest:
    """What both capture, and where to."""

    stage: Stage
    broker: Broker
    server: PostgresOnTcp

    def round(self) -> Round:
        """Return a fresh database with an empty table, and a topic for it."""
        dsn = self.server.fresh_database()
        database = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
        name = f"cdc_{database}"
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(_TABLE)
        self.broker.create_topic(f"{name}.public.orders", 1)
        return Round(self.broker, self.server.port, dsn, str(database), name)


@dataclass
class Round:
    broker: Broker
    port: int
    dsn: str
    database: str
    name: str

    @property
    def topic(self) -> str:
        return f"{self.name}.public.orders"

    def config(self, *, has_schemas: bool = False, **more: str) -> dict[str, str]:
        """Return what both are given."""
        schemas = str(has_schemas).lower()
        return {
            "database.hostname": "127.0.0.1",
            "database.port": str(self.port),
            "database.user": "postgres",
            "database.password": "postgres",
            "database.dbname": self.database,
            "topic.prefix": self.name,
            "table.include.list": "public.orders",
            "plugin.name": "pgoutput",
            "slot.name": self.name,
            "publication.name": self.name,
            "publication.autocreate.mode": "filtered",
            "key.converter": _JSON,
            "value.converter": _JSON,
            "key.converter.schemas.enable": schemas,
            "value.converter.schemas.enable": schemas,
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def execute(self, statement: str, *parameters: Any) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement.encode(), parameters or None)

    def wait(self, count: int) -> None:
        """Wait for so many records, as a reader of committed records would see them."""
        with _reader(self.broker, self.topic) as consumer:
            place = TopicPartition(self.topic, 0)
            until_s = time.monotonic() + WAIT_S
            # Markers of transactions count, too: there are few, and the last record comes before the last one.
            while consumer.get_watermark_offsets(place, timeout=10)[1] < count:
                assert time.monotonic() < until_s, f"{self.topic} did not get {count} records"
                time.sleep(0.02)

    def drop_slot(self) -> None:
        """Free the slot, when the reader has ended."""
        until_s = time.monotonic() + WAIT_S
        while True:
            try:
                self.execute(f"select pg_drop_replication_slot('{self.name}')")
            except psycopg.errors.ObjectInUse:
                assert time.monotonic() < until_s, f"the slot {self.name} stays in use"
                time.sleep(0.1)
            else:
                return


def run(stage: Stage) -> list[Figure]:
    stage.put_shared_pair_away()
    broker = stage.start(STRANDLINE, settings={"group.initial.rebalance.delay.ms": "0"})
    server = PostgresOnTcp()
    server.start()
    contest = Contest(stage, broker, server)
    try:
        with contextlib.ExitStack() as stack:
            pair: list[CaptureProcess] = [
                stack.enter_context(ours(broker.bootstrap, stage.root, "cdc")),
                stack.enter_context(debezium(broker.bootstrap, stage.root / "debezium")),
            ]
            figures = [*_rows(contest, pair), *_memory(pair), *_delays(contest, pair)]
        return figures + _starts(contest)
    except KafkaUnavailable as reason:
        stage.remarks.append(f"{NAME}: no Debezium: {reason}")
        return []
    finally:
        server.remove()
        stage.discard(broker)


# Rows per CPU-second


def _rows(contest: Contest, pair: Sequence[CaptureProcess]) -> list[Figure]:
    stage = contest.stage
    figures = []
    kinds: dict[str, Callable[..., dict[str, float]]] = {"snapshot": _snapshot, "stream": _stream}
    for has_schemas in (False, True):
        for kind, measured in kinds.items():
            taken = stage.take_turns(
                pair,
                lambda process: measured(contest, process, has_schemas),  # noqa: B023
                rounds=min(stage.rounds, stage.scaled(3, 1)),
                warm_rounds=stage.scaled(1, 0),
            )
            suffix = "JSON with schemas" if has_schemas else "JSON"
            for metric, unit, target in (
                ("rows_cpu", "rows per CPU-second", ratio_at_least(1.0)),
                ("rows_s", "rows/s", None),
            ):
                figures.append(_figure(f"{kind}, {suffix}", unit, taken.of, metric, target))
    return figures


def _figure(
    name: str, unit: str, of: Callable[[str, str], list[float]], metric: str, target: Target | None, note: str = ""
) -> Figure:
    return Figure(name, unit, of(STRANDLINE, metric), of(DEBEZIUM, metric), DEBEZIUM, target, note)


def _snapshot(contest: Contest, process: CaptureProcess, has_schemas: bool) -> dict[str, float]:
    count = contest.stage.scaled(SNAPSHOT_ROWS, 5_000)
    round = contest.round()
    round.execute(_ROWS.replace("%s", str(count)))
    measured = _captured(round, process, round.config(has_schemas=has_schemas), count, count)
    process.stop(round.name)
    round.drop_slot()
    return measured


def _stream(contest: Contest, process: CaptureProcess, has_schemas: bool) -> dict[str, float]:
    """Capture what was written while the connector was stopped."""
    count = contest.stage.scaled(STREAM_ROWS, 5_000)
    round = contest.round()
    config = round.config(has_schemas=has_schemas)
    process.start(round.name, config)
    for rows in (1, 2):
        # The second row shows that the snapshot is over.
        round.execute(_ROWS.replace("%s", "1"))
        round.wait(rows)
    process.stop(round.name)
    round.execute(_TRANSACTIONS.format(transactions=count // ROWS_OF_TRANSACTION, rows=ROWS_OF_TRANSACTION))
    measured = _captured(round, process, config, count + 2, count)
    process.stop(round.name)
    round.drop_slot()
    return measured


def _captured(
    round: Round, process: CaptureProcess, config: dict[str, str], records: int, count: int
) -> dict[str, float]:
    cpu_s, began_s = measure.cpu_seconds(process.pid), time.monotonic()
    process.start(round.name, config)
    round.wait(records)
    seconds = time.monotonic() - began_s
    return {"rows_cpu": count / (measure.cpu_seconds(process.pid) - cpu_s), "rows_s": count / seconds}


def _memory(pair: Sequence[CaptureProcess]) -> list[Figure]:
    found = {each.name: [_peak_mb(each.pid)] for each in pair}
    note = "resident, the highest until here; -Xmx1g"
    return [Figure("memory", "MB", found[STRANDLINE], found[DEBEZIUM], DEBEZIUM, ratio_at_most(0.3), note)]


def _peak_mb(pid: int) -> float:
    total_kib = 0
    for each in measure.process_family(pid):
        for line in Path(f"/proc/{each}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                total_kib += int(line.split()[1])
    return total_kib * 1024 / measure.MB


# Delay


def _delays(contest: Contest, pair: Sequence[CaptureProcess]) -> list[Figure]:
    figures = []
    for poll_ms in (500, SHORT_POLL_MS):
        taken = contest.stage.take_turns(
            pair,
            lambda process: _delay(contest, process, poll_ms),  # noqa: B023
            rounds=min(contest.stage.rounds, contest.stage.scaled(3, 1)),
            warm_rounds=0,
        )
        for metric in ("p50", "p99"):
            name = f"commit to log at {RATE:,} transactions/s, {metric}, poll.interval.ms={poll_ms}"
            figures.append(_figure(name, "ms", taken.of, metric, ratio_at_most(1.0), "read_committed; one row each"))
    return figures


def _delay(contest: Contest, process: CaptureProcess, poll_ms: int) -> dict[str, float]:
    seconds = contest.stage.scaled(STEADY_S, 4)
    left_out_s = contest.stage.scaled(LEFT_OUT_S, 1)
    round = contest.round()
    process.start(round.name, round.config(poll_interval_ms=str(poll_ms)))
    for rows in (1, 2):
        round.execute(_ROWS.replace("%s", "1"))
        round.wait(rows)
    command = [sys.executable, "-m", "bench.cdc_engine.steady_writer", round.dsn, str(RATE), str(seconds)]
    cpu_s = measure.cpu_seconds(process.pid)
    with _reader(round.broker, round.topic) as consumer, _running(command) as writer:
        consumer.assign([TopicPartition(round.topic, 0, 0)])
        seen = list(_seen(consumer, 2 + RATE * seconds))
        assert writer.wait(WAIT_S) == 0, "the writer failed"
    cpu_s = measure.cpu_seconds(process.pid) - cpu_s
    process.stop(round.name)
    round.drop_slot()
    noted = [(int(json.loads(value)["after"]["customer"]), now_ns) for value, now_ns in seen[2:]]
    first_ns = noted[0][0] + left_out_s * 1_000_000_000
    delays_ms = [(now_ns - commit_ns) / 1e6 for commit_ns, now_ns in noted if commit_ns >= first_ns]
    written_s = (noted[-1][0] - noted[0][0]) / 1e9
    return {
        "p50": measure.percentile(delays_ms, 50),
        "p99": measure.percentile(delays_ms, 99),
        "rate": len(noted) / written_s,
        "cpu": cpu_s / written_s,
    }


def _seen(consumer: Consumer, count: int) -> Iterator[tuple[bytes, int]]:
    """Yield values, with the time at which each came."""
    until_s = time.monotonic() + WAIT_S
    found = 0
    while found < count:
        messages = consumer.consume(1000, 0.005)
        now_ns = time.time_ns()
        for each in messages:
            assert each.error() is None, each.error()
            yield each.value() or b"", now_ns
        found += len(messages)
        assert time.monotonic() < until_s, f"only {found} of {count} records came"


@contextlib.contextmanager
def _running(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def _reader(broker: Broker, topic: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": topic,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
            "log_level": 3,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


# Start


def _starts(contest: Contest) -> list[Figure]:
    """From the start of the process to the first record of a snapshot."""
    samples: dict[str, list[float]] = {STRANDLINE: [], DEBEZIUM: []}
    stage, broker = contest.stage, contest.broker
    for number in range(stage.scaled(3, 1)):
        for name, found in samples.items():
            round = contest.round()
            round.execute(_ROWS.replace("%s", "1"))
            group = f"cdc-start-{number}"
            began_s = time.monotonic()
            fresh: contextlib.AbstractContextManager[CaptureProcess] = (
                ours(broker.bootstrap, stage.root, group)
                if name == STRANDLINE
                else debezium(broker.bootstrap, stage.root / group)
            )
            with fresh as process:
                process.start(round.name, round.config())
                round.wait(1)
                found.append(time.monotonic() - began_s)
                stage.say(f"  start {number + 1} {name:10} {found[-1]:.3g} s")
            round.drop_slot()
    return [
        Figure(
            "start of the process to the first record",
            "s",
            samples[STRANDLINE],
            samples[DEBEZIUM],
            DEBEZIUM,
            ratio_at_most(0.3),
        )
    ]
