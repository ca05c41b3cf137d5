"""Kafka Streams counts words exactly once while brokers and a worker are killed: no count is wrong, doubled or missing.

Without a cache each word that comes in gives a record with its new count, so that what is committed to the output must
be 1, 2, 3 and so on for each word, up to as often as it was written.
"""

from __future__ import annotations

import random
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bench.kafka_jars import KafkaUnavailable
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from tests.clients.transactions.streams_jars import FETCH_TIMEOUT_S, word_count_command
from tests.crash.harness import new_seed

from strandline.testing import embedded

PARTITIONS = 3
WORDS = [f"word-{number}" for number in range(12)]
LINES_PER_STAGE = 300
WORDS_PER_LINE = 4
WAIT_S_MAX = 120.0
APPLICATION = "word-count"
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "transaction.state.log.num.partitions": "4",
    "offsets.topic.num.partitions": "4",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


class Ledger:
    """What was written, and what the output says of it: an independent reader of what is committed."""

    def __init__(self, bootstrap: str) -> None:
        self.written: Counter[str] = Counter()
        self.counts: dict[str, list[int]] = {word: [] for word in WORDS}
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "ledger",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition("counts", number, 0) for number in range(PARTITIONS)])

    def write(self, rng: random.Random) -> None:
        failures: list[KafkaError] = []
        for _ in range(LINES_PER_STAGE):
            words = rng.choices(WORDS, k=WORDS_PER_LINE)
            self.written.update(words)
            self._producer.produce(
                "lines",
                " ".join(words).encode(),
                partition=rng.randrange(PARTITIONS),
                on_delivery=lambda error, _: failures.append(error) if error is not None else None,
            )
        assert self._producer.flush(WAIT_S_MAX) == 0
        assert not failures, failures[0]

    def follow(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S_MAX
        while not holds():
            assert time.monotonic() < deadline, f"waited in vain: {what}; {self.told} of {self.written.total()} counted"
            message = self._consumer.poll(0.2)
            if message is None or message.error() is not None:
                continue
            key, value = message.key(), message.value()
            assert key is not None
            assert value is not None
            counts = self.counts[key.decode()]
            counts.append(int(value))
            assert counts[-1] == len(counts), f"{key.decode()} was counted {counts[-3:]} where {len(counts)} was due"

    @property
    def told(self) -> int:
        return sum(len(counts) for counts in self.counts.values())

    def until_begun(self, share: float) -> None:
        """Until a part of what was written last has been counted, so that the work is under way."""
        due = self.written.total() - int((1 - share) * LINES_PER_STAGE * WORDS_PER_LINE)
        self.follow(f"{due} counts", lambda: self.told >= due)

    def until_all(self) -> None:
        self.follow("everything counted", lambda: self.told >= self.written.total())
        assert {word: len(counts) for word, counts in self.counts.items()} == dict(self.written)

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def worker(command: list[str], bootstrap: str, state: Path) -> Iterator[subprocess.Popen[bytes]]:
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [*command, bootstrap, APPLICATION, "lines", "counts", str(state)],
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=said,
        )
        try:
            yield process
        except BaseException as error:
            said.seek(0)
            error.add_note(f"the word count said:\n{said.read().decode(errors='replace')[-4000:]}")
            raise
        finally:
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.timeout(FETCH_TIMEOUT_S + 600)
def test_every_word_is_counted_once_while_nodes_die(tmp_path: Path) -> None:
    try:
        command = word_count_command(tmp_path)
    except KafkaUnavailable as reason:
        pytest.skip(str(reason))
    rng = random.Random(new_seed())
    with embedded(nodes=3, properties=PROPERTIES) as cluster:
        for topic in ("lines", "counts"):
            cluster.create_topic(topic, PARTITIONS, min_insync_replicas=2)
        ledger = Ledger(cluster.bootstrap)
        try:
            with worker(command, cluster.bootstrap, tmp_path / "first") as first:
                ledger.write(rng)
                ledger.until_all()
                ledger.write(rng)
                ledger.until_begun(0.2)
                killed = cluster.leader_of("counts", rng.randrange(PARTITIONS))
                cluster.kill(killed)
                ledger.until_all()
                ledger.write(rng)
                cluster.start(killed)
                ledger.until_all()
                ledger.write(rng)
                ledger.until_begun(0.2)
                # What it has begun is aborted by whoever takes its place, or by the coordinator.
                first.kill()
                with worker(command, cluster.bootstrap, tmp_path / "second"):
                    killed = cluster.leader_of("lines", rng.randrange(PARTITIONS))
                    cluster.kill(killed)
                    ledger.until_all()
                    cluster.start(killed)
                    ledger.write(rng)
                    ledger.until_all()
        finally:
            ledger.close()
