"""Stock clients in threads that write down what they did: an idempotent producer and an independent consumer.

A client survives the death of its broker: it retries, as an application would, and what it cannot know it records as
`info`. An exception in a thread is kept and raised by `stop`.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Self, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Position

from strandline.ids import TopicPartition
from strandline.testing.history import Assign, Mop, Op, Outcome, Poll, Send, Watermark
from strandline.testing.recorder import Recorder

Settings: TypeAlias = Mapping[str, str | int | float | bool]

QUICK_RETRIES: Settings = {
    # librdkafka waits up to ten seconds before it tries a dead broker again; a test that kills brokers cannot.
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    # Each lost connection is expected here and would fill standard error.
    "log_level": 0,
}
FAILED_FOR_CERTAIN = frozenset({KafkaError.MSG_SIZE_TOO_LARGE})
"""Answers after which the record is certainly not in the log. After any other error it may be."""

IN_FLIGHT_MAX = 500
POLL_RECORDS_MAX = 1000
POLLS_PER_WATERMARK = 10
WATERMARK_TIMEOUT_S = 1.0
FLUSH_TIMEOUT_S = 60.0
PURGE_TIMEOUT_S = 10.0


def payload_of(value: str, size_bytes: int) -> bytes:
    """Return a record's bytes: the value that names it, a blank, and filler up to the size."""
    head = f"{value} ".encode()
    return head + b"x" * (size_bytes - len(head))


def value_of(payload: bytes | None) -> str:
    """Return the value that names a record; damaged filler gives a value that was never sent, and so a phantom."""
    head, _, filler = (payload or b"").partition(b" ")
    value = head.decode(errors="backslashreplace")
    return value if filler.count(b"x") == len(filler) else f"damaged {value}"


def polls_of(messages: Sequence[Message]) -> list[Poll]:
    """Return the records of one call by partition, in the order they came."""
    records: dict[str, list[tuple[int, str]]] = {}
    for message in messages:
        offset, number = message.offset(), message.partition()
        assert offset is not None
        assert number is not None
        name = str(TopicPartition(message.topic() or "", number))
        records.setdefault(name, []).append((offset, value_of(message.value())))
    return [Poll(name, tuple(found)) for name, found in records.items()]


class ClientHangs(Exception):
    """A call into a client library does not return."""


class ClientThread:
    """A client with a thread of its own that works until `stop`."""

    def __init__(self, recorder: Recorder, name: str) -> None:
        self.recorder = recorder
        self.stopping = threading.Event()
        self._failure: BaseException | None = None
        # It has a thread and is none: `threading.Thread` has private names that a client would take unawares.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def work(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        self._thread.start()

    def stop(self, *, timeout_s: float | None = None) -> None:
        """End the work, wait for the thread, and raise what it raised; ClientHangs if it does not end in time."""
        self.stopping.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise ClientHangs(f"{self._thread.name} does not come back from its client")
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self._failure = error


class ProducerThread(ClientThread):
    """Sends one value after the other to the partitions in turn, in bursts, and records each outcome."""

    def __init__(
        self,
        recorder: Recorder,
        bootstrap: str,
        partitions: Sequence[TopicPartition],
        *,
        value_bytes: int = 100,
        burst: int = 20,
        pause_s: float = 0.01,
        settings: Settings | None = None,
    ) -> None:
        self.process = recorder.new_process()
        super().__init__(recorder, f"producer-{self.process}")
        self.partitions = tuple(partitions)
        self.value_bytes = value_bytes
        self.burst = burst
        self.pause_s = pause_s
        self.fatal_error: KafkaError | None = None
        """Set when librdkafka gives the producer up; a correct broker never makes it do so."""
        self.flush_timeout_s = FLUSH_TIMEOUT_S
        """How long the end of the work waits for acknowledgements that are still due."""
        self._sent = 0
        self._in_flight = 0
        self._settings: Settings = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 1,
            # Longer than any fault. A record that is given up leaves a gap in the sequence, and librdkafka closes it by
            # going on with another epoch: a broker cannot recognise what it sends again as a copy.
            "delivery.timeout.ms": 600_000,
            **QUICK_RETRIES,
            **(settings or {}),
        }

    def work(self) -> None:
        producer = Producer({**self._settings, "error_cb": self._on_error})
        try:
            while not self.stopping.is_set():
                self._send_burst(producer)
                producer.poll(self.pause_s)
            producer.flush(self.flush_timeout_s)
        except KafkaException as error:
            # librdkafka raises a fatal error from whatever call comes next.
            if not error.args[0].fatal() and error.args[0].code() != KafkaError._FATAL:
                raise
            self.fatal_error = self.fatal_error or error.args[0]
        # What is still open now has an unknown outcome; purging makes the client say so record by record.
        producer.purge()
        self._drain(producer)
        assert self._in_flight == 0, f"{self._in_flight} sends of process {self.process} never completed"

    def _send_burst(self, producer: Producer) -> None:
        for _ in range(min(self.burst, IN_FLIGHT_MAX - self._in_flight)):
            self._send_one(producer)

    def _send_one(self, producer: Producer) -> None:
        partition = self.partitions[self._sent % len(self.partitions)]
        value = f"{self.process}:{self._sent}"
        producer.produce(
            partition.topic,
            payload_of(value, self.value_bytes),
            partition=partition.partition,
            on_delivery=partial(self._on_delivery, partition, value, self.recorder.now_ns()),
        )
        self._sent += 1
        self._in_flight += 1

    def _drain(self, producer: Producer) -> None:
        deadline_ns = self.recorder.now_ns() + int(PURGE_TIMEOUT_S * 1e9)
        while self._in_flight and self.recorder.now_ns() < deadline_ns:
            try:
                producer.poll(0.1)
            except KafkaException as error:
                if not error.args[0].fatal():
                    raise
                self.fatal_error = error.args[0]

    def _on_delivery(
        self, partition: TopicPartition, value: str, invoked_ns: int, error: KafkaError | None, message: Message
    ) -> None:
        self._in_flight -= 1
        offset = message.offset() if error is None else None
        if offset is not None and offset < 0:
            # The broker said "already there" without saying where.
            offset = None
        send = Send(str(partition), value, offset)
        outcome: Outcome = "ok" if error is None else "fail" if error.code() in FAILED_FOR_CERTAIN else "info"
        reason = "" if error is None else f"{error.name()}: {error.str()}"
        completed_ns = self.recorder.now_ns()
        self.recorder.add(Op(self.process, outcome, "send", (send,), invoked_ns, completed_ns, error=reason))

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.fatal_error = error


