"""What is done to dead letters, in transactions: copies to other topics, and the marks of what was handled.

A transaction has both, so a command that is killed has redriven and marked a dead letter, or neither. The transactional
id belongs to the dead-letter topic. The next command fences the one before and ends what it left open, and reads the
marks only after that.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from strandline.cli.common.client import Cluster, kafka_api
from strandline.cli.common.failures import CommandFailed, Unreachable, from_kafka_error
from strandline.cli.queue.dead.letters import DeadLetter
from strandline.cli.queue.dead.marks import mark_headers
from strandline.cli.records.record import Headers

LETTERS_PER_TRANSACTION = 100
_ATTEMPTS_MAX = 5
_POLL_S = 0.1
_FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")


@dataclass(frozen=True)
class RedrivenCopy:
    """A record to write."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers


class LetterHandling:
    """The one producer that handles the dead letters of a topic."""

    def __init__(self, cluster: Cluster, topic: str, how: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._how = how
        self._refused: Any = None
        self._producer = cluster.producer(
            transactional_id=f"strandline-dead-letters-{topic}", partitioner="murmur2_random", linger_ms=5
        )
        self._doing = f"cannot handle the dead letters of {topic!r}"

    def begin(self) -> None:
        """Become the only one that handles dead letters of the topic; what another left open is ended."""
        for attempt in range(_ATTEMPTS_MAX):
            try:
                self._producer.init_transactions(self._cluster.timeout_s)
                return
            except kafka_api().KafkaException as error:
                if not error.args[0].retriable() or attempt == _ATTEMPTS_MAX - 1:
                    raise self._failure(error.args[0]) from error

    def handle(self, letters: Sequence[DeadLetter], copies: Iterable[RedrivenCopy]) -> None:
        """Write copies and mark the dead letters as handled: all of it or nothing."""
        kafka, producer = kafka_api(), self._producer
        self._refused = None
        by_partition: dict[int, list[int]] = {}
        for letter in letters:
            by_partition.setdefault(letter.record.partition, []).append(letter.record.offset)
        try:
            producer.begin_transaction()
            for copy in copies:
                self._produce(copy)
            for partition, offsets in by_partition.items():
                self._produce(RedrivenCopy(self._topic, partition, None, None, mark_headers(offsets, self._how)))
            self._commit()
        except kafka.KafkaException as error:
            self.abandon()
            raise self._failure(self._refused or error.args[0]) from error
        except BaseException:
            self.abandon()
            raise

    def _produce(self, copy: RedrivenCopy) -> None:
        place = {} if copy.partition is None else {"partition": copy.partition}
        deadline = time.monotonic() + self._cluster.timeout_s
        while True:
            try:
                self._producer.produce(
                    copy.topic,
                    value=copy.value,
                    key=copy.key,
                    headers=copy.headers or None,
                    on_delivery=self._on_delivery,
                    **place,
                )
                break
            except BufferError:
                self._producer.poll(_POLL_S)
                if time.monotonic() > deadline:
                    raise Unreachable(f"{self._cluster.bootstrap} acknowledges nothing") from None
        self._producer.poll(0)

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None and self._refused is None:
            self._refused = error

    def _commit(self) -> None:
        for attempt in range(_ATTEMPTS_MAX):
            try:
                self._producer.commit_transaction(self._cluster.timeout_s)
                return
            except kafka_api().KafkaException as error:
                # It may be committed already: to ask again is safe, and tells.
                if not error.args[0].retriable() or attempt == _ATTEMPTS_MAX - 1:
                    raise

    def abandon(self) -> None:
        """Abort what is open. If that fails, the next command does, or the coordinator after a minute."""
        try:
            self._producer.abort_transaction(self._cluster.timeout_s)
        except kafka_api().KafkaException:
            return

    def _failure(self, error: Any) -> CommandFailed:
        if error.name() in _FENCED:
            return CommandFailed(
                f"another command handles the dead letters of {self._topic!r} now, so this one ended",
                hint="what was committed before is marked; say it again when the other has ended",
            )
        return from_kafka_error(error, bootstrap=self._cluster.bootstrap, doing=self._doing)


class RatePacing:
    """A limit of dead letters per second."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._due = time.monotonic()

    @property
    def batch_size(self) -> int:
        """Return how many go together, so that none has to wait for much longer than a second."""
        return LETTERS_PER_TRANSACTION if self._rate is None else max(1, min(LETTERS_PER_TRANSACTION, int(self._rate)))

    def wait(self, handled: int) -> None:
        """Wait until as many more may follow."""
        if self._rate is None:
            return
        self._due = max(self._due, time.monotonic()) + handled / self._rate
        while (left_s := self._due - time.monotonic()) > 0:
            # In pieces, because Ctrl-C is seen between them.
            time.sleep(min(left_s, _POLL_S))
