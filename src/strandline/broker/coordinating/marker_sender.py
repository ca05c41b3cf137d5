"""Has the markers of decided transactions written: here, or by the brokers that lead the partitions.

    SendMarkers --by leader--> here: appended at once
                           --> another broker: its queue, one WriteTxnMarkers at a time with all that came meanwhile
                           --> no leader, or another one by now: looked up again, later each time
                           --> the topic is gone: as good as written

A decision that is committed is carried out however long it takes: everything is tried again until it is done, or until
this node no longer coordinates the transaction, which it is told (`drop`) or hears from a partition that has met a
newer coordinator. Markers may be written twice; a partition takes the second for what it is.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Final

from strandline.broker.environment import Environment
from strandline.broker.network.channel import Channel
from strandline.codec.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from strandline.codec.messages.write_txn_markers_response import WriteTxnMarkersResponse
from strandline.coordinators.transactions.events import MarkersWritten, SendMarkers
from strandline.errors import ErrorCode, named
from strandline.handlers.support.context import BrokerServices
from strandline.handlers.support.marker_writing import CLIENT_ID_BEGIN, Marker, write_marker
from strandline.ids import TopicPartition
from strandline.runtime.runtime import TimerHandle

log = logging.getLogger("strandline.transactions")

VERSION: Final = 2
TIMEOUT_S: Final = 4.0
"""Longer than a broker takes to say that a partition was not committed in time."""
RETRY_S: Final = 0.02
RETRY_S_MAX: Final = 0.5
MARKERS_PER_TURN_MAX: Final = 200
"""Markers that are looked at, and perhaps written here, in one turn of the loop; a transaction may have thousands."""
MARKERS_PER_REQUEST_MAX: Final = 2_000
_GONE: Final = -2
_NOBODY: Final = -1

OnWritten = Callable[[MarkersWritten], object]
WaitingMarker = tuple[TopicPartition, int, ErrorCode]
"""Where a marker is still to be written, the leader of that partition or -1, and the code of the last attempt."""


class MarkerSender:
    def __init__(self, environment: Environment, services: BrokerServices) -> None:
        self._environment = environment
        self._services = services
        self._sendings: dict[int, dict[str, _Sending]] = {}
        """By partition of `__transaction_state` and transactional id: one transaction of an id ends at a time."""
        self._due: deque[tuple[_Sending, TopicPartition]] = deque()
        self._is_flushing = False
        self._written: dict[_Sending, list[TopicPartition]] = {}
        """Not told yet."""
        self._queues: dict[int, _BrokerQueue] = {}
        self._is_closed = False

    def send(self, index: int, markers: SendMarkers, on_written: OnWritten) -> None:
        """Have these markers written, and tell of each part that is; `index` names the shard that asks."""
        if self._is_closed:
            return
        sending = _Sending(index, markers, on_written)
        of_shard = self._sendings.setdefault(index, {})
        before = of_shard.get(markers.transactional_id)
        if before is not None:
            before.end()
        of_shard[markers.transactional_id] = sending
        self.look_up(sending, markers.partitions)

    def drop(self, index: int) -> None:
        """Drop the markers of a shard that moved to another broker or is loaded again; its new owner asks again."""
        for sending in self._sendings.pop(index, {}).values():
            sending.end()

    def waiting(self, index: int, transactional_id: str, *, count_max: int) -> list[WaitingMarker]:
        """Markers of a transaction that are not written yet, so many at the most."""
        sending = self._sendings.get(index, {}).get(transactional_id)
        if sending is None:
            return []
        some = islice(sending.left.items(), count_max)
        return [(place, max(self._leader_of(place), _NOBODY), code) for place, code in some]

    @property
    def pending_count(self) -> int:
        """Markers that are not written yet, of all transactions."""
        return sum(len(sending.left) for each in self._sendings.values() for sending in each.values())

    def close(self) -> None:
        self._is_closed = True
        for index in list(self._sendings):
            self.drop(index)
        for queue in self._queues.values():
            queue.close()

    # ---- where to

    def look_up(self, sending: _Sending, places: Iterable[TopicPartition]) -> None:
        """See, on the next turn, who leads, and have the markers written there."""
        self._due.extend((sending, place) for place in places)
        if self._due and not self._is_flushing:
            self._is_flushing = True
            # Transactions that end in this turn of the loop go out together.
            self._environment.runtime.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        environment, touched = self._environment, dict[int, None]()
        for _ in range(min(MARKERS_PER_TURN_MAX, len(self._due))):
            sending, place = self._due.popleft()
            if sending.is_over or place not in sending.left:
                continue
            leader = self._leader_of(place)
            if leader == environment.node_id:
                write_marker(self._services, place, sending.marker, partial(self.on_result, sending, place))
            elif leader == _GONE:
                self._note_written(sending, place)
            elif leader == _NOBODY:
                self._retry(sending, place, ErrorCode.LEADER_NOT_AVAILABLE)
            else:
                self._queue(leader).waiting.append((sending, place))
                touched[leader] = None
        for leader in touched:
            self._queues[leader].ask()
        if self._due and not self._is_flushing:
            self._is_flushing = True
            environment.runtime.call_soon(self._flush)

    def _leader_of(self, place: TopicPartition) -> int:
        topic = self._environment.image().topic_by_name(place.topic)
        if topic is None or place.partition >= len(topic.partitions):
            # What this node coordinates it was given after the partition was made, by the same log: it is no more.
            return _GONE
        leader = topic.partitions[place.partition].leader
        is_reachable = leader == self._environment.node_id or self.address_of(leader) is not None
        return leader if is_reachable else _NOBODY

    def address_of(self, broker_id: int) -> tuple[str, int] | None:
        return self._environment.address_of(broker_id)

    def connect(self, address: tuple[str, int]) -> Channel:
        environment = self._environment
        return Channel(
            environment.runtime,
            environment.network,
            *address,
            client_id=f"{CLIENT_ID_BEGIN}{environment.node_id}",
            login=environment.broker_login,
        )

    def _queue(self, broker_id: int) -> _BrokerQueue:
        queue = self._queues.get(broker_id)
        if queue is None:
            queue = self._queues[broker_id] = _BrokerQueue(self, broker_id)
        return queue

    # ---- what came of it

    def on_result(self, sending: _Sending, place: TopicPartition, code: ErrorCode) -> None:
        if sending.is_over:
            return
        if code is ErrorCode.NONE:
            self._note_written(sending, place)
        elif code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            log.warning(
                "%s: the coordinator for %r moved; the new one will write the markers",
                place,
                sending.markers.transactional_id,
            )
            sending.end()
        elif code is ErrorCode.INVALID_PRODUCER_EPOCH:
            # The producer has gone on there with a later epoch, which it gets only when this transaction is over.
            log.error(
                "%s has a later epoch of producer %d than %d, with which %r ends; no marker is written",
                place,
                sending.markers.producer_id,
                sending.markers.producer_epoch,
                sending.markers.transactional_id,
            )
            self._note_written(sending, place)
        else:
            self._retry(sending, place, code)

    def _note_written(self, sending: _Sending, place: TopicPartition) -> None:
        if sending.left.pop(place, None) is not None:
            if not self._written:
                self._environment.runtime.call_soon(self._tell_written)
            self._written.setdefault(sending, []).append(place)

    def _tell_written(self) -> None:
        written, self._written = self._written, {}
        for sending, places in written.items():
            if not sending.is_over:
                if not sending.left:
                    self._forget(sending)
                sending.tell(tuple(places))

    def _forget(self, sending: _Sending) -> None:
        of_shard = self._sendings[sending.index]
        del of_shard[sending.markers.transactional_id]
        if not of_shard:
            del self._sendings[sending.index]

    def _retry(self, sending: _Sending, place: TopicPartition, code: ErrorCode) -> None:
        """Look again later who leads."""
        if place not in sending.left:
            return
        sending.left[place] = code
        sending.again.append(place)
        if sending.timer is None:
            delay_s = min(RETRY_S_MAX, RETRY_S * 2 ** min(sending.attempts, 10))
            sending.attempts += 1
            delay_s *= 0.5 + self._environment.runtime.random.random()
            sending.timer = self._environment.runtime.call_later(delay_s, self._try_again, sending)

    def _try_again(self, sending: _Sending) -> None:
        sending.timer = None
        places, sending.again = sending.again, []
        self.look_up(sending, places)


class _Sending:
    """The markers of one decision that are not written yet."""

    __slots__ = ("_on_written", "again", "attempts", "index", "is_over", "left", "marker", "markers", "timer")

    def __init__(self, index: int, markers: SendMarkers, on_written: OnWritten) -> None:
        self.index = index
        self.markers = markers
        self.marker = Marker(
            markers.producer_id,
            markers.producer_epoch,
            markers.coordinator_epoch,
            markers.is_commit,
            markers.transaction_version,
        )
        self.left: dict[TopicPartition, ErrorCode] = dict.fromkeys(markers.partitions, ErrorCode.NONE)
        """Each with what came of the last attempt, for those who ask why it takes so long."""
        self.again: list[TopicPartition] = []
        self.attempts = 0
        self.timer: TimerHandle | None = None
        self.is_over = False
        self._on_written = on_written

    def tell(self, places: tuple[TopicPartition, ...]) -> None:
        markers = self.markers
        self._on_written(
            MarkersWritten(
                markers.transactional_id, markers.producer_id, markers.producer_epoch, places, markers.decision
            )
        )

    def end(self) -> None:
        self.is_over = True
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class _BrokerQueue:
    """What one broker is to write; one request is under way at a time, and the next takes all that came meanwhile."""

    def __init__(self, sender: MarkerSender, broker_id: int) -> None:
        self.waiting: deque[tuple[_Sending, TopicPartition]] = deque()
        self._sender = sender
        self._broker_id = broker_id
        self._channel: Channel | None = None
        self._is_asking = False

    def ask(self) -> None:
        if self._is_asking:
            return
        asked: list[tuple[_Sending, TopicPartition]] = []
        while self.waiting and len(asked) < MARKERS_PER_REQUEST_MAX:
            sending, place = self.waiting.popleft()
            if not sending.is_over:
                asked.append((sending, place))
        if not asked:
            return
        channel = self._channel_now()
        if channel is None:
            for sending, place in asked:
                self._sender.on_result(sending, place, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        self._is_asking = True
        channel.ask(_request(asked), VERSION, partial(self._on_answer, asked), timeout_s=TIMEOUT_S)

    def _channel_now(self) -> Channel | None:
        address = self._sender.address_of(self._broker_id)
        if self._channel is not None and self._channel.address != address:
            self._channel.close()
            self._channel = None
        if self._channel is None and address is not None:
            self._channel = self._sender.connect(address)
        return self._channel

    def _on_answer(
        self,
        asked: list[tuple[_Sending, TopicPartition]],
        response: WriteTxnMarkersResponse | None,
        error: BaseException | None,
    ) -> None:
        self._is_asking = False
        codes: dict[tuple[int, str, int], int] = {}
        for marker in () if response is None else response.markers:
            for topic in marker.topics:
                for partition in topic.partitions:
                    codes[marker.producer_id, topic.name, partition.partition_index] = partition.error_code
        for sending, place in asked:
            code = codes.get((sending.markers.producer_id, *place))
            # What was not answered may be written or not, and is written again.
            self._sender.on_result(sending, place, ErrorCode.NETWORK_EXCEPTION if code is None else named(code))
        if response is None:
            # It may hang for long, and others may lead by now. What has waited behind must not hang with it, share by
            # share.
            waiting, self.waiting = self.waiting, deque()
            for sending, place in waiting:
                self._sender.look_up(sending, (place,))
        self.ask()

    def close(self) -> None:
        self.waiting.clear()
        if self._channel is not None:
            self._channel.close()
            self._channel = None


def _request(asked: list[tuple[_Sending, TopicPartition]]) -> WriteTxnMarkersRequest:
    markers: dict[_Sending, dict[str, WritableTxnMarkerTopic]] = {}
    for sending, place in asked:
        topics = markers.setdefault(sending, {})
        topic = topics.get(place.topic)
        if topic is None:
            topic = topics[place.topic] = WritableTxnMarkerTopic(name=place.topic)
        topic.partition_indexes.append(place.partition)
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=sending.marker.producer_id,
                producer_epoch=sending.marker.producer_epoch,
                transaction_result=sending.marker.is_commit,
                topics=list(topics.values()),
                coordinator_epoch=sending.marker.coordinator_epoch,
                transaction_version=sending.marker.transaction_version,
            )
            for sending, topics in markers.items()
        ]
    )
