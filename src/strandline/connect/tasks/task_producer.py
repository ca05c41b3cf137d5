"""The producer of a source's task: records and the positions behind them in one transaction (KIP-618).

The transactional id belongs to the task. A worker that starts the task takes the id, which aborts what another one has
open and fences it. The partitions of keys are Java's, so that they stay when a connector moves from Kafka Connect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from strandline.client.security import librdkafka_of
from strandline.connect.herder.config_state import StateRecord
from strandline.connect.herder.state_topics import PARTITIONER, quiet, translated
from strandline.connect.tasks.conversion import OutFields, OutMessage
from strandline.connect.tasks.settings import MESSAGE_BYTES_MAX

TIMEOUT_S: Final = 60.0
_QUEUED_KB_MAX: Final = 16 * 1024
_QUEUED_MAX: Final = 100_000
_FULL_S: Final = 0.05


class TaskProducer:
    """For one thread at a time."""

    def __init__(self, bootstrap: str, transactional_id: str, offsets_topic: str, overrides: Mapping[str, str]) -> None:
        """Take the transactional id. Raise RetriableFailure if the cluster does not answer."""
        self._offsets_topic = offsets_topic
        self._is_open = False
        kafka = import_module("confluent_kafka")
        self._exceptions = (kafka.KafkaException,)
        names = kafka.KafkaError
        self._queue_full = names._QUEUE_FULL
        self._follows = (names._PURGE_QUEUE, names._PURGE_INFLIGHT, names.OUT_OF_ORDER_SEQUENCE_NUMBER)
        """Why records fail that are behind, or with, one that was refused."""
        self._refusal: Any = None
        """The error of the first record of the transaction that was refused."""
        settings = (
            librdkafka_of(bootstrap)
            | {
                "client.id": transactional_id,
                "log_level": 0,
                "partitioner": PARTITIONER,
                "linger.ms": 5,
                "queue.buffering.max.kbytes": _QUEUED_KB_MAX,
                "queue.buffering.max.messages": _QUEUED_MAX,
                "message.max.bytes": MESSAGE_BYTES_MAX,
            }
            | dict(overrides)
            | {
                "transactional.id": transactional_id,
                "delivery.report.only.error": True,
                "on_delivery": self._on_refused,
            }
        )
        # A message that the queue has no room for even if it is empty would be waited for in vain.
        room_kb = int(str(settings["message.max.bytes"])) // 1024 + 1024
        settings["queue.buffering.max.kbytes"] = max(int(str(settings["queue.buffering.max.kbytes"])), room_kb)
        try:
            self._producer = kafka.Producer(settings, logger=quiet)
            self._producer.init_transactions(TIMEOUT_S)
        except self._exceptions as error:
            raise translated(error, "a transaction cannot be begun") from error

    def send(self, messages: Iterable[OutMessage]) -> tuple[int, int]:
        """Add records to the open transaction, or to a new one; return how many, and their bytes."""
        count = size = 0
        for message in messages:
            topic, key, value, partition, timestamp_ms, headers = message
            named: dict[str, Any] = {}
            if partition is not None:
                named["partition"] = partition
            if timestamp_ms is not None:
                named["timestamp"] = timestamp_ms
            if headers:
                named["headers"] = headers
            self._begin()
            self._produce(topic, key, value, named)
            count += 1
            size += len(key or b"") + len(value or b"")
        return count, size

    def send_values(self, topic: str, payloads: Sequence[bytes | None]) -> tuple[int, int]:
        """Add records that have only a value."""
        self._begin()
        self._produce_batch(topic, [{"value": each} for each in payloads])
        return len(payloads), sum(len(each or b"") for each in payloads)

    def send_batches(self, batches: Mapping[str, list[OutFields]]) -> tuple[int, int]:
        """Add the records of each topic, in their order; return how many, and their bytes."""
        count = size = 0
        for topic, messages in batches.items():
            self._begin()
            if any("headers" in each or "timestamp" in each for each in messages):
                # A batch of librdkafka has neither.
                for each in messages:
                    named = {name: value for name, value in each.items() if name not in ("key", "value")}
                    self._produce(topic, each["key"], each["value"], named)
            else:
                self._produce_batch(topic, messages)
            count += len(messages)
            size += sum([len(each["key"] or b"") + len(each["value"] or b"") for each in messages])
        return count, size

    def commit(self, positions: Sequence[StateRecord]) -> None:
        """Commit the records that were sent, with the positions behind them."""
        if not self._is_open and not positions:
            return
        self._begin()
        for key, value in positions:
            self._produce(self._offsets_topic, key, value, {})
        try:
            self._producer.commit_transaction(TIMEOUT_S)
        except self._exceptions as error:
            refusal = self._refusal
            self._abort(error)
            cause = error if refusal is None else self._exceptions[0](refusal)
            raise translated(cause, "a transaction cannot be committed") from error
        self._is_open = False

    def close(self) -> None:
        """Abort what is open. What cannot be aborted now is when the task starts again, or by the time-out."""
        if self._is_open:
            self._is_open = False
            try:
                self._producer.purge()
                self._producer.abort_transaction(TIMEOUT_S / 6)
            except self._exceptions:
                return

    def _begin(self) -> None:
        if not self._is_open:
            try:
                self._producer.begin_transaction()
            except self._exceptions as error:
                raise translated(error, "a transaction cannot be begun") from error
            self._is_open = True
            self._refusal = None

    def _on_refused(self, error: Any, _: Any) -> None:
        if error is not None and self._refusal is None and error.code() not in self._follows:
            self._refusal = error

    def _produce(self, topic: str, key: bytes | None, value: bytes | None, named: Mapping[str, Any]) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, **named)
            except BufferError:
                self._producer.poll(_FULL_S)
            except self._exceptions as error:
                raise translated(error, f"cannot write {len(value or b'')} bytes to {topic}") from error
            else:
                return

    def _produce_batch(self, topic: str, messages: list[OutFields]) -> None:
        try:
            while self._producer.produce_batch(topic, messages) < len(messages):
                # Each that was refused says why; from the first that found no room on, all were.
                messages = [each for each in messages if "_error" in each]
                for each in messages:
                    refused = each.pop("_error")
                    if refused.code() != self._queue_full:
                        raise self._exceptions[0](refused)
                self._producer.poll(_FULL_S)
        except self._exceptions as error:
            raise translated(error, f"cannot write to {topic}") from error

    def _abort(self, error: BaseException) -> None:
        told = error.args[0]
        if hasattr(told, "txn_requires_abort") and told.txn_requires_abort():
            self.close()
