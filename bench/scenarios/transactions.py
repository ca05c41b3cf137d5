"""Produce in transactions of 100 ms: what it costs against our own idempotent produce, and beside Kafka.

As much as librdkafka takes shows what transactions lose. A steady load, the same for both brokers, shows how long a
commit takes and what a transaction costs. Transactions of one record by bare sockets, which speak transactions v2 as
the newest clients do, show the coordinator alone.

Strandline has every decision on its disk before it is told, and Kafka has not. So the steady load is measured in both
ways: beside Kafka with the disk left to the operating system (`flush.mode=async` of `__transaction_state`), and as it
is by default. All the rest is by default.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from bench.brokers import KAFKA, STRANDLINE, Broker
from bench.client_process import run_measured
from bench.figures import Figure, Samples, ratio_at_least, ratio_at_most
from bench.measure import MB
from bench.stage import Stage, beside_kafka
from strandline.coordinators.partitioning import TRANSACTION_STATE_TOPIC

NAME = "transactions"
SUMMARY = "transactions of 100 ms: MB/s against idempotent produce, p99 and CPU of a transaction"
PARTITIONS = 4
TRANSACTION_MS = 100
KEPT_MIN = 0.9
"""What must be left of the throughput of idempotent produce."""
SMALL_CONNECTIONS = 8
SIZES = {"1 KiB": 1024, "100 B": 100}
STEADY = {"1 KiB": 500, "100 B": 2_000}
"""Records of a transaction of the steady load: 5 and 2 MB/s, which leave both brokers time to breathe."""
RECORDS = {"1 KiB": (500_000, 10_000), "100 B": (2_000_000, 50_000)}
"""A second or two: the first transaction of a client costs more than the others."""
FLUSHED = "decision on disk"


def run(stage: Stage) -> list[Figure]:
    brokers = stage.shared_pair()
    for broker in brokers:
        broker.create_topic(NAME, PARTITIONS)
    rounds: dict[str, int] = {}

    def work(broker: Broker) -> dict[str, float]:
        rounds[broker.name] = rounds.get(broker.name, 0) + 1
        measured: dict[str, float] = {}
        for size in SIZES:
            measured |= _sized(stage, broker, size, rounds[broker.name])
        return measured | _small(stage, broker, rounds[broker.name])

    samples = stage.take_turns(brokers, work)
    for broker in brokers:
        broker.delete_topic(NAME)
    return [figure for size in SIZES for figure in _sized_figures(samples, size)] + _small_figures(samples)


def _sized(stage: Stage, broker: Broker, size: str, number: int) -> dict[str, float]:
    count = stage.scaled(*RECORDS[size])
    load = {"topic": NAME, "value_bytes": SIZES[size], "transaction_ms": TRANSACTION_MS}
    plain_cpu_s, _, (plain,) = run_measured(broker, [("transactions", load | {"count": count})])
    flat_out = load | {"transactional_id": f"{NAME}-{size}-flat-{number}", "count": count}
    fast_cpu_s, _, (fast,) = run_measured(broker, [("transactions", flat_out)])
    steady = load | {
        "transactional_id": f"{NAME}-{size}-steady-{number}",
        "count": stage.scaled(100, 10) * STEADY[size],
        "per_transaction": STEADY[size],
    }
    measured: dict[str, float] = {}
    if broker.name == STRANDLINE:
        measured = {f"{FLUSHED}, {metric}": value for metric, value in _steady(broker, size, steady).items()}
        _set_flush_mode(broker, "async")
    measured |= _steady(broker, size, steady)
    if broker.name == STRANDLINE:
        _set_flush_mode(broker, "ack")
    return measured | {
        f"idempotent mb_per_s, {size}": plain["bytes"] / MB / plain["seconds"],
        f"idempotent ms_per_mb, {size}": plain_cpu_s * 1e3 / (plain["bytes"] / MB),
        f"mb_per_s, {size}": fast["bytes"] / MB / fast["seconds"],
        f"ms_per_mb, {size}": fast_cpu_s * 1e3 / (fast["bytes"] / MB),
    }


def _steady(broker: Broker, size: str, task: dict[str, Any]) -> dict[str, float]:
    cpu_s, _, (calm,) = run_measured(broker, [("transactions", task)])
    return {
        f"p50_ms, {size}": calm["p50_ms"],
        f"p99_ms, {size}": calm["p99_ms"],
        f"cpu_ms, {size}": cpu_s * 1e3 / calm["transactions"],
    }


def _set_flush_mode(broker: Broker, mode: str) -> None:
    entry = ConfigEntry("flush.mode", mode, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, TRANSACTION_STATE_TOPIC, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (done,) = admin.incremental_alter_configs([resource]).values()
    done.result(30)


def _small(stage: Stage, broker: Broker, number: int) -> dict[str, float]:
    task = {
        "topic": NAME,
        "partitions": PARTITIONS,
        "connections": SMALL_CONNECTIONS,
        "count": stage.scaled(8_000, 400),
        "prefix": f"{NAME}-small-{number}",
    }
    cpu_s, _, (result,) = run_measured(broker, [("transactions_raw", task)])
    return {
        "small us": cpu_s * 1e6 / result["transactions"],
        "small p50_ms": result["p50_ms"],
        "small p99_ms": result["p99_ms"],
        "small per_s": result["transactions"] / result["seconds"],
    }


def _sized_figures(samples: Samples, size: str) -> list[Figure]:
    note = f"librdkafka, {TRANSACTION_MS} ms"
    steady = f"{note}, {STEADY[size]} records each"
    against = [
        Figure(
            f"{what} in transactions, {size}",
            unit,
            samples.of(STRANDLINE, f"{metric}, {size}"),
            samples.of(STRANDLINE, f"idempotent {metric}, {size}"),
            beside_name="idempotent",
            target=target,
            note=note,
        )
        for what, metric, unit, target in (
            ("produced", "mb_per_s", "MB/s", ratio_at_least(KEPT_MIN)),
            ("CPU per MB", "ms_per_mb", "ms/MB", None),
        )
    ]
    return [
        *against,
        beside_kafka(samples, f"mb_per_s, {size}", f"produced in transactions, {size}", "MB/s", None, note),
        beside_kafka(samples, f"ms_per_mb, {size}", f"CPU per MB in transactions, {size}", "ms/MB", None, note),
        beside_kafka(samples, f"p50_ms, {size}", f"p50 of a commit, {size}", "ms", None, steady),
        beside_kafka(samples, f"p99_ms, {size}", f"p99 of a commit, {size}", "ms", ratio_at_most(1.0), steady),
        beside_kafka(samples, f"cpu_ms, {size}", f"CPU per transaction, {size}", "ms", ratio_at_most(1.0), steady),
        *(
            Figure(
                f"{what}, {size}, {FLUSHED}",
                "ms",
                samples.of(STRANDLINE, f"{FLUSHED}, {metric}, {size}"),
                samples.of(KAFKA, f"{metric}, {size}"),
                note=steady,
            )
            for what, metric in (
                ("p50 of a commit", "p50_ms"),
                ("p99 of a commit", "p99_ms"),
                ("CPU per transaction", "cpu_ms"),
            )
        ),
    ]


def _small_figures(samples: Samples) -> list[Figure]:
    note = f"bare sockets, v2, {SMALL_CONNECTIONS} ids"
    return [
        beside_kafka(samples, "small us", "CPU per transaction of one record", "us", ratio_at_most(1.0), note),
        beside_kafka(samples, "small p50_ms", "p50 of a transaction of one record", "ms", None, note),
        beside_kafka(samples, "small p99_ms", "p99 of a transaction of one record", "ms", ratio_at_most(1.0), note),
        beside_kafka(samples, "small per_s", "transactions of one record", "1/s", None, note),
    ]
