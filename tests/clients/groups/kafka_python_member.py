"""A member of a group with kafka-python."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError
from tests.clients.groups.member_main import run
from tests.clients.groups.telling import Place, Teller, Wanted

_POLL_MS = 1000
"""Long: 3.0.12 may lose an assignment that comes between two polls, and then turns in a circle until it is fenced."""
_ASSIGNORS = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}


class KafkaPythonMember(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, wanted: Wanted, teller: Teller) -> None:
        self._teller = teller
        self._due: dict[Place, int] = {}
        self._consumer = KafkaConsumer(
            bootstrap_servers=wanted.bootstrap.split(","),
            group_id=wanted.group,
            client_id=wanted.name,
            group_instance_id=wanted.instance,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=(_ASSIGNORS[wanted.assignor],),
            session_timeout_ms=wanted.session_ms,
            heartbeat_interval_ms=wanted.heartbeat_ms,
            metadata_max_age_ms=wanted.metadata_age_ms,
            fetch_max_wait_ms=100,
            reconnect_backoff_max_ms=200,
        )
        if wanted.pattern:
            self._consumer.subscribe(pattern=wanted.pattern, listener=self)
        else:
            self._consumer.subscribe(topics=list(wanted.topics), listener=self)

    def poll(self) -> None:
        batches = self._consumer.poll(timeout_ms=_POLL_MS, max_records=500)
        records = [
            (record.topic, record.partition, record.offset, record.value)
            for batch in batches.values()
            for record in batch
        ]
        if records:
            self._teller.read(records)
            self._due |= {(topic, number): offset + 1 for topic, number, offset, _ in records}
        if self._due:
            self._commit(dict(self._due))

    def close(self) -> None:
        self._teller.closing()
        self._consumer.close()
        self._teller.closed()

    def _commit(self, positions: dict[Place, int]) -> None:
        asked_ns = time.monotonic_ns()
        offsets = {TopicPartition(*place): OffsetAndMetadata(offset, "", -1) for place, offset in positions.items()}
        try:
            self._consumer.commit(offsets)
        except KafkaError as failure:
            self._teller.refused(positions, asked_ns, type(failure).__name__)
            return
        self._teller.committed(positions, asked_ns)
        self._due.clear()

    # The callbacks run inside `poll`, when everything that it returned before has been processed.

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._teller.assigned([(each.topic, each.partition) for each in assigned])

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        places = [(each.topic, each.partition) for each in revoked]
        self._drop(places)
        self._teller.revoked(places)

    def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        places = [(each.topic, each.partition) for each in lost]
        self._drop(places)
        self._teller.lost(places)

    def _drop(self, places: Iterable[Place]) -> None:
        for place in places:
            self._due.pop(place, None)


def be_member(wanted: Wanted, teller: Teller, stopping: threading.Event) -> None:
    member = KafkaPythonMember(wanted, teller)
    while not stopping.is_set():
        member.poll()
    member.close()


if __name__ == "__main__":
    run(be_member)
