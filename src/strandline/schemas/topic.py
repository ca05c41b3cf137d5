"""The topic `_schemas`: made if it is missing, read by a thread from its beginning on, written in transactions.

librdkafka reads and writes it, which every installation has. The transactional id belongs to the one primary. A process
that takes it fences the one before: what that one was about to write fails, whatever it believes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple
from uuid import UUID

from strandline.client.cluster_client import LATEST, ClientSettings, ClusterClient
from strandline.client.failures import ClientFailed
from strandline.client.security import librdkafka_of
from strandline.client.topic_creation import create_topic
from strandline.errors import Disconnected, TimedOut, WorldError
from strandline.ids import TopicPartition
from strandline.schemas.records import SchemaRecord

REPLICAS_MAX: Final = 3
TRANSACTION_TIMEOUT_MS: Final = 10_000
"""How long a primary that dies in the middle of a write hides what is written after it."""
RECORD_BYTES_MAX: Final = 1_000_000
"""Bytes of one record: librdkafka and brokers take little more by default."""
_BATCH: Final = 1000
_WATCH_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.2
WATCH_S: Final = 1.0
"""How often a registry looks whether its topic is still the same."""

logger = logging.getLogger("strandline.schemas")
_quiet = logging.getLogger("strandline.schemas.librdkafka")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False

OnRecords = Callable[[Sequence[SchemaRecord], int, bool], None]
"""Takes records, the offset up to which the topic was read, and whether that is its end; for the reader's thread."""
OnTopicId = Callable[[UUID | None], None]
"""Takes the id of the topic, None if there is no such topic; for the thread of the watch."""


class SchemaTopicFailed(WorldError):
    """The topic could not be made, read or written; one sentence."""


class TopicChanged(SchemaTopicFailed):
    """The topic is gone, or another one has its name."""

    def __init__(self, topic: str, found: UUID | None) -> None:
        super().__init__(f"the topic {topic} {'is gone' if found is None else 'was made again'}")
        self.found = found


class TopicWriter:
    """The holder of the transactional id, until another process takes it. For one thread at a time.

    It writes to the topic of an id: a producer would have the brokers make a topic that is gone, with settings that
    delete schemas.
    """

    def __init__(self, bootstrap: str, topic: str, topic_id: UUID, group: str, timeout_s: float) -> None:
        self._topic = topic
        self._topic_id = topic_id
        self._client = ClusterClient(ClientSettings.within(bootstrap, "strandline-registry", timeout_s))
        self._timeout_s = timeout_s
        self._failed: list[Any] = []
        self._offset = -1
        try:
            self._producer = import_module("confluent_kafka").Producer(
                librdkafka_of(bootstrap)
                | {
                    "client.id": "strandline-registry",
                    "log_level": 0,
                    "transactional.id": f"{group}-primary",
                    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                    "acks": "all",
                    "linger.ms": 0,
                    "message.max.bytes": RECORD_BYTES_MAX + 40_000,
                },
                logger=_quiet,
            )
            self._producer.init_transactions(timeout_s)
        except _kafka_exception() as error:
            raise SchemaTopicFailed(f"cannot become the writer of {topic}: {error.args[0].str()}") from error

    def write(self, records: Sequence[SchemaRecord]) -> int:
        """Write all records or none, and return the offset of the last one. The first failure is its last call."""
        self._check_topic()
        self._failed.clear()
        try:
            self._producer.begin_transaction()
            for record in records:
                self._producer.produce(
                    self._topic, key=record.key, value=record.value, partition=0, on_delivery=self._delivered
                )
            self._producer.commit_transaction(self._timeout_s)
        except (_kafka_exception(), BufferError) as error:
            raise SchemaTopicFailed(f"cannot write to {self._topic}: {_words(error)}") from error
        if self._failed:
            raise SchemaTopicFailed(f"cannot write to {self._topic}: {self._failed[0].str()}")
        return self._offset

    def _check_topic(self) -> None:
        try:
            found = self._client.topic(self._topic)
        except (ClientFailed, Disconnected, TimedOut) as error:
            raise SchemaTopicFailed(f"cannot write to {self._topic}: {error}") from error
        if found is None or found.topic_id != self._topic_id:
            raise TopicChanged(self._topic, None if found is None else found.topic_id)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append(error)
        else:
            self._offset = message.offset()


