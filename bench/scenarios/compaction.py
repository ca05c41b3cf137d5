"""Compaction of 1 GB with a million keys: how long from the request to the swap, and what a producer feels meanwhile.

Both brokers are sent the same batches. Cleaning waits, held off by a dirty ratio of 1, until the topic's settings ask
for it; then the log is watched until the cleaner has written down that it is done. What the two cleaners left is read
from their files and compared record by record. A bystander produces 1,000 records a second to another topic, first
while nothing else happens, then through the cleaning.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Final, NamedTuple

from bench.asking import Question
from bench.brokers import KAFKA, STRANDLINE, Broker
from bench.client_process import ClientProcess, run_measured
from bench.clients.keyed import FIRST_MS, produce
from bench.figures import Figure, Samples, ratio_at_most
from bench.measure import MB, median
from bench.stage import Stage, beside_kafka
from bench.wire import ServerRefused
from strandline.codec.columns import Compression, Record, columns_of, encode_batch
from strandline.codec.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

NAME = "compaction"
SUMMARY = "compaction of 1 GB with 1 M keys, 100 B and 1 KiB, none and lz4; a producer's p99 during it"
BYSTANDER = "bystander"
RATE_PER_S = 1_000
KEYS = 1_000_000
IDLE_S = 10.0
CLEANING_MAX_S = 600.0
ALTER_VERSION, TOPIC_RESOURCE, SET = 1, 2, 0
EAGER = {"log.cleaner.backoff.ms": "100"}
"""How long a cleaner that found nothing sleeps: 15 s by default, which would drown what is measured."""
ROLL_MS = 3_600_000
"""Records roll a segment by their own times, and the last one says that it is days later. No setting has to change for
it, which takes effect when it likes: all records have the same offsets on both sides."""
HELD_OFF = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "1.0",
    "segment.bytes": str(256 * 1024 * 1024),
    "segment.ms": str(ROLL_MS),
}


class Case(NamedTuple):
    value_bytes: int
    codec: Compression

    @property
    def label(self) -> str:
        return f"{self.value_bytes:,} B, {self.codec.name.lower()}"


CASES: Final = [Case(size, codec) for size in (100, 1024) for codec in (Compression.NONE, Compression.LZ4)]


def run(stage: Stage) -> list[Figure]:
    size_bytes = stage.scaled(1_000 * MB, 20 * MB)
    keys = stage.scaled(KEYS, 20_000)
    figures: list[Figure] = []
    with stage.fresh_pair(both=EAGER, warm=True) as brokers:
        for broker in brokers:
            broker.create_topic(BYSTANDER, 1)
        for case in CASES:
            rounds = Rounds(stage, brokers, case, records=size_bytes // (case.value_bytes + 20), keys=keys)
            figures += rounds.figures()
    return figures


class Rounds:
    """One case on both brokers, turn by turn; a round's outcomes are compared when both have had their turn."""

    def __init__(self, stage: Stage, brokers: list[Broker], case: Case, *, records: int, keys: int) -> None:
        self.stage, self.brokers, self.case = stage, brokers, case
        self.records, self.keys = records, keys
        self.number = 0
        self.compared = self.differing = 0

    def figures(self) -> list[Figure]:
        samples = Samples()
        warm = 1
        for number in range(warm + self.stage.scaled(min(self.stage.rounds, 3), 1)):
            self.number += 1
            for broker in self.brokers:
                measured = self._clean(broker)
                words = "  ".join(f"{metric} {value:.4g}" for metric, value in measured.items())
                self.stage.say(
                    f"  {self.case.label}, {'warm' if number < warm else 'round'} {number}, {broker.name}: {words}"
                )
                if number >= warm:
                    samples.add(broker.name, measured)
            self._compare()
            for broker in self.brokers:
                broker.delete_topic(self._topic)
        return self._report(samples)

    @property
    def _topic(self) -> str:
        return f"{NAME}-{self.case.value_bytes}-{self.case.codec.name.lower()}-{self.number}"

    def _clean(self, broker: Broker) -> dict[str, float]:
        broker.create_topic(self._topic, 1, HELD_OFF)
        task = {
            "topic": self._topic,
            "records": self.records,
            "keys": self.keys,
            "value_bytes": self.case.value_bytes,
            "codec": int(self.case.codec),
            "seed": self.number,
        }
        _, _, (sent,) = run_measured(broker, [("keyed", task)])
        self._roll(broker)
        directory = broker.data / f"{self._topic}-0"
        before_bytes = log_bytes(directory)
        bystander = ClientProcess(
            "paced", bootstrap=broker.bootstrap, topic=BYSTANDER, partitions=1, connections=4, rate_per_s=RATE_PER_S
        )
        with bystander:
            bystander.wait_ready()
            bystander.tell()
            time.sleep(self.stage.scaled(int(IDLE_S), 1))
            bystander.tell()
            idle = bystander.result()
        bystander = ClientProcess(
            "paced", bootstrap=broker.bootstrap, topic=BYSTANDER, partitions=1, connections=4, rate_per_s=RATE_PER_S
        )
        with bystander:
            bystander.wait_ready()
            bystander.tell()
            cpu, began = broker.cpu_seconds(), time.perf_counter()
            alter(broker, self._topic, {"min.cleanable.dirty.ratio": "0.01"})
            wait_until_clean(broker, self._topic, sent["records"])
            seconds, cpu = time.perf_counter() - began, broker.cpu_seconds() - cpu
            bystander.tell()
            felt = bystander.result()
        return {
            "wall_s": seconds,
            "cpu_s": cpu,
            "before_mb": before_bytes / MB,
            "after_mb": log_bytes(directory) / MB,
            "idle_p99_ms": idle["p99_ms"],
            "p99_ms": felt["p99_ms"],
            "max_ms": felt["max_ms"],
        }

    def _roll(self, broker: Broker) -> None:
        """Let the segment that was written last be one of those that may be cleaned."""
        last = encode_batch([Record(timestamp_ms=FIRST_MS + 100 * ROLL_MS, key=b"last", value=b"last")])
        with broker.connect() as connection:
            produce(connection, self._topic, last)

    def _compare(self) -> None:
        """Every record that one of the cleaners left: its offset, time, key, value and headers."""
        if len(self.brokers) < 2:
            return
        ours, theirs = (records_in(broker.data / f"{self._topic}-0") for broker in self.brokers)
        for one, other in zip_longest(ours, theirs):
            self.compared += 1
            self.differing += one != other
            if one != other and self.differing == 1:
                self.stage.remarks.append(f"{NAME}, {self.case.label}: {one} here, {other} there")

    def _report(self, samples: Samples) -> list[Figure]:
        label = self.case.label
        note = f"{self.compared:,} records compared, {self.differing:,} differ" if self.compared else "not compared"
        own_idle, own_felt = samples.of(STRANDLINE, "idle_p99_ms"), samples.of(STRANDLINE, "p99_ms")
        kafka = Figure("", "ms", samples.of(KAFKA, "p99_ms"), samples.of(KAFKA, "idle_p99_ms"))
        beside = f"kafka: {kafka.ratio:.2f}x" if kafka.samples else ""
        before_mb, after_mb = (median(samples.of(STRANDLINE, metric)) for metric in ("before_mb", "after_mb"))
        size = f"{before_mb:,.0f} MB to {after_mb:,.0f}"
        return [
            beside_kafka(samples, "wall_s", f"compaction, {label}", "s", ratio_at_most(1.5), f"{size}; {note}"),
            beside_kafka(
                samples, "cpu_s", f"CPU of it, {label}", "s", None, "with the worker and the bystander's requests"
            ),
            Figure(f"produce p99 during it, {label}", "ms", own_felt, own_idle, "idle", ratio_at_most(1.5), beside),
            beside_kafka(samples, "max_ms", f"slowest produce during it, {label}", "ms", None),
        ]


