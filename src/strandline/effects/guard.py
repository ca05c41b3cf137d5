"""The replay guard: which effects a group has run, kept on a compacted topic.

    key     ["<group>", "<topic>", <partition>]                       JSON
    value   {"next": 1042, "topic_id": "<uuid of the topic>"}         null removes it

`next` is the offset behind the highest one whose effects ran, and never goes back. A topic that was deleted and created
again has another id, so the mark of the old one does not hold for it.
"""

from __future__ import annotations

import inspect
import json
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.client.failures import ClientFailed
from strandline.client.security import ClientSecurity, is_security_name
from strandline.client.topic_creation import create_topic
from strandline.effects.messages import place_of
from strandline.errors import Disconnected, TimedOut, WorldError

TOPIC: Final = "__strandline_effects"
REPLICAS_MAX: Final = 3
TIMEOUT_S: Final = 30.0
FLUSH_EVERY_S: Final = 1.0
"""How old a mark that `done` noted becomes at most, if effects go on, before it is written."""
READ_EVERY_S: Final = 1.0

Place = tuple[str, int]
log = logging.getLogger("strandline.effects")
_quiet = logging.getLogger("strandline.effects.librdkafka")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


class EffectsUnknown(WorldError):
    """The marks of a group cannot be read or written, so it is not known which effects may run."""


class EffectsGuard:
    """The marks of one group. Several threads may use it.

    `settings` are those of a client of librdkafka, with bootstrap.servers; `group` is group.id of them by default.
    """

    def __init__(self, settings: Mapping[str, Any], group: str | None = None) -> None:
        self.group = str(group or settings.get("group.id", ""))
        if not self.group:
            raise ValueError("the guard needs the name of the consumer group: group.id, or group=")
        self._bootstrap = str(settings["bootstrap.servers"])
        self._security = ClientSecurity.of({name: each for name, each in settings.items() if is_security_name(name)})
        self._client: dict[str, Any] = {"bootstrap.servers": self._bootstrap, "log_level": 0} | (
            {} if self._security.is_plain else self._security.librdkafka()
        )
        self._lock = threading.Lock()
        self._marks: dict[Place, int] = {}
        """The next offset whose effects may run, by partitions that were looked up."""
        self._changed: set[Place] = set()
        self._ids: dict[str, str] = {}
        self._stored: dict[bytes, tuple[int, str]] = {}
        """What was read last, so that partitions that are assigned together are read together."""
        self._read_s = -math.inf
        self._producer: Producer | None = None
        self._flushed_s = time.monotonic()

    @property
    def is_used(self) -> bool:
        """Return whether a mark was asked for or set. Until then a worker has nothing to mark or to flush."""
        return bool(self._marks)

    def allowed(self, message: Any) -> bool:
        """Return whether the effects of a message may run: its offset is above the group's mark."""
        topic, partition, offset = place_of(message)
        with self._lock:
            mark = self._marks.get((topic, partition))
            if mark is None:
                mark = self._look_up((topic, partition))
            return offset >= mark

    def done(self, message: Any) -> None:
        """Note that the effects of a message, and of all before it in its partition, ran. It is written by `flush`."""
        topic, partition, offset = place_of(message)
        self.mark(topic, partition, offset + 1)
        if time.monotonic() - self._flushed_s > FLUSH_EVERY_S:
            self.flush()

    def mark(self, topic: str, partition: int, next_offset: int) -> None:
        """Note that all effects below an offset ran. A lower offset than before changes nothing."""
        place = topic, partition
        with self._lock:
            mark = self._marks.get(place)
            if mark is None:
                mark = self._look_up(place)
            if next_offset > mark:
                self._marks[place] = next_offset
                self._changed.add(place)

    def flush(self) -> None:
        """Write what changed. Call it before offsets are committed, so that no commit is ahead of its mark."""
        with self._lock:
            self._flushed_s = time.monotonic()
            changed, self._changed = self._changed, set()
            try:
                self._write({place: self._value(place) for place in changed})
            except EffectsUnknown:
                self._changed |= changed
                raise

    def assigned(self, places: Iterable[Place]) -> None:
        """Read the marks of these partitions again before they are used: another member may have moved them."""
        self.flush()
        with self._lock:
            self._read_s = -math.inf
            self._ids.clear()
            for each in places:
                self._marks.pop(each, None)

    def reset(self, topic: str, partition: int) -> None:
        """Forget a mark, so that effects run again. For an operator who wants just that."""
        with self._lock:
            self._write({(topic, partition): None})
            self._changed.discard((topic, partition))
            self._marks[topic, partition] = 0

    # The topic

    def _value(self, place: Place) -> bytes:
        return json.dumps({"next": self._marks[place], "topic_id": self._topic_id(place[0])}).encode()

    def _key(self, place: Place) -> bytes:
        return json.dumps([self.group, *place]).encode()

    def _look_up(self, place: Place) -> int:
        """Read the mark of a partition from the topic."""
        if time.monotonic() - self._read_s > READ_EVERY_S:
            self._stored = self._read_marks()
            self._read_s = time.monotonic()
        next_offset, topic_id = self._stored.get(self._key(place), (0, ""))
        self._marks[place] = next_offset if topic_id == self._topic_id(place[0]) else 0
        return self._marks[place]

    def _topic_id(self, topic: str) -> str:
        if topic not in self._ids:
            with self._cluster() as client:
                found = client.topic(topic)
            self._ids[topic] = "" if found is None else str(found.topic_id)
        return self._ids[topic]

    def _read_marks(self) -> dict[bytes, tuple[int, str]]:
        """Return the mark of each key of the topic, with the id of the topic that it is for."""
        with self._cluster() as client:
            settings = {"cleanup.policy": "compact"}
            create_topic(client, TOPIC, partitions=1, replicas_max=REPLICAS_MAX, settings=settings)
        marks: dict[bytes, tuple[int, str]] = {}
        for key, value in self._read():
            if key is None:
                continue
            if value is None:
                marks.pop(key, None)
                continue
            stored = json.loads(value)
            before, topic_id = marks.get(key, (0, ""))
            if topic_id != stored["topic_id"]:
                before = 0
            # A member that was cut off may have written a lower one late.
            marks[key] = max(before, stored["next"]), stored["topic_id"]
        return marks

    @contextmanager
    def _cluster(self) -> Iterator[ClusterClient]:
        client = ClusterClient(ClientSettings.within(self._bootstrap, "strandline-effects", TIMEOUT_S, self._security))
        try:
            yield client
        except (ClientFailed, Disconnected, TimedOut) as error:
            raise EffectsUnknown(f"the effects of the group {self.group} are not known: {error}") from error
        finally:
            client.close()

    def _read(self) -> Iterator[tuple[bytes | None, bytes | None]]:
        consumer = Consumer(
            self._client
            | {
                "group.id": "strandline-effects-reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
            },
            logger=_quiet,
        )
        try:
            consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
            until = time.monotonic() + TIMEOUT_S
            while time.monotonic() < until:
                for message in consumer.consume(1000, 0.2):
                    error = message.error()
                    if error is None:
                        yield message.key(), message.value()
                    elif error.code() == KafkaError._PARTITION_EOF:
                        return
                    else:
                        log.debug("reading %s: %s", TOPIC, error)
            raise EffectsUnknown(f"{TOPIC} was not read to its end within {TIMEOUT_S:g} s")
        except KafkaException as error:
            raise EffectsUnknown(f"{TOPIC} cannot be read: {error}") from error
        finally:
            consumer.close()

    def _write(self, values: Mapping[Place, bytes | None]) -> None:
        if not values:
            return
        failed: list[Any] = []

        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                failed.append(error)

        try:
            if self._producer is None:
                own = {"enable.idempotence": True, "linger.ms": 0, "client.id": "strandline-effects"}
                self._producer = Producer(self._client | own, logger=_quiet)
            for place, value in values.items():
                self._producer.produce(TOPIC, value, self._key(place), partition=0, on_delivery=delivered)
            left = self._producer.flush(TIMEOUT_S)
        except (KafkaException, BufferError) as error:
            raise EffectsUnknown(f"{TOPIC} cannot be written: {error}") from error
        if left or failed:
            why = failed[0] if failed else f"no acknowledgement within {TIMEOUT_S:g} s"
            raise EffectsUnknown(f"{TOPIC} cannot be written: {why}")