class TopicReader:
    """A thread that reads the topic for ever, in order, and only what is committed."""

    def __init__(self, bootstrap: str, topic: str, on_records: OnRecords) -> None:
        self._topic = topic
        self._on_records = on_records
        self._is_stopping = threading.Event()
        self._kafka = import_module("confluent_kafka")
        self._consumer = self._kafka.Consumer(
            librdkafka_of(bootstrap)
            | {
                "client.id": "strandline-registry",
                "log_level": 0,
                # Nothing is committed; librdkafka wants a name.
                "group.id": "strandline-registry-reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 500,
                "fetch.error.backoff.ms": 100,
            },
            logger=_quiet,
        )
        self._consumer.assign([self._kafka.TopicPartition(topic, 0, 0)])
        self._thread = threading.Thread(target=self._run, name="registry-reader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            try:
                first = self._consumer.poll(_POLL_S)
                if first is not None:
                    self._hand_over([first, *self._consumer.consume(_BATCH, 0)])
            except self._kafka.KafkaException as error:
                # Without its reader the registry would answer from an old state for ever.
                logger.warning("reading %s failed, and is tried again: %s", self._topic, _words(error))
                self._is_stopping.wait(_POLL_S)

    def _hand_over(self, messages: Sequence[Any]) -> None:
        records = []
        position = -1
        is_end = False
        for message in messages:
            error = message.error()
            if error is None:
                records.append(SchemaRecord(message.key() or b"", message.value()))
                position = message.offset() + 1
            elif error.code() == self._kafka.KafkaError._PARTITION_EOF:
                position, is_end = max(position, message.offset()), True
            else:
                logger.warning("reading %s: %s", self._topic, error.str())
        if position >= 0:
            self._on_records(records, position, is_end)


class TopicWatch:
    """A thread that asks for the id of the topic: one that is deleted and made again has another."""

    def __init__(self, bootstrap: str, topic: str, on_id: OnTopicId) -> None:
        self._topic = topic
        self._on_id = on_id
        self._client = ClusterClient(ClientSettings.within(bootstrap, "strandline-registry", _WATCH_TIMEOUT_S))
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="registry-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask no more; a question that waits for an answer is not waited for."""
        self._is_stopping.set()

    def _run(self) -> None:
        while not self._is_stopping.wait(WATCH_S):
            try:
                found = self._client.topic(self._topic)
            except (ClientFailed, Disconnected, TimedOut) as error:
                # The reader and the writer meet the same, and say so.
                logger.debug("the id of %s can not be read: %s", self._topic, error)
            else:
                self._on_id(None if found is None else found.topic_id)
        self._client.close()


class PreparedTopic(NamedTuple):
    """The topic as it is before its reader begins."""

    topic_id: UUID
    end: int
    """The offset behind its last record."""


def prepare_topic(bootstrap: str, topic: str, timeout_s: float) -> PreparedTopic:
    """Make the topic if it is missing. Raise SchemaTopicFailed if it would lose records, or can not be reached."""
    client = ClusterClient(ClientSettings.within(bootstrap, "strandline-registry", timeout_s))
    try:
        made = create_topic(
            client, topic, partitions=1, replicas_max=REPLICAS_MAX, settings={"cleanup.policy": "compact"}
        )
        place = TopicPartition(topic, 0)
        end = client.list_offsets({place: LATEST})[place] if len(made.leaders) == 1 else 0
    except ClientFailed as error:
        raise SchemaTopicFailed(f"the topic {topic} cannot be made or read: {error}") from error
    finally:
        client.close()
    if len(made.leaders) != 1:
        raise SchemaTopicFailed(
            f"the topic {topic} has {len(made.leaders)} partitions, and must have one, because schemas are in order"
        )
    policy = _cleanup_policy(bootstrap, topic, timeout_s)
    if policy != "compact":
        raise SchemaTopicFailed(
            f"the topic {topic} has cleanup.policy={policy}, which deletes schemas: "
            f"say `strandline config set topic {topic} cleanup.policy=compact`"
        )
    return PreparedTopic(made.topic_id, end)


def _cleanup_policy(bootstrap: str, topic: str, timeout_s: float) -> str:
    admin_api = import_module("confluent_kafka.admin")
    admin = admin_api.AdminClient(librdkafka_of(bootstrap) | {"log_level": 0}, logger=_quiet)
    resource = admin_api.ConfigResource("topic", topic)
    try:
        (answer,) = admin.describe_configs([resource], request_timeout=timeout_s).values()
        return str(answer.result()["cleanup.policy"].value)
    except _kafka_exception() as error:
        raise SchemaTopicFailed(f"the settings of {topic} cannot be read: {_words(error)}") from error


def _kafka_exception() -> type[Exception]:
    found: type[Exception] = import_module("confluent_kafka").KafkaException
    return found


def _words(error: BaseException) -> str:
    return str(error.args[0].str()) if error.args and hasattr(error.args[0], "str") else str(error)
