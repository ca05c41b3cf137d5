"""A well-behaved client beside the hostile one. It must never notice.

A stock producer and a stock consumer of one topic go on all the time. At the end every record was acknowledged, read
once and in order, and neither client was ever told of an error or had to connect anew.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

TOPIC = "neighbour"
WAIT_S_MAX = 60.0
PAUSE_S = 0.005


class Neighbour:
    def __init__(self, bootstrap: str, *, topic: str = TOPIC, records_min: int = 20) -> None:
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "error_cb": self._on_error,
            # A retry would hide what must not happen.
            "retries": 0,
            "socket.timeout.ms": 60_000,
        }
        self._topic = topic
        self._records_min = records_min
        self._ending = threading.Event()
        self._reading = threading.Event()
        self._lock = threading.Lock()
        self._failures: list[str] = []
        self._acknowledged: dict[int, bytes] = {}
        self._read: dict[int, bytes] = {}
        self._threads = [threading.Thread(target=work) for work in (self._write, self._follow)]

    def __enter__(self) -> Neighbour:
        for thread in self._threads:
            thread.start()
        # Who is not connected yet could be shut out with the others.
        assert self._reading.wait(WAIT_S_MAX), f"the neighbour has read nothing yet: {self._failures}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(2 * WAIT_S_MAX)
        if error is None:
            self._judge()

    def _judge(self) -> None:
        assert self._failures == [], f"the neighbour noticed: {self._failures[:5]}"
        assert len(self._acknowledged) >= self._records_min
        assert self._read == self._acknowledged, "the neighbour read something else than it wrote"

    def _on_error(self, error: Any) -> None:
        self._fail(f"error callback: {error}")

    def _fail(self, what: str) -> None:
        with self._lock:
            self._failures.append(what)

    def _write(self) -> None:
        producer = Producer(self._settings | {"acks": "all", "linger.ms": 0})
        sent = 0
        while not self._ending.is_set() or sent < self._records_min:
            value = b"neighbour %d" % sent
            producer.produce(self._topic, value, partition=0, on_delivery=self._on_delivery)
            sent += 1
            producer.poll(0)
            self._ending.wait(PAUSE_S)
        if producer.flush(WAIT_S_MAX):
            self._fail("records are still not acknowledged at the end")
        if len(self._acknowledged) != sent and not self._failures:
            self._fail(f"{sent} records sent, {len(self._acknowledged)} acknowledged")

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self._fail(f"delivery: {error}")
        else:
            self._acknowledged[message.offset()] = message.value()

    def _follow(self) -> None:
        settings = {k: v for k, v in self._settings.items() if k != "retries"}
        consumer = Consumer(settings | {"group.id": "neighbour", "enable.auto.commit": False, "fetch.wait.max.ms": 50})
        consumer.assign([TopicPartition(self._topic, 0, 0)])
        quiet_s = 0.0
        try:
            while quiet_s < WAIT_S_MAX:
                message = consumer.poll(0.1)
                if message is None:
                    quiet_s += 0.1
                    if not self._threads[0].is_alive() and len(self._read) >= len(self._acknowledged):
                        return
                    continue
                quiet_s = 0.0
                if message.error() is not None:
                    self._fail(f"consumer: {message.error()}")
                    return
                if self._read and message.offset() != max(self._read) + 1:
                    self._fail(f"offset {message.offset()} follows {max(self._read)}")
                self._read[message.offset()] = message.value()
                self._reading.set()
        finally:
            consumer.close()