_current: ContextVar[EffectsGuard | None] = ContextVar("strandline_effects", default=None)
_installed: EffectsGuard | None = None


def install(settings: Mapping[str, Any], group: str | None = None) -> EffectsGuard:
    """Make the guard of a group that `allowed` and `done` use in this process, where no worker set another one."""
    global _installed
    _installed = EffectsGuard(settings, group)
    return _installed


@contextmanager
def guarding(guard: EffectsGuard) -> Iterator[EffectsGuard]:
    """Have `allowed` and `done` use a guard within the block, in this thread or task."""
    token = _current.set(guard)
    try:
        yield guard
    finally:
        _current.reset(token)


def guarded(guard: EffectsGuard, handler: Callable[..., Any]) -> Callable[..., Any]:
    """Return a handler, or coroutine function, within which `allowed` and `done` use a guard. For workers."""
    if inspect.iscoroutinefunction(handler):

        async def run_async(*given: Any) -> Any:
            with guarding(guard):
                return await handler(*given)

        return run_async

    def run(*given: Any) -> Any:
        with guarding(guard):
            return handler(*given)

    return run


def allowed(message: Any) -> bool:
    """Return whether the effects of a message may run. It is false if the group ran them before it was rewound."""
    return _guard().allowed(message)


def done(message: Any) -> None:
    """Note that the effects of a message ran. A worker that sets the guard does this itself."""
    _guard().done(message)


def _guard() -> EffectsGuard:
    guard = _current.get() or _installed
    if guard is None:
        raise RuntimeError(
            "no guard knows the group: call effects.install({'bootstrap.servers': ..., 'group.id': ...}) first"
        )
    return guard
