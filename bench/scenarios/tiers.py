"""Tiered topics on versitygw, an S3 server on this machine: cold reads, a bystander meanwhile, and compaction.

The peer of cold reads is obstore alone, which reads the same objects in the same blocks, as many at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from bench.brokers import STRANDLINE, Broker, BrokerFailed
from bench.client_process import ClientProcess, run_measured
from bench.figures import Figure, Samples, ratio_at_least, ratio_at_most
from bench.measure import MB
from bench.scenarios.objects import ALONE
from bench.stage import Stage
from bench.store_server import Store, metrics, running_store, started

NAME = "tiers"
SUMMARY = (
    "tiered topics on an S3 server: cold reads beside obstore alone, a bystander's p99, bytes that compaction reads"
)
PARTITIONS: Final = 4
VALUE_BYTES: Final = 1024
BLOCK_BYTES: Final = 4 << 20
BYSTANDER: Final = "bystander"
RATE_PER_S: Final = 1_000
IDLE_S: Final = 3.0
QUIET_S: Final = 4.0
"""So long without a copy or a compaction: all is compacted."""
WAIT_S: Final = 120.0
SETTINGS: Final = {
    "remote.storage.enable": "true",
    "local.retention.bytes": "1",
    "segment.bytes": str(32 << 20),
    "segment.ms": "2000",
    "file.delete.delay.ms": "0",
}
COMPACTED: Final = {
    **SETTINGS,
    "cleanup.policy": "compact",
    "segment.bytes": str(4 << 20),
    "segment.ms": "604800000",
    "min.cleanable.dirty.ratio": "0.3",
}
OFTEN: Final = {
    "remote_log_manager_task_interval_ms": "500",
    "log_retention_check_interval_ms": "500",
    "log_cleaner_backoff_ms": "500",
}


def run(stage: Stage) -> list[Figure]:
    stage.put_shared_pair_away()
    with running_store(stage) as store:
        broker, port = started(stage, STRANDLINE, store.settings("tiers", **OFTEN))
        try:
            return [*_cold_reads(stage, store, broker), *_compaction(stage, broker, port)]
        finally:
            stage.discard(broker)


def _cold_reads(stage: Stage, store: Store, broker: Broker) -> list[Figure]:
    count = stage.scaled(500_000, 40_000)
    broker.create_topic(BYSTANDER, 1)
    broker.create_topic(NAME, PARTITIONS, SETTINGS)
    run_measured(broker, [("produce", {"topic": NAME, "count": count, "value_bytes": VALUE_BYTES})])
    ends = {index: max(_local_bases(broker, index)) for index in range(PARTITIONS)}
    spread = {"topic": NAME, "partitions": PARTITIONS, "rounds": 1, "every_s": 0.5}

    def is_in_store() -> bool:
        run_measured(broker, [("spread", spread)])
        return all(min(_local_bases(broker, index)) > end for index, end in ends.items())

    _wait(is_in_store, f"{NAME} is in the store alone")
    sizes = [(store.key_of(each), each.stat().st_size) for each in store.objects("tiers") if each.suffix == ".log"]
    read = {"action": "get", "objects": sizes, "block_bytes": BLOCK_BYTES, "requests_in_flight": PARTITIONS}
    samples = Samples()
    for number in range(1 + min(stage.rounds, 5)):
        alone = store.alone(broker, **read)
        idle = _disturbed(broker, lambda: time.sleep(stage.scaled(int(IDLE_S), 1)))
        ours: dict[str, float] = {}
        busy = _disturbed(broker, partial(_consume, broker, count, ours))
        stage.say(
            f"  round {number + 1}  store alone {alone['mb_per_s']:.0f} MB/s  consumer {ours['mb_per_s']:.0f} MB/s, "
            f"{ours['ms_per_mb']:.2f} ms/MB  bystander p99 idle {idle['p99_ms']:.2f} ms, "
            f"meanwhile {busy['p99_ms']:.2f} ms"
        )
        if number:
            samples.add(ALONE, alone)
            samples.add(NAME, {**ours, "idle": idle["p99_ms"], "busy": busy["p99_ms"]})
    broker.delete_topic(NAME)
    of = samples.of
    note = f"one librdkafka consumer, 1 KiB; alone: {PARTITIONS} GETs of 4 MiB at a time"
    return [
        Figure(
            "cold read of a tiered topic",
            "MB/s",
            of(NAME, "mb_per_s"),
            of(ALONE, "mb_per_s"),
            ALONE,
            ratio_at_least(0.7),
            note,
        ),
        Figure("broker CPU per MB of a cold read, with the bystander", "ms/MB", of(NAME, "ms_per_mb")),
        Figure(
            "bystander's produce p99 during cold reads",
            "ms",
            of(NAME, "busy"),
            of(NAME, "idle"),
            "idle",
            ratio_at_most(1.5),
            f"local topic, {RATE_PER_S:,}/s by a bare socket",
        ),
    ]


def _consume(broker: Broker, count: int, measured: dict[str, float]) -> None:
    cpu_s, _, (result,) = run_measured(broker, [("consume", {"topic": NAME, "count": count})])
    size_mb = result["bytes"] / MB
    measured |= {"mb_per_s": size_mb / result["seconds"], "ms_per_mb": cpu_s * 1e3 / size_mb}


def _local_bases(broker: Broker, index: int) -> list[int]:
    folder = broker.data / f"{NAME}-{index}"
    return [int(path.stem) for path in folder.glob("*.log") if path.stem.isdecimal()]


def _wait(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        if time.monotonic() > deadline:
            raise BrokerFailed(f"not in {WAIT_S:g} s: {what}")
        time.sleep(0.2)


def _disturbed(broker: Broker, work: Callable[[], object]) -> dict[str, float]:
    """Do some work; return what a bystander felt meanwhile."""
    task = {"topic": BYSTANDER, "partitions": 1, "connections": 4, "rate_per_s": RATE_PER_S}
    with ClientProcess("paced", bootstrap=broker.bootstrap, **task) as bystander:
        bystander.wait_ready()
        bystander.tell()
        work()
        bystander.tell()
        felt = bystander.result()
    return {"p50_ms": felt["p50_ms"], "p99_ms": felt["p99_ms"]}


def _compaction(stage: Stage, broker: Broker, port: int) -> list[Figure]:
    """Fill a compacted topic that is mostly dirty; count what its compactions read by what there was."""
    topic = f"{NAME}-compacted"
    broker.create_topic(topic, 1, COMPACTED)
    records = stage.scaled(45_000, 12_000)
    task = {"topic": topic, "records": records, "keys": records // 3, "value_bytes": VALUE_BYTES, "codec": 0}
    run_measured(broker, [("keyed", {**task, "seed": 28})])
    last, since = (-1.0, -1.0), time.monotonic()

    def is_over() -> bool:
        nonlocal last, since
        found = metrics(port)
        now = (found["strandline_remote_compactions_total"], found["strandline_remote_copied_segments_total"])
        if now != last or not now[0]:
            last, since = now, time.monotonic()
        return time.monotonic() - since > QUIET_S

    _wait(is_over, f"{topic} is compacted in the store")
    found = metrics(port)
    source, read, written = (
        [found[f"strandline_remote_compaction_{each}_bytes_total"] / MB] for each in ("source", "read", "written")
    )
    stage.say(f"  {last[0]:g} compactions of {source[0]:.1f} MB read {read[0]:.1f} MB")
    broker.delete_topic(topic)
    note = f"{last[0]:g} compactions, {records:,} records of 1 KiB, {records // 3:,} keys"
    return [
        Figure("read by compactions of a tiered topic", "MB", read, source, "in the store", ratio_at_most(2.0), note),
        Figure("written by compactions of a tiered topic", "MB", written, source, "in the store"),
    ]
