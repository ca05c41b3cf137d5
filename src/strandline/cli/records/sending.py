"""The producer behind `produce`: it waits instead of growing, and remembers what was acknowledged."""

from __future__ import annotations

import time
from typing import Any

from strandline.cli.common.client import Cluster, kafka_api
from strandline.cli.common.failures import HINTS, Unreachable
from strandline.cli.records.record import NewRecord

_POLL_S = 0.1


class Sending:
    """A librdkafka producer that remembers which offsets were acknowledged."""

    def __init__(self, cluster: Cluster, topic: str, *, acks: str, compression: str) -> None:
        self.topic = topic
        self.cluster = cluster
        self.acknowledged = 0
        self.failed = 0
        self.first_failure = ""
        self.advice = ""
        self.gave_up = False
        self._heard_s = time.monotonic()
        self.offsets: dict[int, tuple[int, int, int]] = {}
        idempotent = acks in ("all", "-1")
        self._producer = cluster.producer(
            acks=acks, enable_idempotence=idempotent, compression_type=compression, linger_ms=5
        )

    def send(self, record: NewRecord) -> None:
        if not len(self._producer):
            self._heard_s = time.monotonic()
        optional: dict[str, Any] = {}
        if record.partition is not None:
            optional["partition"] = record.partition
        if record.timestamp_ms is not None:
            optional["timestamp"] = record.timestamp_ms
        while True:
            try:
                self._producer.produce(
                    self.topic,
                    value=record.value,
                    key=record.key,
                    headers=record.headers or None,
                    on_delivery=self._on_delivery,
                    **optional,
                )
                break
            except BufferError:
                # The producer's queue is full: wait for acknowledgements instead of growing without bound.
                self._producer.poll(_POLL_S)
                if self._is_forgotten():
                    raise Unreachable(self._silence()) from None
            except kafka_api().KafkaException as error:
                # Refused before it was sent: too large for the client, or a partition that does not exist.
                self._failed(error.args[0])
                break
        self._producer.poll(0)

    def finish(self) -> None:
        """Wait for what is on its way, as long as acknowledgements come; librdkafka alone would wait five minutes."""
        while self._producer.flush(_POLL_S):
            if self._is_forgotten():
                self.gave_up = True
                self.first_failure = self._silence()
                self._producer.purge()
                self._producer.flush(_POLL_S)

    def _is_forgotten(self) -> bool:
        return time.monotonic() - self._heard_s > self.cluster.timeout_s

    def _silence(self) -> str:
        return f"{self.cluster.bootstrap} acknowledged nothing for {self.cluster.timeout_s:g} s"

    def _on_delivery(self, error: Any, message: Any) -> None:
        self._heard_s = time.monotonic()
        if error is not None:
            self._failed(error)
            return
        self.acknowledged += 1
        partition = message.partition()
        # With acks=0 the broker does not say the offset.
        offset = -1 if message.offset() is None else message.offset()
        first, last, count = self.offsets.get(partition, (offset, offset, 0))
        self.offsets[partition] = (min(first, offset), max(last, offset), count + 1)

    def _failed(self, error: Any) -> None:
        self.failed += 1
        if not self.first_failure:
            self.first_failure, self.advice = error.str(), HINTS.get(error.name(), "")
