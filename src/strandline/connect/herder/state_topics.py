"""Connect's topics: made if they are missing, read by a thread from the beginning on, written by producers.

The config topic has one writer, the leader, which writes in transactions: a new leader takes the transactional id and
fences the one before. Status and offsets are written by the workers that run the tasks.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from strandline.client.cluster_client import LATEST, READ_UNCOMMITTED, ClientSettings, ClusterClient
from strandline.client.failures import ClientFailed
from strandline.client.security import librdkafka_of
from strandline.client.topic_creation import create_topic
from strandline.connect.failures import ConnectFailed, FencedOut, RecordsRefused, RetriableFailure
from strandline.connect.herder.config_state import StateRecord
from strandline.errors import Disconnected, TimedOut
from strandline.ids import TopicPartition

REPLICAS_MAX: Final = 3
TRANSACTION_TIMEOUT_MS: Final = 10_000
"""How long a leader that dies in the middle of a write hides what is written after it."""
PARTITIONER: Final = "murmur2_random"
"""Java's, so that keys stay in their partitions when a cluster moves from Kafka Connect."""
_BATCH: Final = 1000
_POLL_S: Final = 0.2

log = logging.getLogger("strandline.connect")
quiet = logging.getLogger("strandline.connect.librdkafka")
"""For librdkafka, whose lines would tell of every broker that restarts."""
quiet.addHandler(logging.NullHandler())
quiet.propagate = False

OnStateRecords = Callable[[Sequence[StateRecord]], None]
"""Takes records in their order; called by the reader's thread."""


def kafka_words(error: BaseException) -> str:
    """Return what librdkafka says of an error, without its numbers."""
    return str(error.args[0].str()) if error.args and hasattr(error.args[0], "str") else str(error)


_LARGER: Final = (
    "raise message.max.bytes of the producer, producer.override.message.max.bytes of a connector, and "
    "max.message.bytes of the topic"
)


def translated(error: BaseException, what: str) -> ConnectFailed:
    """Return the failure of a call of librdkafka: fenced, for good, or, what it is mostly, for a while."""
    kafka = import_module("confluent_kafka")
    told = error.args[0] if error.args else None
    message = f"{what}: {kafka_words(error)}"
    if not isinstance(told, kafka.KafkaError):
        return ConnectFailed(message)
    names = kafka.KafkaError
    if told.code() in (names._FENCED, names.INVALID_PRODUCER_EPOCH, names.PRODUCER_FENCED):
        return FencedOut(f"{what}: another producer has taken over")
    if told.code() == names.MSG_SIZE_TOO_LARGE:
        return RecordsRefused(f"{message} ({_LARGER})")
    if told.code() in (names.RECORD_LIST_TOO_LARGE, names.INVALID_RECORD, names.TOPIC_EXCEPTION):
        return RecordsRefused(message)
    lasting = (
        names.POLICY_VIOLATION,
        names.TOPIC_AUTHORIZATION_FAILED,
        names.GROUP_AUTHORIZATION_FAILED,
        names.CLUSTER_AUTHORIZATION_FAILED,
        names.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        names._INVALID_ARG,
        names._AUTHENTICATION,
    )
    return ConnectFailed(message) if told.code() in lasting else RetriableFailure(message)


def prepare_topic(bootstrap: str, topic: str, partitions: int, timeout_s: float, *, is_single: bool = False) -> int:
    """Make a compacted topic if it is missing, and return how many partitions it has."""
    client = ClusterClient(ClientSettings.within(bootstrap, "strandline-connect", timeout_s))
    settings = {"cleanup.policy": "compact"}
    try:
        made = create_topic(client, topic, partitions=partitions, replicas_max=REPLICAS_MAX, settings=settings)
    except (ClientFailed, Disconnected, TimedOut) as error:
        raise RetriableFailure(f"the topic {topic} cannot be made or read: {error}") from error
    finally:
        client.close()
    if is_single and len(made.leaders) != 1:
        raise ConnectFailed(
            f"the topic {topic} has {len(made.leaders)} partitions, and must have one, because configs are in order"
        )
    return len(made.leaders)


