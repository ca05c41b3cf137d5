"""A stock Kafka client that follows the pipeline's topics, and notes as the clock runs how far in and out are."""

from __future__ import annotations

import json
import threading
import time
from typing import NamedTuple

from demo.ledger import Ledger
from demo.shop import follow, partitions_of

OUTPUTS = ("sales", "attributed", "article_sales")
LOOK_S = 0.1
SAMPLE_S = 0.25


class Sample(NamedTuple):
    second: float
    orders_in: int
    """Acknowledged by the log."""
    orders_counted: int
    """The sum of the view: what is sold of each article."""
    pairs: int


class Outage(NamedTuple):
    what: str
    begin: float
    end: float


class Dashboard(threading.Thread):
    def __init__(self, bootstrap: str, ledger: Ledger) -> None:
        super().__init__(name="dashboard", daemon=True)
        self.samples: list[Sample] = []
        self.outages: list[Outage] = []
        self.counts = dict.fromkeys(OUTPUTS, 0)
        self._log_at = bootstrap
        self._ledger = ledger
        self._sold: dict[bytes, int] = {}
        self._began = time.monotonic()
        self._stops = threading.Event()

    @property
    def second(self) -> float:
        return time.monotonic() - self._began

    @property
    def orders_counted(self) -> int:
        return sum(self._sold.copy().values())

    def stop(self) -> None:
        self._stops.set()
        self.join()

    def run(self) -> None:
        partitions: dict[str, list[int]] = {}
        while not all(partitions.get(topic) for topic in OUTPUTS):
            partitions = {topic: partitions_of(self._log_at, topic) for topic in OUTPUTS}
            self._sample()
            if self._stops.wait(LOOK_S):
                return
        consumer = follow(self._log_at, partitions)
        try:
            while not self._stops.is_set():
                for message in consumer.consume(1000, LOOK_S):
                    if message.error() is None:
                        self._take(message.topic(), message.key(), message.value())
                self._sample()
        finally:
            consumer.close()

    def _take(self, topic: str, key: bytes, value: bytes) -> None:
        self.counts[topic] += 1
        if topic == "article_sales":
            self._sold[key] = json.loads(value)["sold"]

    def _sample(self) -> None:
        second = self.second
        if not self.samples or second - self.samples[-1].second >= SAMPLE_S:
            self.samples.append(Sample(second, self._ledger.orders, self.orders_counted, self.counts["attributed"]))
