"""A topic that nodes share: one reader and one writer of it for the whole node.

It is a client of the brokers that lead the topic, and uses the partitions that this one leads directly: a node of one
has no login at itself. A writer waits until the reader has its record. So what was written is known here when
`append_record` returns.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from functools import partial
from typing import Any, Final, NamedTuple

from strandline.broker.environment import Environment
from strandline.broker.network.broker_channels import BrokerChannels
from strandline.codec.columns import Record, encode_batch, records_of
from strandline.codec.fetch import FetchAnswer, PartitionFetch, encode_follower_fetch, parse_fetch_answer
from strandline.codec.message import Message
from strandline.codec.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from strandline.codec.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from strandline.codec.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from strandline.errors import ErrorCode, MalformedMessage, RequestError, StrandlineError, error_code, named
from strandline.handlers.support.context import BrokerServices
from strandline.partition.partition import Partition
from strandline.quorum.image.cluster_image import Topic
from strandline.tiers.store.waiting import Deadline, LateAnswer, Signal, Started, pause, start, within

log = logging.getLogger("strandline.tiering")

TIMEOUT_S: Final = 10.0
"""Seconds that a request may take."""
APPEND_S_MAX: Final = 30.0
"""Seconds in which a record is written, with all attempts."""
POLL_MS: Final = 500
RETRY_S: Final = 0.1
FETCH_BYTES_MAX: Final = 4 << 20
READ_BYTES: Final = 64 << 10
LATEST: Final = -1
EARLIEST: Final = -2
CONSUMER: Final = -1
NO_EPOCH: Final = -1
_CREATE_VERSION: Final = 4
_FETCH_API: Final = 1
_FETCH_VERSION: Final = 17
_LIST_VERSION: Final = 7
_PRODUCE_VERSION: Final = 11


class TopicShape(NamedTuple):
    """How a topic is created."""

    partitions: int
    replication_factor: int
    settings: dict[str, str]


class TopicClient(ABC):
    """The reader and writer of one topic. A subclass says what its records mean."""

    def __init__(self, environment: Environment, services: BrokerServices, name: str) -> None:
        self.name: Final = name
        self._environment = environment
        self._services = services
        self._runtime = environment.runtime
        self._channels = BrokerChannels(environment, "tiering")
        self.positions: dict[int, int] = {}
        """By partition of the topic: the offset that is read next. What is not read has none."""
        self._waiting: dict[int, list[tuple[int, Signal[None]]]] = {}
        self._news: Signal[None] = Signal(self._runtime)
        self._loops: dict[int, Started[None]] = {}
        self.hold: Signal[None] | None = None
        """While it is there, no record is taken. It is set when records are taken again."""
        self._is_creating = False
        self._is_closed = False
        self.malformed = 0
        """Records that were passed over, because they cannot be decoded."""

    @abstractmethod
    def shape(self) -> TopicShape:
        """Return how the topic is created, if there is none."""

    @abstractmethod
    def take(self, place: int, record: Record) -> None:
        """Take the next record of a partition of the topic. Raises MalformedMessage for one to pass over."""

    async def begin_at(self, place: int, offset: int) -> bool:
        """Prepare to read on at `offset`, because the records before it are gone. Return whether that was possible."""
        return True

    def on_began(self, place: int) -> None:  # noqa: B027  # most have nothing to do
        """Forget what was read: the next record is that of the offset of `begin_at`."""

    def close(self) -> None:
        self._is_closed = True
        self._channels.close()
        for loop in list(self._loops.values()):
            loop.cancel()

    # The topic

    def topic(self) -> Topic | None:
        return self._environment.image().topic_by_name(self.name)

    def leader_of(self, place: int) -> int:
        known = self._environment.image().partition(self.name, place)
        return -1 if known is None else known.leader

    def create_topic(self) -> None:
        """Create the topic, if there is none."""
        if self._is_creating or self._is_closed or self.topic() is not None:
            return
        self._is_creating = True
        shape = self.shape()
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=self.name,
                    num_partitions=shape.partitions,
                    replication_factor=shape.replication_factor,
                    configs=[CreatableTopicConfig(name=name, value=value) for name, value in shape.settings.items()],
                )
            ],
            timeout_ms=int(TIMEOUT_S * 1000),
        )
        self._services.controller_channel.ask(request, _CREATE_VERSION, self._on_created, timeout_s=TIMEOUT_S)

    def _on_created(self, response: Any, error: BaseException | None) -> None:
        self._is_creating = False
        code = ErrorCode.NETWORK_EXCEPTION if response is None else named(response.topics[0].error_code)
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            log.warning("%s cannot be created now: %s", self.name, code.name)

    # Writing

    async def append_record(self, place: int, *values: bytes, limit_s: float = APPEND_S_MAX) -> ErrorCode:
        """Write records as one batch, and wait until they are read here. Return why that was not possible in time.

        What was written and not answered is written again, so it may stand in the topic twice.
        """
        deadline, code, now_ms = Deadline(self._runtime, limit_s), ErrorCode.NETWORK_EXCEPTION, self._runtime.now_ms()
        batch = encode_batch([Record(timestamp_ms=now_ms, key=None, value=each) for each in values])
        while not self._is_closed and deadline.left_s > 0:
            if self.topic() is None:
                self.create_topic()
            else:
                self.read(place)
                code, next_offset = await self._append_to(place, batch)
                if not code:
                    await self._wait_read(place, next_offset, deadline.left_s)
                    return ErrorCode.NONE
            await pause(self._runtime, RETRY_S)
        return code

    async def _append_to(self, place: int, batch: bytes) -> tuple[ErrorCode, int]:
        """Return an error code, or NONE and the offset behind the record when it is committed."""
        own = self._own(place)
        if own is None:
            response = await self.ask(
                "produce", self.leader_of(place), _produce(self.name, place, batch), _PRODUCE_VERSION
            )
            if response is None:
                return ErrorCode.NETWORK_EXCEPTION, -1
            result = response.responses[0].partition_responses[0]
            return named(result.error_code), result.base_offset + 1
        committed: Signal[Exception | None] = Signal(self._runtime)
        try:
            own.append_internal(batch, committed.set)
            next_offset = own.log.log_end_offset
            error = await committed
        except (StrandlineError, OSError) as refusal:
            return named(error_code(refusal)), -1
        return (ErrorCode.NONE, next_offset) if error is None else (named(error_code(error)), -1)

    def _own(self, place: int) -> Partition | None:
        """Return a partition of the topic that this node leads."""
        partition = self._services.partition(self.name, place)
        return partition if partition is not None and partition.is_leader else None

    async def _end_of(self, place: int) -> int | None:
        """Return the end of a partition of the topic; None if its leader cannot tell now."""
        own = self._own(place)
        if own is not None:
            # Until then it does not know what its predecessors had committed.
            return own.high_watermark if own.high_watermark >= own.epoch_start_offset else None
        return await self._listed(place, LATEST)

    async def _listed(self, place: int, timestamp: int) -> int | None:
        """Return the start or the end of a partition that another broker leads."""
        asked = ListOffsetsPartition(partition_index=place, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=CONSUMER, topics=[ListOffsetsTopic(name=self.name, partitions=[asked])])
        response = await self.ask("list", self.leader_of(place), request, _LIST_VERSION)
        found = None if response is None else response.topics[0].partitions[0]
        return None if found is None or found.error_code else found.offset

    async def read_to_end(self, place: int) -> bool:
        """Return when everything is read that was written before this call; False if its leader cannot tell now."""
        self.read(place)
        end_offset = await self._end_of(place)
        if end_offset is None:
            return False
        await self._wait_read(place, end_offset, APPEND_S_MAX)
        return True

    async def _wait_read(self, place: int, offset: int, limit_s: float) -> None:
        if self.positions.get(place, -1) < offset:
            signal: Signal[None] = Signal(self._runtime)
            self._waiting.setdefault(place, []).append((offset, signal))
            try:
                await within(self._runtime, limit_s, signal)
            except LateAnswer:
                raise RequestError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"{self.name}-{place} was not read up to {offset} in {limit_s:.0f} s; is its leader up?",
                ) from None

    async def ask(self, use: str, broker_id: int, request: Message, version: int) -> Any:
        """Return the answer of a broker; None if there is none."""
        channel = self._channels.find((use, broker_id), broker_id)
        if channel is None:
            return None
        signal: Signal[Any] = Signal(self._runtime)
        channel.ask(request, version, lambda response, _: signal.set(response), timeout_s=TIMEOUT_S)
        return await signal

    # Reading

    def read(self, place: int) -> None:
        """Read a partition of the topic from now on."""
        if place not in self.positions:
            self.positions[place] = 0
            self.keep_reading()

    def keep_reading(self) -> None:
        """Have a reader for each leader of what is read. Called from time to time, because leaders change."""
        if self._is_closed:
            return
        for leader in {self.leader_of(place) for place in self.positions} - {-1} - self._loops.keys():
            follow = self._follow_own() if leader == self._environment.node_id else self._follow(leader)
            self._loops[leader] = loop = start(self._runtime, follow)
            loop.outcome.add_done_callback(partial(self._on_ended, leader))

    def _on_ended(self, leader: int, _: object) -> None:
        self._loops.pop(leader, None)

    async def _follow_own(self) -> None:
        """Read what this node leads, as long as it does."""
        while not self._is_closed:
            mine = [place for place in self.positions if self.leader_of(place) == self._environment.node_id]
            if not mine:
                return
            is_any_new = False
            await self._wait_for_turn()
            for place in mine:
                own = self._own(place)
                if own is not None:
                    own.advance_listeners[self] = None
                    if own.log_start_offset > self.positions[place]:
                        await self._begin_at(place, own.log_start_offset)
                    is_any_new = self._read_own(place, own) or is_any_new
            if is_any_new:
                # Others have their turn.
                await pause(self._runtime, 0.0)
            else:
                self._news = Signal(self._runtime)
                timer = self._runtime.call_later(POLL_MS / 1000, self._news.set, None)
                await self._news
                timer.cancel()
            self.keep_reading()

    def _read_own(self, place: int, own: Partition) -> bool:
        """Take the next records, and return whether there were any."""
        position = self.positions[place]
        try:
            piece = own.log.read(position, size_bytes_max=READ_BYTES, limit_offset=own.high_watermark)
        except (StrandlineError, OSError):
            # The log failed, or was truncated: the next leader is read.
            return False
        if piece is None:
            return False
        try:
            data = piece.read()
        finally:
            piece.release()
        self._take(place, data)
        return self.positions[place] > position

    def on_advance(self, size_bytes: int) -> None:
        """Called when there are records in a partition of the topic that this node leads."""
        self._news.set(None)

    def on_gone(self) -> None:
        self._news.set(None)

    async def _follow(self, leader: int) -> None:
        """Read what one broker leads, as long as it does."""
        while not self._is_closed:
            topic = self.topic()
            mine = [place for place in self.positions if self.leader_of(place) == leader]
            if topic is None or not mine:
                return
            answer = await self._fetch(leader, topic, mine)
            await self._wait_for_turn()
            is_any_wrong = answer is None or bool(answer.error_code)
            for fetched in () if answer is None else answer.partitions:
                if fetched.error_code:
                    is_any_wrong = True
                    if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                        start_offset = await self._listed(fetched.partition, EARLIEST)
                        if start_offset is not None:
                            await self._begin_at(fetched.partition, start_offset)
                else:
                    self._take(fetched.partition, bytes(fetched.records))
            if is_any_wrong:
                await pause(self._runtime, RETRY_S)
            self.keep_reading()

    async def _fetch(self, leader: int, topic: Topic, places: list[int]) -> FetchAnswer | None:
        channel = self._channels.find(("fetch", leader), leader)
        if channel is None:
            return None
        body = encode_follower_fetch(
            _FETCH_VERSION,
            replica_id=CONSUMER,
            replica_epoch=-1,
            wait_ms_max=POLL_MS,
            size_bytes_max=FETCH_BYTES_MAX,
            session_id=0,
            session_epoch=-1,
            partitions=[
                PartitionFetch(topic.id.bytes, place, NO_EPOCH, self.positions[place], NO_EPOCH, -1, FETCH_BYTES_MAX)
                for place in places
            ],
            forgotten=[],
        )
        signal: Signal[FetchAnswer | None] = Signal(self._runtime)

        def on_body(view: memoryview | None, error: BaseException | None) -> None:
            answer = None
            if view is not None:
                try:
                    # The view is another request's when this returns.
                    answer = parse_fetch_answer(memoryview(bytes(view)), 0, _FETCH_VERSION)
                except MalformedMessage as fault:
                    log.error("node %d sent a malformed Fetch response: %s", leader, fault)
            signal.set(answer)

        channel.ask_raw(_FETCH_API, _FETCH_VERSION, [body], on_body, timeout_s=TIMEOUT_S)
        return await signal

    async def _wait_for_turn(self) -> None:
        while self.hold is not None:
            await self.hold

    def _take(self, place: int, data: bytes) -> None:
        position = self.positions[place]
        for record in records_of(data):
            if record.offset < position:
                continue
            position = record.offset + 1
            try:
                self.take(place, record)
            except MalformedMessage as error:
                self.malformed += 1
                log.error("%s-%d: the record at offset %d is passed over: %s", self.name, place, record.offset, error)
        self.positions[place] = position
        waiting = self._waiting.get(place)
        if waiting:
            self._waiting[place] = [each for each in waiting if each[0] > position]
            for offset, signal in waiting:
                if offset <= position:
                    signal.set(None)

    async def _begin_at(self, place: int, offset: int) -> None:
        position = self.positions[place]
        is_ready = await self.begin_at(place, offset)
        # Another reader, of another leader, may have gone on meanwhile.
        if is_ready and self.positions[place] == position:
            self.on_began(place)
            self.positions[place] = offset
        elif not is_ready:
            await pause(self._runtime, RETRY_S)


def _produce(topic: str, place: int, batch: bytes) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=int(TIMEOUT_S * 1000),
        topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=place, records=batch)])],
    )