class StateReader:
    """A thread that reads all partitions of a topic for ever, and only what is committed."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, on_records: OnStateRecords) -> None:
        self._topic = topic
        self._on_records = on_records
        self._bootstrap = bootstrap
        self._is_stopping = threading.Event()
        self._kafka = import_module("confluent_kafka")
        self._consumer = self._kafka.Consumer(
            librdkafka_of(bootstrap)
            | {
                "client.id": "strandline-connect",
                "log_level": 0,
                # Nothing is committed; librdkafka wants a name.
                "group.id": "strandline-connect-reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 500,
                "fetch.error.backoff.ms": 100,
            },
            logger=quiet,
        )
        self._moved = threading.Condition()
        self._positions = dict.fromkeys(range(partitions), 0)
        self._consumer.assign([self._kafka.TopicPartition(topic, each, 0) for each in range(partitions)])
        self._thread = threading.Thread(target=self._run, name=f"reader-{topic}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self._consumer.close()

    @property
    def position(self) -> int:
        """How far partition 0 was read."""
        return self._positions[0]

    def read_to_end(self, timeout_s: float) -> None:
        """Wait until everything that is committed now was handed over. Raise RetriableFailure after the time.

        That is behind the last record, not the last stable one: a transaction that another task has open would hide
        what was committed after its first record, and a task would begin at an old position.
        """
        client = ClusterClient(ClientSettings.within(self._bootstrap, "strandline-connect", timeout_s))
        places = {TopicPartition(self._topic, each): LATEST for each in self._positions}
        try:
            ends = client.list_offsets(places, isolation_level=READ_UNCOMMITTED)
        except (ClientFailed, Disconnected, TimedOut) as error:
            raise RetriableFailure(f"the end of {self._topic} is not known: {error}") from error
        finally:
            client.close()
        self.wait_for({place.partition: end for place, end in ends.items()}, timeout_s)

    def wait_for(self, ends: Mapping[int, int], timeout_s: float) -> None:
        """Wait until these offsets were read."""
        until = time.monotonic() + timeout_s
        with self._moved:
            while any(self._positions[each] < end for each, end in ends.items()):
                left_s = until - time.monotonic()
                if left_s <= 0 or self._is_stopping.is_set():
                    raise RetriableFailure(f"{self._topic} was not read to its end within {timeout_s:g} s")
                self._moved.wait(min(left_s, _POLL_S))

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            try:
                first = self._consumer.poll(_POLL_S)
                if first is not None:
                    self._hand_over([first, *self._consumer.consume(_BATCH, 0)])
            except self._kafka.KafkaException as error:
                # Without its reader the worker would go by an old state for ever.
                log.warning("reading %s failed, and is tried again: %s", self._topic, kafka_words(error))
                self._is_stopping.wait(_POLL_S)

    def _hand_over(self, messages: Sequence[Any]) -> None:
        records = []
        ends = {}
        for message in messages:
            error = message.error()
            if error is None:
                records.append(StateRecord(message.key() or b"", message.value()))
                ends[message.partition()] = message.offset() + 1
            elif error.code() == self._kafka.KafkaError._PARTITION_EOF:
                ends[message.partition()] = message.offset()
            else:
                log.warning("reading %s: %s", self._topic, error.str())
        if records:
            self._on_records(records)
        with self._moved:
            for partition, end in ends.items():
                self._positions[partition] = max(self._positions[partition], end)
            self._moved.notify_all()


class StateWriter:
    """A producer of one of Connect's topics; for one thread at a time. With a transactional id it fences others."""

    def __init__(self, bootstrap: str, topic: str, timeout_s: float, transactional_id: str = "") -> None:
        self._topic = topic
        self._timeout_s = timeout_s
        self._is_transactional = bool(transactional_id)
        self._ends_at_s = math.inf
        self._failed: list[Any] = []
        self._ends: dict[int, int] = {}
        kafka = import_module("confluent_kafka")
        self._exceptions = (kafka.KafkaException, BufferError)
        settings = librdkafka_of(bootstrap) | {
            "client.id": "strandline-connect",
            "log_level": 0,
            "enable.idempotence": True,
            "linger.ms": 0,
            # A position that a task wrote and the one that replaces it are in order only in one partition.
            "partitioner": PARTITIONER,
        }
        if transactional_id:
            settings |= {"transactional.id": transactional_id, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
        else:
            settings |= {"delivery.timeout.ms": int(timeout_s * 1000)}
        try:
            self._producer = kafka.Producer(settings, logger=quiet)
            if transactional_id:
                self._producer.init_transactions(timeout_s)
        except self._exceptions as error:
            raise translated(error, f"cannot become the writer of {topic}") from error

    def write(self, records: Sequence[StateRecord], partition: int = -1) -> dict[int, int]:
        """Write all records or none if in transactions. Return the offset behind the last one, by partition."""
        self._failed.clear()
        self._ends.clear()
        try:
            if self._is_transactional:
                self._producer.begin_transaction()
            for record in records:
                placed = {} if partition < 0 else {"partition": partition}
                self._producer.produce(
                    self._topic, key=record.key, value=record.value, on_delivery=self._delivered, **placed
                )
            if self._is_transactional:
                self._producer.commit_transaction(self._timeout_s)
            else:
                self._flush()
        except self._exceptions as error:
            raise translated(error, f"cannot write to {self._topic}") from error
        if self._failed:
            raise RetriableFailure(f"cannot write to {self._topic}: {self._failed[0].str()}")
        return dict(self._ends)

    def hurry(self, seconds: float) -> None:
        """Have writes without transactions give up after this time, also one that waits now. Any thread may call."""
        self._ends_at_s = time.monotonic() + seconds

    def _flush(self) -> None:
        until_s = time.monotonic() + self._timeout_s
        while left := self._producer.flush(_POLL_S):
            if time.monotonic() >= min(until_s, self._ends_at_s):
                self._producer.purge()
                raise RetriableFailure(f"cannot write to {self._topic}: {left} records are on their way for too long")

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append(error)
        else:
            self._ends[message.partition()] = message.offset() + 1
