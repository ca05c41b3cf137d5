"""A member of a group with aiokafka."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError
from tests.clients.groups.member_main import run
from tests.clients.groups.telling import Place, Teller, Wanted

_POLL_MS = 100
_ASSIGNORS = {"range": RangePartitionAssignor, "sticky": StickyPartitionAssignor}


class AiokafkaMember(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, wanted: Wanted, teller: Teller) -> None:
        self._teller = teller
        self._due: dict[Place, int] = {}
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=wanted.bootstrap,
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
        )
        if wanted.pattern:
            self._consumer.subscribe(pattern=wanted.pattern, listener=self)
        else:
            self._consumer.subscribe(topics=wanted.topics, listener=self)

    async def work(self, stopping: threading.Event) -> None:
        await self._consumer.start()
        while not stopping.is_set():
            await self._poll()
        self._teller.closing()
        await self._consumer.stop()
        self._teller.closed()

    async def _poll(self) -> None:
        # Nothing is awaited between what was fetched and what is said of it, so no rebalance comes in between.
        batches = await self._consumer.getmany(timeout_ms=_POLL_MS, max_records=500)
        records = [
            (record.topic, record.partition, record.offset, record.value)
            for batch in batches.values()
            for record in batch
        ]
        if records:
            self._teller.read(records)
            self._due |= {(topic, number): offset + 1 for topic, number, offset, _ in records}
        if self._due:
            await self._commit(dict(self._due))

    async def _commit(self, positions: dict[Place, int]) -> None:
        asked_ns = time.monotonic_ns()
        try:
            await self._consumer.commit({TopicPartition(*place): offset for place, offset in positions.items()})
        except KafkaError as failure:
            self._teller.refused(positions, asked_ns, type(failure).__name__)
            return
        self._teller.committed(positions, asked_ns)
        self._due.clear()

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._teller.assigned([(each.topic, each.partition) for each in assigned])

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        # A commit or a fetch may be under way. It must not wait for them: they may wait for the rebalance.
        places = [(each.topic, each.partition) for each in revoked]
        for place in places:
            self._due.pop(place, None)
        self._teller.revoked(places)


def be_member(wanted: Wanted, teller: Teller, stopping: threading.Event) -> None:
    async def work() -> None:
        await AiokafkaMember(wanted, teller).work(stopping)

    asyncio.run(work())


if __name__ == "__main__":
    run(be_member)