def alter(broker: Broker, topic: str, settings: Mapping[str, str]) -> None:
    configs = [AlterableConfig(name=name, config_operation=SET, value=value) for name, value in settings.items()]
    resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=configs)
    with Question("127.0.0.1", broker.port, timeout_s=30.0) as question:
        answer = question.ask(IncrementalAlterConfigsRequest(resources=[resource]), ALTER_VERSION)
    for each in answer.responses:
        if each.error_code:
            raise ServerRefused(f"IncrementalAlterConfigs of {topic}: {each.error_code} {each.error_message}")


def wait_until_clean(broker: Broker, topic: str, end_offset: int) -> None:
    """Until the cleaner has written down that the log is clean up to `end_offset`: it does so after the swap."""
    path = broker.data / "cleaner-offset-checkpoint"
    deadline = time.perf_counter() + CLEANING_MAX_S
    while cleaned_up_to(path, topic) < end_offset:
        if time.perf_counter() > deadline:
            raise TimeoutError(f"{broker.name} did not clean {topic}: {broker.last_words()}")
        time.sleep(0.01)


def cleaned_up_to(path: Path, topic: str) -> int:
    lines = path.read_text().splitlines() if path.exists() else []
    for line in lines:
        name, _, rest = line.partition(" ")
        if name == topic:
            return int(rest.split()[1])
    return -1


def log_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.log"))


def records_in(directory: Path) -> Iterator[Record]:
    for path in sorted(directory.glob("*.log")):
        for columns in columns_of(path.read_bytes()):
            yield from columns.records()
