"""Markers that wait for a broker go to whoever leads by the time it is their turn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.unit.coordinators.world import TurnedClock

from strandline.broker.coordinating.marker_sender import TIMEOUT_S, MarkerSender
from strandline.codec.messages.write_txn_markers_request import WriteTxnMarkersRequest
from strandline.codec.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from strandline.coordinators.transactions.events import MarkersWritten, SendMarkers
from strandline.errors import TimedOut
from strandline.ids import TopicPartition

Place = tuple[str, int]


class Broker:
    """Another node, by its address: what it was asked to write; it answers, or is silent until nobody waits."""

    def __init__(self, clock: TurnedClock, broker_id: int) -> None:
        self.address = ("broker", broker_id)
        self.is_silent = False
        self.asked: list[Place] = []
        self._clock = clock

    def ask(self, request: WriteTxnMarkersRequest, version: int, on_answer: Any, *, timeout_s: float) -> None:
        self.asked += [
            (topic.name, index)
            for marker in request.markers
            for topic in marker.topics
            for index in topic.partition_indexes
        ]
        if self.is_silent:
            self._clock.call_later(timeout_s, on_answer, None, TimedOut("nothing"))
        else:
            self._clock.call_soon(on_answer, _all_written(request), None)

    def close(self) -> None: ...


def _all_written(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index) for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


class Cluster:
    """Node 1 coordinates; the topic `t` is led by others."""

    def __init__(self, *leaders: int) -> None:
        self.clock = TurnedClock()
        self.brokers = {broker_id: Broker(self.clock, broker_id) for broker_id in (2, 3)}
        self.partitions = [SimpleNamespace(leader=leader) for leader in leaders]
        topic = SimpleNamespace(partitions=self.partitions)
        image = SimpleNamespace(topic_by_name={"t": topic}.get)
        environment: Any = SimpleNamespace(
            broker_login=None,
            node_id=1,
            runtime=self.clock,
            image=lambda: image,
            address_of=lambda broker_id: ("broker", broker_id),
        )
        services: Any = None
        self.sender = MarkerSender(environment, services)
        self.sender.connect = lambda address: self.brokers[address[1]]  # type: ignore[method-assign,assignment,return-value]
        self.written: list[MarkersWritten] = []

    def send(self, name: str, producer_id: int, *indexes: int) -> None:
        places = tuple(TopicPartition("t", index) for index in indexes)
        self.sender.send(0, SendMarkers(name, producer_id, 1, 1, True, places, 2, producer_id), self.written.append)
        self.clock.run()


def test_what_waited_behind_a_silent_broker_goes_to_who_leads_by_then() -> None:
    cluster = Cluster(2, 2, 2)
    silent, other = cluster.brokers[2], cluster.brokers[3]
    silent.is_silent = True
    cluster.send("a", 5, 0)
    cluster.send("b", 6, 1)
    cluster.send("c", 7, 2)
    assert silent.asked == [("t", 0)]
    cluster.partitions[0].leader = cluster.partitions[1].leader = 3
    cluster.clock.run(TIMEOUT_S + 0.001)
    assert ("t", 1) in other.asked
    assert silent.asked == [("t", 0), ("t", 2)]
    cluster.clock.run(1.0)
    assert sorted(written.transactional_id for written in cluster.written) == ["a", "b"]
    silent.is_silent = False
    cluster.clock.run(2 * TIMEOUT_S)
    assert sorted(written.transactional_id for written in cluster.written) == ["a", "b", "c"]
    assert cluster.sender.pending_count == 0