class ConsumerThread(ClientThread):
    """Reads all partitions from the start as they grow; with a random source it also goes back now and then.

    Going back matters: an offset must hold the same record on every read, also after the broker has recovered.
    """

    def __init__(
        self,
        recorder: Recorder,
        bootstrap: str,
        partitions: Sequence[TopicPartition],
        *,
        rewinds: random.Random | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.process = recorder.new_process()
        super().__init__(recorder, f"consumer-{self.process}")
        self.partitions = tuple(partitions)
        self._rewinds = rewinds
        self._next: dict[str, int] = {}
        self._polls = 0
        self._settings: Settings = {
            "bootstrap.servers": bootstrap,
            "group.id": f"history-{self.process}",
            "enable.auto.commit": False,
            # An offset that no longer exists is something to report, never to step over.
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 50,
            **QUICK_RETRIES,
            **(settings or {}),
        }

    def work(self) -> None:
        consumer = Consumer(dict(self._settings))
        try:
            self._assign(consumer, {str(partition): 0 for partition in self.partitions})
            while not self.stopping.is_set():
                self._poll(consumer)
                if self._rewinds is not None and self._rewinds.random() < 0.02:
                    self._assign(consumer, {name: self._rewinds.randint(0, end) for name, end in self._next.items()})
        finally:
            consumer.close()

    def _assign(self, consumer: Consumer, offsets: Mapping[str, int]) -> None:
        invoked_ns = self.recorder.now_ns()
        kept = [partition for partition in self.partitions if str(partition) in offsets]
        consumer.assign([Position(topic, number, offsets[f"{topic}-{number}"]) for topic, number in kept])
        mops = tuple(Assign(name, offset) for name, offset in offsets.items())
        self.recorder.add(Op(self.process, "ok", "assign", mops, invoked_ns, self.recorder.now_ns()))
        self._next = dict(offsets)

    def _poll(self, consumer: Consumer) -> None:
        invoked_ns = self.recorder.now_ns()
        answers = consumer.consume(POLL_RECORDS_MAX, 0.1)
        polls = polls_of([answer for answer in answers if answer.error() is None])
        errors = [error for answer in answers if (error := answer.error()) is not None]
        mops: list[Mop] = [*polls, *self._watermarks(consumer, polls)]
        completed_ns = self.recorder.now_ns()
        if mops:
            self.recorder.add(Op(self.process, "ok", "poll", tuple(mops), invoked_ns, completed_ns))
        for error in errors:
            reason = f"{error.name()}: {error.str()}"
            self.recorder.add(Op(self.process, "info", "poll", (), invoked_ns, completed_ns, error=reason))
        for poll in polls:
            self._next[poll.partition] = poll.records[-1][0] + 1

    def _watermarks(self, consumer: Consumer, polls: Sequence[Poll]) -> list[Watermark]:
        """Ask now and then where a partition ends.

        The high watermark beside the records does not count. It is only what this leader knows, in Kafka as here, and
        a new leader may not know the last one of its predecessor. When it is asked, it answers with an error.
        """
        self._polls += 1
        if not polls or self._polls % POLLS_PER_WATERMARK:
            return []
        topic, _, number = (name := polls[-1].partition).rpartition("-")
        try:
            _, high = consumer.get_watermark_offsets(Position(topic, int(number)), timeout=WATERMARK_TIMEOUT_S)
        except KafkaException:
            # The partition has no leader at the moment: nothing was seen.
            return []
        return [Watermark(name, high)]
