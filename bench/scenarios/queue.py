"""Tasks through a share group, beside RabbitMQ's quorum queue and beside Kafka's own share group.

The clients are in Java on all sides: a JVM per broker with all workers as threads, each with a connection of its own,
and one producer. Tasks are produced while the workers work. Each task is acknowledged by itself, and counts when the
broker has answered its acknowledgement. RabbitMQ answers none, so that its last one is followed by a request that it
does answer. The time goes from the first task acquired to the last one acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

from bench.brokers import KAFKA, STRANDLINE, Broker
from bench.figures import Figure, Samples, at_most, ratio_at_least, ratio_at_most
from bench.kafka_jars import KafkaUnavailable
from bench.queue_client import AMQP, SHARE, QueueClient, QueueServer
from bench.rabbitmq import RABBITMQ, RabbitUnavailable, start_rabbitmq
from bench.scenarios.end_to_end import under_way
from bench.scenarios.fetch_1k import fetched
from bench.scenarios.produce_1k import produced
from bench.stage import ASYNC_FLUSH, Stage

NAME = "queue"
SUMMARY = "tasks through a share group beside RabbitMQ and Kafka: tasks/s, CPU; poison, memory, plain consumers"
SIZES = {100: "100 B", 1024: "1 KiB"}
WORKERS = (1, 10, 50)
PARTITIONS = 4
PREFETCH = 100
RATE_PER_S = 1_000
LOCK_MS = 2_000
"""Shorter than the default, so that a poison task is done with in some seconds."""
HELD = 100_000
LOCKS = 2_000
"""Records that a partition lets its group hold."""
BESIDE_RATE_PER_S = 10_000
SHORT_LOCKS = {"group.share.min.record.lock.duration.ms": "1000"}
RABBITMQ_NOTE, KAFKA_NOTE = "flush.mode=ack; quorum queue, confirms", "flush.mode=async"
ALONE, BESIDE = "alone", "beside a share group"


def run(stage: Stage) -> list[Figure]:
    stage.put_shared_pair_away()
    figures = []
    try:
        with beside_rabbitmq(stage) as servers:
            if servers:
                figures += _contest(stage, servers, RABBITMQ, 2.0, RABBITMQ_NOTE)
        with beside_kafka(stage) as brokers:
            figures += _contest(stage, brokers, KAFKA, 1.0, KAFKA_NOTE) + _poison(stage, brokers)
        return figures + _others(stage)
    except KafkaUnavailable as reason:
        stage.remarks.append(f"{NAME}: no Java clients: {reason}")
        return []


@contextmanager
def beside_rabbitmq(stage: Stage) -> Iterator[list[QueueServer]]:
    """Start a node that flushes before every ack, and RabbitMQ. Nothing is started where RabbitMQ is missing."""
    with ExitStack() as stack:
        try:
            rabbit = start_rabbitmq(stage.root / RABBITMQ)
        except RabbitUnavailable as reason:
            stage.remarks.append(f"{stage.scenario}, skipped beside RabbitMQ: {reason}")
            yield []
            return
        stack.callback(rabbit.discard)
        stage.commands.setdefault(RABBITMQ, " ".join(rabbit.command))
        yield [stack.enter_context(started(stage, STRANDLINE, {"flush.mode": "ack"})), rabbit]


@contextmanager
def beside_kafka(stage: Stage) -> Iterator[list[Broker]]:
    names = [STRANDLINE, *([KAFKA] if stage.with_kafka else [])]
    with ExitStack() as stack:
        yield [stack.enter_context(started(stage, name, ASYNC_FLUSH)) for name in names]


@contextmanager
def started(stage: Stage, name: str, settings: Mapping[str, str]) -> Iterator[Broker]:
    broker = stage.start(name, settings=settings, both=SHORT_LOCKS)
    try:
        yield broker
    finally:
        stage.discard(broker)


@contextmanager
def clients(stage: Stage, servers: Sequence[QueueServer], part: str) -> Iterator[dict[str, QueueClient]]:
    with ExitStack() as stack:
        yield {
            server.name: stack.enter_context(
                QueueClient(
                    AMQP if server.name == RABBITMQ else SHARE,
                    server.bootstrap,
                    stage.root / f"{part}-clients-{server.name}",
                )
            )
            for server in servers
        }


def _contest(stage: Stage, servers: Sequence[QueueServer], other: str, target: float, note: str) -> list[Figure]:
    """Measure the same tasks on both servers in turn; `target` is for the tasks a second."""
    figures = []
    with clients(stage, servers, other) as by_name:
        for workers in WORKERS:
            samples = _flat_out(stage, servers, by_name, workers)
            for words in SIZES.values():
                what = f"{words}, {workers} worker{'s' if workers > 1 else ''}"
                rows = (("per_s", "tasks", "1/s", ratio_at_least(target)), ("us", "CPU", "us", ratio_at_most(0.5)))
                for metric, name, unit, bound in rows:
                    ours, theirs = (samples.of(server, f"{metric}, {words}") for server in (STRANDLINE, other))
                    title = f"tasks, {what}" if name == "tasks" else f"broker CPU per task, {what}"
                    figures.append(Figure(title, unit, ours, theirs, other, bound, note))
    return figures


def _flat_out(
    stage: Stage, servers: Sequence[QueueServer], by_name: Mapping[str, QueueClient], workers: int
) -> Samples:
    count = stage.scaled(100_000, 4_000)
    for client in by_name.values():
        client.open(f"{NAME}-{workers}", workers=workers, prefetch=PREFETCH, partitions=PARTITIONS)

    def work(server: QueueServer) -> dict[str, float]:
        measured = {}
        for size_bytes, words in SIZES.items():
            cpu_s = server.cpu_seconds()
            result = by_name[server.name].run(count=count, size_bytes=size_bytes)
            measured[f"us, {words}"] = (server.cpu_seconds() - cpu_s) * 1e6 / count
            measured[f"per_s, {words}"] = count / result["seconds"]
        return measured

    stage.say(f"  {workers} of each")
    samples = stage.take_turns(servers, work)
    for client in by_name.values():
        client.close()
    return samples


def _poison(stage: Stage, brokers: Sequence[Broker]) -> list[Figure]:
    """One task hangs each worker that gets it until its lock is lost, with all that the worker holds behind it."""
    count = stage.scaled(100_000, 5_000)
    with clients(stage, brokers, "poison") as by_name:

        def work(broker: Broker) -> dict[str, float]:
            client = by_name[broker.name]
            client.open(f"{NAME}-poison", workers=10, prefetch=PREFETCH, partitions=PARTITIONS, lock_ms=LOCK_MS)
            result = client.run(count=count, size_bytes=100, poison=count // 2, lock_ms=LOCK_MS)
            client.close()
            return {metric: result[metric] for metric in ("held_up_twice", "held_up_locks", "again")}

        samples = stage.take_turns(brokers, work, rounds=stage.scaled(3, 1), warm_rounds=0)
    note = f"{count:,} tasks, 10 workers, locks of {LOCK_MS // 1_000} s; the poison task hangs its worker for a lock"
    rows = (
        ("held_up_twice", "tasks that one poison task delays by more than one lock", "tasks", at_most(0)),
        ("held_up_locks", "longest delay of another task by a poison one", "locks", None),
        ("again", "deliveries again because of a poison task", "tasks", None),
    )
    return [
        Figure(name, unit, samples.of(STRANDLINE, metric), samples.of(KAFKA, metric), KAFKA, target, note)
        for metric, name, unit, target in rows
    ]


def _others(stage: Stage) -> list[Figure]:
    with started(stage, STRANDLINE, ASYNC_FLUSH) as broker, clients(stage, [broker], "alone") as by_name:
        client = by_name[STRANDLINE]
        return [_memory(stage, broker, client), *_plain_consumers(stage, broker, client)]


def _memory(stage: Stage, broker: Broker, client: QueueClient) -> Figure:
    """Measure what the broker's memory grows by while workers hold tasks, after as many went through."""
    count = stage.scaled(HELD, 5 * LOCKS)
    client.open(f"{NAME}-held", workers=count // LOCKS, prefetch=LOCKS, partitions=count // LOCKS)
    # Twice as many, because the producer does not spread them evenly.
    client.run(count=2 * count, size_bytes=100)
    before_mb = broker.resident_mb()
    held = client.hold(count=2 * count, size_bytes=100, held_min=LOCKS // 2)
    growth_mb = broker.resident_mb() - before_mb
    client.release()
    client.close()
    note = f"{held:,} held at a time, {count // LOCKS} workers"
    name = f"memory growth (RSS) with {count:,} acquired records"
    return Figure(name, "MB", [growth_mb], target=at_most(50), note=note)


def _plain_consumers(stage: Stage, broker: Broker, client: QueueClient) -> list[Figure]:
    """Measure what plain consumers pay for a share group on the same broker: while it waits, and while it works."""
    count, seconds = stage.scaled(100_000, 5_000), stage.scaled(8, 2)
    topic, timed = f"{NAME}-plain", f"{NAME}-timed"
    for each in (topic, timed):
        broker.create_topic(each, PARTITIONS)
    produced(broker, topic=topic, count=count, value_bytes=1024)
    samples = Samples()
    for number in range(stage.warm_rounds + stage.rounds):
        for kind in (ALONE, BESIDE) if number % 2 else (BESIDE, ALONE):
            if kind == BESIDE:
                client.open(f"{NAME}-beside", workers=10, prefetch=PREFETCH, partitions=PARTITIONS, wait_ms=500)
            measured = {"ms_per_mb": fetched(broker, topic=topic, count=count)["ms_per_mb"]}
            measured |= _timed(broker, client, timed, seconds, beside=kind == BESIDE)
            if kind == BESIDE:
                client.close()
            stage.say(f"  round {number + 1} {kind:20} " + "  ".join(f"{k} {v:.4g}" for k, v in measured.items()))
            if number >= stage.warm_rounds:
                samples.add(kind, measured)
    for each in (topic, timed):
        broker.delete_topic(each)
    waits, works = "10 workers wait for tasks", f"10 workers, {RATE_PER_S:,} tasks/s, all on the same cores"
    rows = (
        ("ms_per_mb", "CPU per MB of a plain consumer beside a share group", "ms/MB", ratio_at_most(1.05), waits),
        ("p50_ms", "produce to plain consume beside a share group, p50", "ms", ratio_at_most(1.05), works),
        ("p99_ms", "produce to plain consume beside a share group, p99", "ms", None, works),
    )
    return [
        Figure(name, unit, samples.of(BESIDE, metric), samples.of(ALONE, metric), ALONE, target, note)
        for metric, name, unit, target, note in rows
    ]


def _timed(broker: Broker, client: QueueClient, topic: str, seconds: int, *, beside: bool) -> dict[str, float]:
    """Time plain records. The tasks go on for longer, so that all of these have them beside."""
    tasks = {"count": (seconds + 2) * RATE_PER_S, "size_bytes": 100, "rate": RATE_PER_S}
    with ThreadPoolExecutor(1) as beside_it:
        work = beside_it.submit(client.run, **tasks) if beside else None
        measured = under_way(broker, topic, topic, seconds=seconds, skip_s=1, rate_per_s=BESIDE_RATE_PER_S)
        if work is not None:
            work.result()
    return {metric: measured[metric] for metric in ("p50_ms", "p99_ms")}
