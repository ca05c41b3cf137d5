"""Tiered topics on versitygw, an S3 server on this machine: cold reads, a bystander meanwhile, and compaction.

The peer of cold reads is obstore alone, which reads the same objects in the same blocks, as many at a time. There is
four times as much to read as the broker's cache holds. A bystander produces beside both, so that what the machine does
to it can be told from what the broker does.
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
FETCH_BYTES: Final = 1 << 20
"""What clients ask of a partition by default."""
BYSTANDER: Final = "bystander"
RATE_PER_S: Final = 1_000
BYSTANDER_NOTE: Final = f"local topic, {RATE_PER_S:,}/s by bare sockets"
READERS: Final = (1, PARTITIONS)
"""Readers at a time, and GETs of obstore at a time."""
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
    broker.create_topic(BYSTANDER, 1)
    ends = _fill(stage, broker)
    sizes = [(store.key_of(each), each.stat().st_size) for each in store.objects("tiers") if each.suffix == ".log"]
    passes = stage.scaled(4, 1)
    alone = {"action": "get", "objects": sizes * passes, "block_bytes": BLOCK_BYTES}
    samples = Samples()
    for number in range(1 + min(stage.rounds, 5)):
        idle = _disturbed(broker, lambda: time.sleep(stage.scaled(int(IDLE_S), 1)))
        measured = {"idle p99_ms": idle["p99_ms"]}
        for readers in READERS:
            theirs: dict[str, float] = {}
            read_alone = partial(_read_alone, store, broker, {**alone, "requests_in_flight": readers}, theirs)
            measured[f"beside alone, {readers}"] = _disturbed(broker, read_alone)["p99_ms"]
            task = {"topic": NAME, "ends": ends, "readers": readers, "passes": passes, "fetch_bytes": FETCH_BYTES}
            ours: dict[str, float] = {}
            ours |= {"p99_ms": _disturbed(broker, partial(_read, broker, "fetch_raw", task, ours))["p99_ms"]}
            measured |= {f"{key}, {readers}": each for key, each in ours.items()}
            measured[f"alone, {readers}"] = theirs["mb_per_s"]
        plain: dict[str, float] = {}
        _read(broker, "consume", {"topic": NAME, "count": sum(ends)}, plain)
        measured["consumer"] = plain["mb_per_s"]
        stage.say(f"  round {number + 1}  " + "  ".join(f"{key} {each:.4g}" for key, each in measured.items()))
        if number:
            samples.add(NAME, measured)
    broker.delete_topic(NAME)
    of = partial(samples.of, NAME)
    figures = []
    for readers in READERS:
        words = f"{readers} reader{'s' * (readers > 1)}"
        note = f"bare sockets, a Fetch of 1 MiB each; alone: {readers} GET of 4 MiB at a time"
        rates = of(f"mb_per_s, {readers}"), of(f"alone, {readers}")
        felt = of(f"p99_ms, {readers}")
        beside = f"bystander's produce p99, {words}"
        figures += [
            Figure(f"cold read of a tiered topic, {words}", "MB/s", *rates, ALONE, ratio_at_least(0.7), note),
            Figure(f"broker CPU per MB of a cold read, {words}", "ms/MB", of(f"ms_per_mb, {readers}")),
            Figure(beside, "ms", felt, of("idle p99_ms"), "idle", ratio_at_most(1.5), BYSTANDER_NOTE),
            Figure(
                f"{beside}, by the machine", "ms", felt, of(f"beside alone, {readers}"), f"beside {ALONE}", None, note
            ),
        ]
    return [*figures, Figure("cold read by one librdkafka consumer, 1 KiB", "MB/s", of("consumer"))]


def _fill(stage: Stage, broker: Broker) -> list[int]:
    """Fill the topic, and return up to which offsets its partitions are in the store alone."""
    broker.create_topic(NAME, PARTITIONS, SETTINGS)
    count = stage.scaled(260_000, 40_000)
    run_measured(broker, [("produce", {"topic": NAME, "count": count, "value_bytes": VALUE_BYTES})])
    spread = {"topic": NAME, "partitions": PARTITIONS, "rounds": 1, "every_s": 0.5}

    def starts() -> list[int]:
        return [min(_local_bases(broker, index)) for index in range(PARTITIONS)]

    def is_in_store() -> bool:
        # A record more in each, because a segment is sealed by age when the next record comes.
        run_measured(broker, [("spread", spread)])
        return sum(starts()) >= count

    _wait(is_in_store, f"{NAME} is in the store alone")
    return starts()


def _read(broker: Broker, client: str, task: dict[str, object], measured: dict[str, float]) -> None:
    cpu_s, _, (result,) = run_measured(broker, [(client, task)])
    size_mb = result["bytes"] / MB
    measured |= {"mb_per_s": size_mb / result["seconds"], "ms_per_mb": cpu_s * 1e3 / size_mb}


def _read_alone(store: Store, broker: Broker, task: dict[str, object], measured: dict[str, float]) -> None:
    measured |= store.alone(broker, **task)


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
