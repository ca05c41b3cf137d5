"""The topic on which the marks of groups are kept. It is compacted.

    key     ["<group>", "<topic>", <partition>]                       JSON
    value   {"next": 1042, "topic_id": "<uuid of the topic>"}         null removes it

A topic that was deleted and created again has another id, so the mark of the old one does not hold for it.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.client.failures import ClientFailed
from strandline.client.security import ClientSecurity, is_security_name
from strandline.client.topic_creation import create_topic
from strandline.effects.failures import EffectsUnknown
from strandline.errors import Disconnected, InvalidConfig, TimedOut

TOPIC: Final = "__strandline_effects"
REPLICAS_MAX: Final = 3
TIMEOUT_S: Final = 30.0

Place = tuple[str, int]
StoredMark = tuple[int, str]
"""The next offset whose effects may run, and the id of the topic that it is for."""
log = logging.getLogger("strandline.effects")
_quiet = logging.getLogger("strandline.effects.librdkafka")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


class MarksTopic:
    """The marks of one group, as the topic has them. For one thread at a time."""

    def __init__(self, settings: Mapping[str, Any], group: str) -> None:
        self._group = group
        found = settings.get("bootstrap.servers") or settings.get("metadata.broker.list")
        if not found:
            raise ValueError(f"the guard of the group {group} needs bootstrap.servers")
        self._bootstrap = str(found)
        try:
            self._security = ClientSecurity.of(
                {name: each for name, each in settings.items() if is_security_name(name)}
            )
        except InvalidConfig as error:
            raise EffectsUnknown(f"the effects of the group {group} are not known: {error}") from error
        self._client: dict[str, Any] = {"bootstrap.servers": self._bootstrap, "log_level": 0} | (
            {} if self._security.is_plain else self._security.librdkafka()
        )
        self._producer: Producer | None = None

    def id_of_topic(self, topic: str) -> str:
        with self._cluster() as client:
            found = client.topic(topic)
        return "" if found is None else str(found.topic_id)

    def read(self) -> dict[Place, StoredMark]:
        """Return the marks of the group."""
        with self._cluster() as client:
            settings = {"cleanup.policy": "compact"}
            create_topic(client, TOPIC, partitions=1, replicas_max=REPLICAS_MAX, settings=settings)
        marks: dict[Place, StoredMark] = {}
        for key, value in self._records():
            if key is None:
                continue
            group, topic, partition = json.loads(key)
            if group != self._group:
                continue
            place = topic, partition
            if value is None:
                marks.pop(place, None)
                continue
            stored = json.loads(value)
            before, topic_id = marks.get(place, (0, ""))
            if topic_id != stored["topic_id"]:
                before = 0
            # A member that was cut off may have written a lower one late.
            marks[place] = max(before, stored["next"]), stored["topic_id"]
        return marks

    def write(self, marks: Mapping[Place, StoredMark | None]) -> None:
        """Write marks, or remove them, and wait until they are stored."""
        failed: list[Any] = []

        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                failed.append(error)

        try:
            if self._producer is None:
                own = {"enable.idempotence": True, "linger.ms": 0, "client.id": "strandline-effects"}
                self._producer = Producer(self._client | own, logger=_quiet)
            for place, mark in marks.items():
                value = None if mark is None else json.dumps({"next": mark[0], "topic_id": mark[1]}).encode()
                self._producer.produce(TOPIC, value, self._key(place), partition=0, on_delivery=delivered)
            left = self._producer.flush(TIMEOUT_S)
        except (KafkaException, BufferError) as error:
            raise EffectsUnknown(f"{TOPIC} cannot be written: {error}") from error
        if left or failed:
            why = failed[0] if failed else f"no acknowledgement within {TIMEOUT_S:g} s"
            raise EffectsUnknown(f"{TOPIC} cannot be written: {why}")

    def _key(self, place: Place) -> bytes:
        return json.dumps([self._group, *place]).encode()

    @contextmanager
    def _cluster(self) -> Iterator[ClusterClient]:
        client = ClusterClient(ClientSettings.within(self._bootstrap, "strandline-effects", TIMEOUT_S, self._security))
        try:
            yield client
        except (ClientFailed, Disconnected, TimedOut) as error:
            raise EffectsUnknown(f"the effects of the group {self._group} are not known: {error}") from error
        finally:
            client.close()

    def _records(self) -> Iterator[tuple[bytes | None, bytes | None]]:
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
