"""The clients of a chaos run: what the crash tests use, less eager, and kafka-python beside librdkafka."""

from __future__ import annotations

import random
from collections.abc import Sequence

from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import KafkaError as KafkaPythonError

from strandline.ids import TopicPartition
from strandline.testing.client_threads import (
    IN_FLIGHT_MAX,
    ClientThread,
    ConsumerThread,
    ProducerThread,
    value_of,
)
from strandline.testing.history import Assign, Op, Poll
from strandline.testing.recorder import Recorder

REWIND_RECORDS = 2_000
"""How far back a reader goes at most: it shall read again, not everything for ever."""


class PacedProducer(ProducerThread):
    """Sends at a steady rate, whatever the acknowledgements do, up to the limit of what may be in flight."""

    def __init__(
        self, recorder: Recorder, bootstrap: str, partitions: Sequence[TopicPartition], *, per_second: float
    ) -> None:
        super().__init__(recorder, bootstrap, partitions, pause_s=0.02)
        self._per_second = per_second
        self._began_ns = 0
        self._due = 0

    def _send_burst(self, producer: Producer) -> None:
        now_ns = self.recorder.now_ns()
        self._began_ns = self._began_ns or now_ns
        due = int((now_ns - self._began_ns) / 1e9 * self._per_second)
        for _ in range(min(due - self._due, IN_FLIGHT_MAX - self._in_flight)):
            self._send_one(producer)
        # What could not be sent because too much was in flight is not made up for: a fault shall not end in a flood.
        self._due = due


class RereadingConsumer(ConsumerThread):
    """Follows the partitions, and now and then goes back a little: an offset must hold the same record every time."""

    def __init__(
        self, recorder: Recorder, bootstrap: str, partitions: Sequence[TopicPartition], rng: random.Random
    ) -> None:
        super().__init__(recorder, bootstrap, partitions)
        self._rng = rng

    def work(self) -> None:
        consumer = Consumer(dict(self._settings))
        try:
            self._assign(consumer, {str(partition): 0 for partition in self.partitions})
            while not self.stopping.is_set():
                self._poll(consumer)
                if self._rng.random() < 0.01:
                    back = {
                        name: max(0, end - self._rng.randint(0, REWIND_RECORDS)) for name, end in self._next.items()
                    }
                    self._assign(consumer, back)
        finally:
            consumer.close()


class KafkaPythonFollower(ClientThread):
    """Reads all partitions from the start as they grow, with another library and its own idea of retries."""

    def __init__(self, recorder: Recorder, bootstrap: str, partitions: Sequence[TopicPartition]) -> None:
        self.process = recorder.new_process()
        super().__init__(recorder, f"kafka-python-{self.process}")
        self.bootstrap = bootstrap
        self.partitions = {KafkaPythonPartition(*partition): str(partition) for partition in partitions}

    def work(self) -> None:
        consumer = self._connected()
        if consumer is None:
            return
        try:
            started_ns = self.recorder.now_ns()
            consumer.assign(list(self.partitions))
            for partition in self.partitions:
                consumer.seek(partition, 0)
            assigned = tuple(Assign(name, 0) for name in self.partitions.values())
            self.recorder.add(Op(self.process, "ok", "assign", assigned, started_ns, self.recorder.now_ns()))
            while not self.stopping.is_set():
                self._poll(consumer)
        finally:
            consumer.close(autocommit=False)

    def _connected(self) -> KafkaConsumer | None:
        """The library gives up if no broker answers its first question; we do not."""
        while not self.stopping.is_set():
            try:
                return KafkaConsumer(
                    bootstrap_servers=self.bootstrap.split(","),
                    group_id=None,
                    enable_auto_commit=False,
                    auto_offset_reset="none",
                    reconnect_backoff_max_ms=500,
                    request_timeout_ms=10_000,
                    fetch_max_wait_ms=100,
                )
            except KafkaPythonError:
                self.stopping.wait(0.5)
        return None

    def _poll(self, consumer: KafkaConsumer) -> None:
        invoked_ns = self.recorder.now_ns()
        try:
            answers = consumer.poll(timeout_ms=200, max_records=500)
        except KafkaPythonError as error:
            reason = f"{type(error).__name__}: {error}"
            self.recorder.add(
                Op(self.process, "info", "poll", (), invoked_ns, self.recorder.now_ns(), error=reason[:300])
            )
            self.stopping.wait(0.1)
            return
        polls = tuple(
            Poll(self.partitions[partition], tuple((record.offset, value_of(record.value)) for record in records))
            for partition, records in answers.items()
        )
        if polls:
            self.recorder.add(Op(self.process, "ok", "poll", polls, invoked_ns, self.recorder.now_ns()))


def clients_of(
    recorder: Recorder,
    bootstrap: str,
    partitions: Sequence[TopicPartition],
    *,
    seed: int,
    per_second: int,
    kafka_python: bool,
) -> tuple[list[ProducerThread], list[ClientThread]]:
    """A producer for each partition, so that one without a leader holds up no other, one for all, and the readers.

    Groups stand in `groups.py`.
    """
    rng = random.Random(seed)
    shares = [*([partition] for partition in partitions), list(partitions)]
    producers: list[ProducerThread] = [
        PacedProducer(recorder, bootstrap, share, per_second=per_second / len(shares)) for share in shares
    ]
    consumers: list[ClientThread] = [
        ConsumerThread(recorder, bootstrap, partitions),
        RereadingConsumer(recorder, bootstrap, partitions, rng),
    ]
    if kafka_python:
        consumers.append(KafkaPythonFollower(recorder, bootstrap, partitions))
    return producers, consumers
