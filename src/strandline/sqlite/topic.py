"""The topic of a shipped database: one partition, read with librdkafka and written in transactions."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from strandline.runtime.fault_points import fault_point
from strandline.sqlite.failures import MomentGone, ShipperFenced, ShippingFailed, TopicAbsent, TopicUnavailable
from strandline.sqlite.records import HEADER, ShippedHeader, decode_header

POLL_S: Final = 0.1
"""Python sees Ctrl-C only between two calls of librdkafka."""
SILENCE_S: Final = 30.0
ABORT_S: Final = 10.0
CALL_S: Final = 1.0
"""The longest call of the producer; longer ones are repeated."""
_RECORDS_PER_POLL: Final = 64
_WINDOW: Final = 4
_FENCED: Final = ("_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED", "INVALID_PRODUCER_ID_MAPPING")
_PASSING: Final = ("_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN", "_TIMED_OUT_QUEUE", "_MSG_TIMED_OUT")
_REFUSED: Final = (
    "MSG_SIZE_TOO_LARGE",
    "TOPIC_AUTHORIZATION_FAILED",
    "INVALID_RECORD",
    "POLICY_VIOLATION",
    "INVALID_TIMESTAMP",
)
_CONSUMER: Final = {
    # librdkafka insists on a group id even for a consumer that never joins one nor commits.
    "group.id": "strandline-sqlite",
    "auto.offset.reset": "error",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": 100,
    # librdkafka waits a second by default when its queue is full.
    "fetch.queue.backoff.ms": 2,
    "fetch.message.max.bytes": 8 * 1024 * 1024,
    "queued.max.messages.kbytes": 64 * 1024,
}
_PRODUCER: Final = {"compression.type": "lz4", "linger.ms": 5, "transaction.timeout.ms": 60_000}

# Errors of librdkafka are raised as sentences of shipping, so its own lines would tell them twice.
_quiet = logging.getLogger("strandline.sqlite.librdkafka")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


# Its type hints differ from release to release.
def _kafka() -> Any:
    return import_module("confluent_kafka")


@dataclass(frozen=True)
class ShippedRecord:
    """A record with its header."""

    offset: int
    header: ShippedHeader
    value: bytes


class ShippedTopic:
    """Reads the records of a shipped database; `settings` are librdkafka's."""

    def __init__(self, settings: Mapping[str, Any], name: str, timeout_s: float) -> None:
        self.name = name
        self._settings = dict(settings)
        self._timeout_s = timeout_s

    def place(self, offset: int) -> str:
        return f"offset {offset} of topic {self.name}"

    def check(self, *, create: bool = False) -> None:
        """Raise ShippingFailed unless the topic has one partition and keeps every record. Create it if wanted."""
        admin = import_module("confluent_kafka.admin")
        with _errors(f"topic {self.name} cannot be looked up"):
            client = admin.AdminClient(self._settings, logger=_quiet)
            # Metadata of one named topic would create it, where the cluster allows that.
            found = client.list_topics(timeout=self._timeout_s).topics.get(self.name)
            if found is None and create:
                wanted = admin.NewTopic(self.name, 1, config={"cleanup.policy": "delete"})
                client.create_topics([wanted], request_timeout=self._timeout_s)[self.name].result()
                return
            if found is None:
                raise TopicAbsent(f"there is no topic {self.name}: let `strandline sqlite ship` create it")
            if len(found.partitions) != 1:
                raise ShippingFailed(
                    f"topic {self.name} has {len(found.partitions)} partitions, which keep no common order: a "
                    "database needs a topic with one"
                )
            if "compact" in self._setting(client, "cleanup.policy"):
                raise ShippingFailed(
                    f"topic {self.name} is compacted, which would delete transactions: set cleanup.policy=delete"
                )

    def retention_ms(self) -> int:
        """Return `retention.ms` of the topic; -1 is without end."""
        admin = import_module("confluent_kafka.admin")
        with _errors(f"the settings of topic {self.name} cannot be read"):
            return int(self._setting(admin.AdminClient(self._settings, logger=_quiet), "retention.ms") or -1)

    def _setting(self, client: Any, name: str) -> str:
        admin = import_module("confluent_kafka.admin")
        resource = admin.ConfigResource(admin.ConfigResource.Type.TOPIC, self.name)
        found = client.describe_configs([resource], request_timeout=self._timeout_s)[resource].result()
        return str(found[name].value) if name in found else ""

    # Reading

    def bounds(self) -> tuple[int, int]:
        """Return where the log begins, and where its committed records end."""
        consumer = self._consumer()
        try:
            with _errors(f"the offsets of topic {self.name} cannot be read"):
                low, high = consumer.get_watermark_offsets(self._at(), timeout=self._timeout_s)
                return int(low), int(high)
        finally:
            consumer.close()

    def offset_after(self, time_ms: int) -> int | None:
        """Return the offset of the first record that is newer than a time; None if there is none."""
        consumer = self._consumer()
        try:
            with _errors(f"the times of topic {self.name} cannot be read"):
                (found,) = consumer.offsets_for_times([self._at(time_ms + 1)], timeout=self._timeout_s)
        finally:
            consumer.close()
        return int(found.offset) if found.offset >= 0 else None

    def last_before(self, end: int, begin: int) -> ShippedRecord | None:
        """Return the last committed record before an offset; None if there is none from `begin` on.

        Markers and aborted records take offsets, too, so a window without a record is read again, doubled.
        """
        window = _WINDOW
        while end > begin:
            start = max(begin, end - window)
            newest = deque(self.read(start, end), maxlen=1)
            if newest or start == begin:
                return newest[0] if newest else None
            window *= 2
        return None

    def at(self, offset: int) -> ShippedRecord:
        """Return the record at an offset. Raise MomentGone if it was deleted."""
        for record in self.read(offset, offset + 1):
            return record
        raise MomentGone(f"{self.place(offset)} holds no record any more")

    def read(self, start: int, end: int) -> Iterator[ShippedRecord]:
        """Yield committed records from `start` to before `end`."""
        consumer = self._consumer()
        silent_since = time.monotonic()
        try:
            with _errors(f"topic {self.name} cannot be read"):
                consumer.assign([self._at(start)])
            while True:
                with _errors(f"topic {self.name} cannot be read"):
                    # A call with a timeout waits for all that it may return, so only one record is waited for.
                    messages = consumer.consume(_RECORDS_PER_POLL, 0) or consumer.consume(1, POLL_S)
                for message in messages:
                    if message.error() is not None:
                        if self._is_end(message.error(), start):
                            return
                        continue
                    offset = message.offset()
                    if offset >= end:
                        return
                    header = decode_header(message.headers(), self.place(offset))
                    yield ShippedRecord(offset, header, message.value() or b"")
                    if offset + 1 >= end:
                        return
                if messages:
                    silent_since = time.monotonic()
                elif time.monotonic() - silent_since > SILENCE_S:
                    raise TopicUnavailable(f"topic {self.name} sent nothing for {SILENCE_S:g} s: is the cluster up?")
        finally:
            consumer.close()

    def _is_end(self, error: Any, start: int) -> bool:
        """Return whether an error is the end of the partition; False if librdkafka tries again. Raise others."""
        if error.name() == "_PARTITION_EOF":
            return True
        if error.retriable() or error.name() in _PASSING:
            return False
        if error.name() in ("OFFSET_OUT_OF_RANGE", "_AUTO_OFFSET_RESET"):
            raise MomentGone(f"{self.place(start)} was deleted by retention, or the topic was made again")
        raise _failure(error, f"topic {self.name} cannot be read")

    def _consumer(self) -> Any:
        with _errors("the consumer cannot be made"):
            return _kafka().Consumer({**_CONSUMER, **self._settings}, logger=_quiet)

    def _at(self, offset: int = 0) -> Any:
        return _kafka().TopicPartition(self.name, 0, offset)


