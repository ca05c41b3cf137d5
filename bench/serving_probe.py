"""Bare requests that tell when each of some partitions is written and read again at the broker that leads it now.

A client library would add its own back-off to the figure. Each pass asks who leads what, sends one Produce to each
leader for all that is not written yet, and one Fetch for what is.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Final

from bench.asking import Question
from bench.brokers import BrokerFailed
from bench.clusters import Cluster
from bench.wire import PeerClosed
from strandline.codec.columns import Record, encode_batch, records_of
from strandline.codec.message import Message
from strandline.codec.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from strandline.codec.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData

GIVE_UP_S: Final = 120.0
PAUSE_S: Final = 0.02
_PRODUCE_VERSION: Final = 11
_FETCH_VERSION: Final = 12
_ANSWER_S: Final = 10.0
_PARTITION_BYTES: Final = 64 << 10
_FETCH_BYTES: Final = 64 << 20
_VALUE: Final = b"probe"


class ServingProbe:
    """Some partitions of a topic that get another leader, and what was seen of that so far.

    `is_new` says of a leader whether it is one of those that are waited for. Times are of `time.perf_counter`.
    """

    def __init__(self, cluster: Cluster, topic: str, wanted: Iterable[int], is_new: Callable[[int], bool]) -> None:
        self._cluster = cluster
        self._topic = topic
        self._wanted = set(wanted)
        self._is_new = is_new
        self._connections: dict[int, Question] = {}
        self._offsets: dict[int, int] = {}
        """By partition: where its probe was written."""
        self.elected_at = 0.0
        """When the metadata first named a new leader for all of them."""

    def __enter__(self) -> ServingProbe:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._connections.values():
            connection.__exit__(kind, error, trace)

    def until_written(self) -> float:
        """Wait until a record was written to each partition and read from it; return when that was."""
        seen: set[int] = set()
        deadline = time.perf_counter() + GIVE_UP_S
        while seen != self._wanted:
            leaders = self._leaders(deadline)
            self._write(self._by_leader(leaders, self._wanted - self._offsets.keys()))
            left = {each: self._offsets[each] for each in self._offsets.keys() - seen}
            seen |= self._read(self._by_leader(leaders, left), left)
        return time.perf_counter()

    def until_read(self, offset: int) -> float:
        """Wait until the record at an offset was read from each partition; return when that was."""
        left = dict.fromkeys(self._wanted, offset)
        deadline = time.perf_counter() + GIVE_UP_S
        while left:
            for each in self._read(self._by_leader(self._leaders(deadline), left), left):
                del left[each]
        return time.perf_counter()

    def _leaders(self, deadline: float) -> dict[int, int]:
        """Return the new leaders that the metadata names, by partition, as soon as there is one."""
        while True:
            if time.perf_counter() > deadline:
                raise BrokerFailed(f"{self._topic}: not every partition serves within {GIVE_UP_S:g} s")
            states = self._cluster.partitions(self._topic)
            found = {each.partition: each.leader for each in states if self._is_new(each.leader)}
            if not self.elected_at and found.keys() >= self._wanted:
                self.elected_at = time.perf_counter()
            if found.keys() & self._wanted:
                return found
            time.sleep(PAUSE_S)

    def _by_leader(self, leaders: dict[int, int], partitions: Iterable[int]) -> dict[int, list[int]]:
        grouped: dict[int, list[int]] = defaultdict(list)
        for each in sorted(partitions):
            if each in leaders:
                grouped[leaders[each]].append(each)
        return grouped

    def _write(self, grouped: dict[int, list[int]]) -> None:
        batch = encode_batch([Record(timestamp_ms=time.time_ns() // 1_000_000, key=None, value=_VALUE)])
        requests = {
            leader: ProduceRequest(
                acks=-1,
                timeout_ms=int(_ANSWER_S * 1000),
                topic_data=[
                    TopicProduceData(
                        name=self._topic,
                        partition_data=[PartitionProduceData(index=each, records=batch) for each in partitions],
                    )
                ],
            )
            for leader, partitions in grouped.items()
        }
        for answer in self._ask_all(requests, _PRODUCE_VERSION):
            for each in answer.responses[0].partition_responses:
                if not each.error_code:
                    self._offsets[each.index] = each.base_offset

    def _read(self, grouped: dict[int, list[int]], offsets: dict[int, int]) -> set[int]:
        """Return the partitions whose record at an offset was read."""
        requests = {
            leader: FetchRequest(
                max_wait_ms=100,
                min_bytes=1,
                max_bytes=_FETCH_BYTES,
                topics=[
                    FetchTopic(
                        topic=self._topic,
                        partitions=[
                            FetchPartition(
                                partition=each, fetch_offset=offsets[each], partition_max_bytes=_PARTITION_BYTES
                            )
                            for each in partitions
                        ],
                    )
                ],
            )
            for leader, partitions in grouped.items()
        }
        seen = set()
        for answer in self._ask_all(requests, _FETCH_VERSION):
            for each in answer.responses[0].partitions:
                wanted = offsets[each.partition_index]
                if not each.error_code and each.records and any(r.offset == wanted for r in records_of(each.records)):
                    seen.add(each.partition_index)
        return seen

    def _ask_all(self, requests: dict[int, Any], version: int) -> list[Any]:
        """Ask all leaders at once; return the answers of those that gave one."""
        asked: list[tuple[int, type[Message]]] = []
        answers = []
        for leader, request in requests.items():
            try:
                if leader not in self._connections:
                    self._connections[leader] = self._cluster.node(leader).ask(timeout_s=2 * _ANSWER_S)
                self._connections[leader].say(request, version)
                asked.append((leader, type(request)))
            except OSError:
                self._drop(leader)
        for leader, kind in asked:
            try:
                answers.append(self._connections[leader].hear(kind, version))
            except (OSError, PeerClosed):
                self._drop(leader)
        return answers

    def _drop(self, leader: int) -> None:
        connection = self._connections.pop(leader, None)
        if connection is not None:
            connection.socket.close()
