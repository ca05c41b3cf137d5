"""A member of a group with confluent-kafka, which is librdkafka."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from tests.clients.groups.member_main import run
from tests.clients.groups.telling import Place, Teller, Wanted

_POLL_S = 0.1
_BATCH = 500


class ConfluentMember:
    def __init__(self, wanted: Wanted, teller: Teller) -> None:
        self._teller = teller
        self._unprocessed: list[Any] = []
        self._due: dict[Place, int] = {}
        """Positions behind what was processed that are not committed yet."""
        self._consumer = Consumer(_settings(wanted))
        topics = [wanted.pattern] if wanted.pattern else list(wanted.topics)
        self._consumer.subscribe(topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    def poll(self) -> None:
        timeout_s = _POLL_S
        while len(self._unprocessed) < _BATCH:
            message = self._consumer.poll(timeout_s)
            if message is None:
                break
            # A topic that is not there yet and the like: the client goes on by itself.
            if message.error() is None:
                self._unprocessed.append(message)
            timeout_s = 0
        self._process()

    def close(self) -> None:
        self._process()
        self._teller.closing()
        self._consumer.close()
        self._teller.closed()

    def _process(self) -> None:
        if self._unprocessed:
            records = [(each.topic(), each.partition(), each.offset(), each.value()) for each in self._unprocessed]
            self._unprocessed = []
            self._teller.read(records)
            self._due |= {(topic, number): offset + 1 for topic, number, offset, _ in records}
        if self._due:
            self._commit(dict(self._due))

    def _commit(self, positions: dict[Place, int]) -> None:
        asked_ns = time.monotonic_ns()
        offsets = [TopicPartition(topic, number, offset) for (topic, number), offset in positions.items()]
        try:
            answers = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as failure:
            self._teller.refused(positions, asked_ns, failure.args[0].name())
            return
        errors = [answer.error.name() for answer in answers if answer.error is not None]
        if errors:
            self._teller.refused(positions, asked_ns, errors[0])
            return
        self._teller.committed(positions, asked_ns)
        self._due.clear()

    def _on_assign(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._teller.assigned(_places(partitions))

    def _on_revoke(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        # What was fetched is still this member's to process: after this call it is another's.
        self._process()
        self._drop(partitions)
        self._teller.revoked(_places(partitions))

    def _on_lost(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._drop(partitions)
        self._teller.lost(_places(partitions))

    def _drop(self, partitions: Sequence[TopicPartition]) -> None:
        gone = set(_places(partitions))
        self._unprocessed = [each for each in self._unprocessed if (each.topic(), each.partition()) not in gone]
        for place in gone:
            self._due.pop(place, None)


def be_member(wanted: Wanted, teller: Teller, stopping: threading.Event) -> None:
    member = ConfluentMember(wanted, teller)
    while not stopping.is_set():
        member.poll()
    member.close()


def _places(partitions: Sequence[TopicPartition]) -> list[Place]:
    return [(each.topic, each.partition) for each in partitions]


def _settings(wanted: Wanted) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": wanted.bootstrap,
        "group.id": wanted.group,
        "client.id": wanted.name,
        "group.protocol": wanted.protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 100,
        "topic.metadata.refresh.interval.ms": wanted.metadata_age_ms,
        # A dead broker is tried again soon: tests kill some.
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
    }
    if wanted.instance is not None:
        settings["group.instance.id"] = wanted.instance
    if wanted.protocol == "consumer":
        # The broker sets session and heartbeat, and librdkafka refuses to be told them.
        return settings | {"group.remote.assignor": wanted.assignor}
    return settings | {
        "partition.assignment.strategy": wanted.assignor,
        "session.timeout.ms": wanted.session_ms,
        "heartbeat.interval.ms": wanted.heartbeat_ms,
    }


if __name__ == "__main__":
    run(be_member)