class ShippingProducer:
    """A transactional producer of the topic; it fences the one before it."""

    def __init__(self, settings: Mapping[str, Any], topic: str) -> None:
        self._topic = topic
        with _errors("the producer cannot be made"):
            own = {"transactional.id": f"strandline-sqlite-{topic}"}
            self._producer = _kafka().Producer({**_PRODUCER, **settings, **own}, logger=_quiet)
        self._is_open = False
        self._refused = ""

    def start(self, timeout_s: float) -> None:
        """Fence earlier shippers of the topic and abort what they left open."""
        with self._named(f"no transaction can begin in topic {self._topic}"):
            self._producer.init_transactions(timeout_s)

    def write(
        self, header: ShippedHeader, value: bytes | memoryview, on_offset: Callable[[int], None] | None = None
    ) -> None:
        """Add a record to the transaction, which it begins if none is open."""

        def delivered(error: Any, message: Any) -> None:
            if error is None and on_offset is not None:
                on_offset(message.offset())
            elif error is not None and error.name() in _REFUSED:
                self._refused = f"topic {self._topic} refuses a record: {error.str()} ({error.name()})"

        with self._named(f"topic {self._topic} cannot be written"):
            if not self._is_open:
                self._producer.begin_transaction()
                self._is_open = True
            while True:
                try:
                    self._producer.produce(
                        self._topic,
                        bytes(value),
                        partition=0,
                        timestamp=header.at_ms,
                        headers=[(HEADER, header.encode())],
                        on_delivery=delivered,
                    )
                    return
                except BufferError:
                    self._producer.poll(POLL_S)

    def flush(self) -> None:
        """Wait until the records so far have offsets."""
        with self._named(f"topic {self._topic} cannot be written"):
            while self._producer.flush(CALL_S):
                pass

    def commit(self) -> None:
        """Commit the open transaction, if there is one."""
        if not self._is_open:
            return
        fault_point("sqlite-before-commit")
        with self._named(f"a transaction of topic {self._topic} cannot be committed"):
            while not self._is_committed():
                pass
        self._is_open = False
        fault_point("sqlite-after-commit")

    def _is_committed(self) -> bool:
        """Commit, and return False if librdkafka needs more time."""
        try:
            self._producer.commit_transaction(CALL_S)
        except _kafka().KafkaException as failure:
            error = failure.args[0]
            if self._refused:
                raise ShippingFailed(self._refused) from None
            if error.retriable() and not error.txn_requires_abort():
                return False
            raise
        return True

    def close(self) -> None:
        """Abort what is open."""
        if self._is_open:
            self._is_open = False
            try:
                self._producer.abort_transaction(ABORT_S)
            except _kafka().KafkaException:
                # The next shipper, or the transaction's timeout, aborts it.
                self._producer.purge()

    def _named(self, doing: str) -> _Errors:
        return _Errors(doing, f"another shipper writes to topic {self._topic} now, and this one ended")


class _Errors:
    """Turns librdkafka's errors into those of shipping."""

    def __init__(self, doing: str, fenced: str = "") -> None:
        self._doing = doing
        self._fenced = fenced

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        if error is not None and isinstance(error, _kafka().KafkaException):
            raise _failure(error.args[0], self._doing, self._fenced)


def _errors(doing: str) -> _Errors:
    return _Errors(doing)


def _failure(error: Any, doing: str, fenced: str = "") -> ShippingFailed:
    """Return librdkafka's error as one of shipping."""
    if fenced and error.name() in _FENCED:
        return ShipperFenced(fenced)
    sentence = f"{doing}: {error.str()} ({error.name()})"
    if error.retriable() or error.txn_requires_abort() or error.name() in _PASSING:
        return TopicUnavailable(sentence)
    return ShippingFailed(sentence)
