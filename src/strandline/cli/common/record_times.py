"""When the records at given offsets were written, read as any consumer reads them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from strandline.cli.common.client import Cluster, kafka_api
from strandline.cli.group.state import Place

Spot = tuple[Place, int]
"""An offset in a partition."""

# Python sees Ctrl-C only between two calls of librdkafka, so no call may be long.
_POLL_S = 0.1
_RECORDS_PER_POLL = 500
_NOT_AVAILABLE = 0


class RecordTimes:
    """Remembers what it was last asked for: a position that did not move is not read again."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._consumer: Any = None
        self._known: dict[Spot, int | None] = {}
        self._ends: set[Spot] = set()

    def read(self, wanted: Iterable[Spot]) -> dict[Spot, int | None]:
        """Milliseconds since 1970 of the first record at or behind each offset; None where there is none.

        What has no time, or could not be read while the command may wait, is left out.
        """
        spots = dict.fromkeys(wanted)
        self._known = {spot: time_ms for spot, time_ms in self._known.items() if spot in spots}
        # Where there was no record, one may have come since.
        self._ends.clear()
        deadline = time.monotonic() + self._cluster.timeout_s
        # A consumer reads a partition at one offset at a time; groups that share one are read in turn.
        rounds: list[dict[Place, int]] = []
        for place, offset in spots:
            if (place, offset) not in self._known:
                free = next((each for each in rounds if place not in each), None)
                if free is None:
                    rounds.append(free := {})
                free[place] = offset
        for each in rounds:
            self._read(each, deadline)
        found = {spot: time_ms for spot, time_ms in self._known.items() if time_ms is not None}
        return found | dict.fromkeys(self._ends)

    def _read(self, pending: dict[Place, int], deadline: float) -> None:
        kafka = kafka_api()
        consumer = self._open()
        with self._cluster.errors("cannot read the records at the positions"):
            consumer.assign([kafka.TopicPartition(*place, offset) for place, offset in pending.items()])
            while pending and time.monotonic() < deadline:
                done = set()
                for message in consumer.consume(_RECORDS_PER_POLL, _POLL_S):
                    place = message.topic(), message.partition()
                    if place in pending and self._note(place, pending[place], message):
                        done.add(place)
                        del pending[place]
                if done and pending:
                    # What is known need not be fetched any further.
                    consumer.incremental_unassign([kafka.TopicPartition(*place) for place in done])
            consumer.unassign()

    def _note(self, place: Place, wanted: int, message: Any) -> bool:
        """Whether that settles the question for the partition."""
        error = message.error()
        if error is None:
            kind, timestamp_ms = message.timestamp()
            self._known[place, wanted] = None if kind == _NOT_AVAILABLE else timestamp_ms
            return True
        if error.retriable() or error.name() in ("_ALL_BROKERS_DOWN", "_TRANSPORT"):
            return False
        if error.name() == "_PARTITION_EOF":
            # What had an offset was no record: the markers of transactions.
            self._ends.add((place, wanted))
        else:
            # An offset that is gone by now.
            self._known[place, wanted] = None
        return True

    def _open(self) -> Any:
        if self._consumer is None:
            self._consumer = self._cluster.consumer(
                # librdkafka insists on a group id even for a consumer that never joins one nor commits.
                group_id="strandline-cli",
                auto_offset_reset="error",
                enable_auto_commit=False,
                enable_partition_eof=True,
                isolation_level="read_uncommitted",
                fetch_wait_max_ms=100,
                fetch_message_max_bytes=65_536,
                queued_min_messages=1,
            )
        return self._consumer

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
