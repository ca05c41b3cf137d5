"""Connectors beside Kafka Connect, on the same broker: lines of a file to a topic and back, start and memory.

Both workers have plain strings and one task. Kafka Connect has the JVM's own default heap, and does not write exactly
once (its default); ours does.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from bench import measure
from bench.brokers import STRANDLINE, Broker
from bench.connect_workers import ConnectProcess, kafka_worker, our_worker
from bench.figures import Figure, Samples, ratio_at_least, ratio_at_most
from bench.kafka_jars import KafkaUnavailable
from bench.stage import Stage

NAME = "connect"
SUMMARY = "lines of a file to a topic and back beside Kafka Connect: records per CPU-second, start, memory"
KAFKA_CONNECT = "kafka connect"
SIZES = {"100 B": (100, 2_000_000), "1 KiB": (1024, 300_000)}
WAIT_S = 300.0
_STRINGS = "org.apache.kafka.connect.storage.StringConverter"
_NOTE = "plain strings, one task; Kafka Connect at least once, ours exactly once"


def run(stage: Stage) -> list[Figure]:
    stage.put_shared_pair_away()
    broker = stage.start(STRANDLINE, settings={"group.initial.rebalance.delay.ms": "0"})
    try:
        return [*_transfers(stage, broker), *_starts(stage, broker)]
    except KafkaUnavailable as reason:
        stage.remarks.append(f"{NAME}: no Kafka Connect: {reason}")
        return []
    finally:
        stage.discard(broker)


def _transfers(stage: Stage, broker: Broker) -> list[Figure]:
    samples: dict[str, Samples] = {}
    figures = []
    with (
        our_worker(broker.bootstrap, stage.root, {"group.id": "ours", **_topics("ours")}) as ours,
        kafka_worker(broker.bootstrap, stage.root / "kafka-connect", exactly_once=False, heap="-Xmx1g") as kafkas,
    ):
        for label, (size, full) in SIZES.items():
            count = stage.scaled(full, 20_000)
            lines = stage.root / f"lines-{size}.txt"
            lines.write_bytes(b"".join(b"%0*d\n" % (size - 1, each) for each in range(count)))
            taken = stage.take_turns(
                [ours, kafkas],
                lambda worker: _round(stage, broker, worker, lines, count, size),  # noqa: B023
                warm_rounds=stage.scaled(2, 0),
            )
            samples[label] = taken
            for metric, what in (("in", "file to topic"), ("out", "topic to file")):
                figures.append(
                    Figure(
                        f"{what}, {label}",
                        "records per CPU-second",
                        taken.of(STRANDLINE, metric),
                        taken.of(KAFKA_CONNECT, metric),
                        KAFKA_CONNECT,
                        ratio_at_least(1.0),
                        _NOTE,
                    )
                )
        for metric, label in (("in_s", "file to topic"), ("out_s", "topic to file")):
            taken = samples["100 B"]
            figures.append(
                Figure(
                    f"{label}, 100 B, wall time",
                    "s",
                    taken.of(STRANDLINE, metric),
                    taken.of(KAFKA_CONNECT, metric),
                    KAFKA_CONNECT,
                    None,
                    _NOTE,
                )
            )
        memory = [measure.resident_mb(each.pid) for each in (ours, kafkas)]
    figures.append(
        Figure("memory after that", "MB", memory[:1], memory[1:], KAFKA_CONNECT, ratio_at_most(0.3), "resident; -Xmx1g")
    )
    return figures


def _round(
    stage: Stage, broker: Broker, worker: ConnectProcess, lines: Path, count: int, size: int
) -> dict[str, float]:
    name = f"{worker.name.split()[0]}-{time.monotonic_ns()}"
    broker.create_topic(name, 1)
    target = stage.root / f"{name}.txt"
    source = {"connector.class": "FileStreamSource", "file": str(lines), "topic": name, "batch.size": "2000"}
    sink = {"connector.class": "FileStreamSink", "file": str(target), "topics": name}
    result = {}
    for metric, config in (("in", source), ("out", sink)):
        converters = {"key.converter": _STRINGS, "value.converter": _STRINGS, "tasks.max": "1"}
        cpu_s, began_s = measure.cpu_seconds(worker.pid), time.monotonic()
        worker.create(f"{name}-{metric}", config | converters)
        if metric == "in":
            _wait_for_topic(broker, name, count)
        else:
            _wait_for_file(target, count * size)
        result[metric] = count / (measure.cpu_seconds(worker.pid) - cpu_s)
        result[f"{metric}_s"] = time.monotonic() - began_s
        worker.ask("DELETE", f"/connectors/{name}-{metric}")
        time.sleep(1)
    with contextlib.suppress(FileNotFoundError):
        target.unlink()
    return result


def _starts(stage: Stage, broker: Broker) -> list[Figure]:
    """From the start of the process to the first record of a connector that is configured already."""
    lines = stage.root / "one-line.txt"
    lines.write_text("first\n")
    samples: dict[str, list[float]] = {STRANDLINE: [], KAFKA_CONNECT: []}
    for number in range(stage.scaled(3, 1)):
        for name, found in samples.items():
            topic = f"start-{name.split()[0]}-{number}"
            broker.create_topic(topic, 1)
            began_s = time.monotonic()
            with _fresh(stage, broker, name, topic) as worker:
                worker.create(
                    topic,
                    {
                        "connector.class": "FileStreamSource",
                        "file": str(lines),
                        "topic": topic,
                        "value.converter": _STRINGS,
                    },
                )
                _wait_for_topic(broker, topic, 1)
                found.append(time.monotonic() - began_s)
    return [
        Figure(
            "start of the process to the first record",
            "s",
            samples[STRANDLINE],
            samples[KAFKA_CONNECT],
            KAFKA_CONNECT,
            ratio_at_most(0.3),
            "the connector is made as soon as REST answers",
        )
    ]


@contextlib.contextmanager
def _fresh(stage: Stage, broker: Broker, name: str, group: str) -> Iterator[ConnectProcess]:
    if name == STRANDLINE:
        with our_worker(broker.bootstrap, stage.root, {"group.id": group, **_topics(group)}) as worker:
            yield worker
    else:
        with kafka_worker(broker.bootstrap, stage.root / group, exactly_once=False, group=group) as worker:
            yield worker


def _topics(group: str) -> dict[str, str]:
    return {f"{each}.storage.topic": f"{group}-{each}" for each in ("config", "offset", "status")}


def _wait_for_topic(broker: Broker, topic: str, count: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "end", "isolation.level": "read_committed"})
    place = TopicPartition(topic, 0)
    until = time.monotonic() + WAIT_S
    try:
        # Markers of transactions count, too: there are few, and the last record comes before the last one.
        while consumer.get_watermark_offsets(place, timeout=10)[1] < count:
            assert time.monotonic() < until, f"{topic} did not get {count} records"
            time.sleep(0.02)
    finally:
        consumer.close()


def _wait_for_file(target: Path, size_bytes: int) -> None:
    until = time.monotonic() + WAIT_S
    while not target.exists() or target.stat().st_size < size_bytes:
        assert time.monotonic() < until, f"{target} did not get {size_bytes} bytes"
        time.sleep(0.02)
