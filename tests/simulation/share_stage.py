"""Members of a share group for stories in the simulation, and a share coordinator in memory."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.hostile.batches import produce
from tests.simulation.stage import Play, stage
from tests.simulator.options import TopicOptions
from tests.simulator.world.cluster import SimNode
from tests.simulator.world.wire import Wire

from strandline.broker.coordinating.share_delivery import ShareDelivery
from strandline.codec.columns import Record, encode_batch
from strandline.codec.messages.produce_response import ProduceResponse
from strandline.codec.messages.share_acknowledge_request import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from strandline.codec.messages.share_acknowledge_response import ShareAcknowledgeResponse
from strandline.codec.messages.share_fetch_request import AcknowledgementBatch as FetchedBatch
from strandline.codec.messages.share_fetch_request import FetchPartition, FetchTopic, ShareFetchRequest
from strandline.codec.messages.share_fetch_response import ShareFetchResponse
from strandline.codec.record_batch import HEADER, PREFIX_SIZE
from strandline.coordinators.shares.share_state import NO_START_OFFSET, ShareState, StateBatch
from strandline.errors import ErrorCode

GROUP = "workers"
TASKS = TopicOptions("tasks", 1, 1, {})
Acknowledged = tuple[int, int, Sequence[int]]
"""First and last offset, and types."""


@dataclass
class Kept:
    """What the share coordinator knows of one share partition."""

    start_offset: int = NO_START_OFFSET
    leader_epoch: int = -1
    complete_count: int = -1
    records: dict[int, tuple[int, int]] = field(default_factory=dict)


class MemoryPersister:
    """A share coordinator in memory for all brokers. It answers a little later, or not until it is let."""

    def __init__(self, play: Play) -> None:
        self._call_in = play.loop.call_in
        self.kept: dict[tuple[str, uuid.UUID, int], Kept] = {}
        self.refuses: ErrorCode = ErrorCode.NONE
        """The answer to every write from now on."""
        self.is_held = False
        self._held: list[Callable[[], object]] = []
        self.writes: list[tuple[int, tuple[StateBatch, ...]]] = []

    def read(
        self,
        group_id: str,
        topic_id: uuid.UUID,
        partition: int,
        leader_epoch: int,
        on_done: Callable[[ErrorCode, ShareState | None], object],
    ) -> None:
        kept = self.kept.setdefault((group_id, topic_id, partition), Kept())
        if leader_epoch < kept.leader_epoch:
            self._call_in(0.01, on_done, ErrorCode.FENCED_LEADER_EPOCH, None)
            return
        kept.leader_epoch = leader_epoch
        batches = tuple(StateBatch(each, each, *kept.records[each]) for each in sorted(kept.records))
        self._call_in(0.01, on_done, ErrorCode.NONE, ShareState(1, kept.start_offset, batches))

    def write(
        self,
        group_id: str,
        topic_id: uuid.UUID,
        partition: int,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
        on_done: Callable[[ErrorCode], object],
    ) -> None:
        def store() -> None:
            kept = self.kept[group_id, topic_id, partition]
            if leader_epoch < kept.leader_epoch:
                on_done(ErrorCode.FENCED_LEADER_EPOCH)
            elif self.refuses:
                on_done(self.refuses)
            else:
                self.writes.append((start_offset, tuple(batches)))
                if start_offset != NO_START_OFFSET:
                    kept.start_offset = start_offset
                kept.complete_count = delivery_complete_count
                for first, last, state, count in batches:
                    kept.records.update(dict.fromkeys(range(first, last + 1), (state, count)))
                for gone in [each for each in kept.records if each < kept.start_offset]:
                    del kept.records[gone]
                on_done(ErrorCode.NONE)

        if self.is_held:
            self._held.append(store)
        else:
            self._call_in(0.01, store)

    def let(self) -> None:
        """Answer what was held back."""
        self.is_held = False
        held, self._held = self._held, []
        for store in held:
            store()


class Worker:
    """A member of the share group with one connection."""

    def __init__(self, play: Play, node: SimNode, member_id: str, topic: str = "tasks", group_id: str = GROUP) -> None:
        self.play = play
        self.topic_id = play.topic_id(topic)
        self.member_id = member_id
        self.group_id = group_id
        self.epoch = 0
        self._node = node
        self._client = play.client(topic)
        self.wire: Wire | None = None

    def request(self, acknowledged: Sequence[Acknowledged] = (), **fields: Any) -> ShareFetchRequest:
        batches = [FetchedBatch(first, last, list(types)) for first, last, types in acknowledged]
        topics = [FetchTopic(topic_id=self.topic_id, partitions=[FetchPartition(0, 0, batches)])]
        values = {"max_records": 500, "batch_size": 500, "max_bytes": 1 << 20, "min_bytes": 1, "max_wait_ms": 0}
        return ShareFetchRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=self.epoch,
            **{"topics": topics, **values, **fields},
        )

    def send(self, request: Any, answer_class: Any, version: int = 2) -> list[Any]:
        """Send a request; its answer comes into the list."""
        answers: list[Any] = []
        if self.wire is None:
            client = self._client
            self.wire = Wire(client.runtime, client.network, self._node.name, 9092, client_id=self.member_id)
        self.wire.ask(request, version, answer_class, answers.append, timeout_s=60.0)
        self.epoch = max(1, request.share_session_epoch + 1)
        return answers

    def begin_fetch(self, acknowledged: Sequence[Acknowledged] = (), **fields: Any) -> list[Any]:
        return self.send(self.request(acknowledged, **fields), ShareFetchResponse)

    def fetch(self, acknowledged: Sequence[Acknowledged] = (), **fields: Any) -> Any:
        """Return the response as a whole."""
        answers = self.begin_fetch(acknowledged, **fields)
        self.play.until(lambda: answers, "an answer")
        return answers[0]

    def poll(self, acknowledged: Sequence[Acknowledged] = (), **fields: Any) -> list[tuple[int, int, int]]:
        """Return what was acquired: first and last offset, and delivery count."""
        fields.setdefault("max_wait_ms", 500)
        return acquired_in(self.fetch(acknowledged, **fields))

    def acknowledge(self, *acknowledged: Acknowledged, **fields: Any) -> ErrorCode:
        answers = self.begin_acknowledge(*acknowledged, **fields)
        self.play.until(lambda: answers, "an answer")
        return outcome_in(answers[0])

    def begin_acknowledge(self, *acknowledged: Acknowledged, **fields: Any) -> list[Any]:
        batches = [AcknowledgementBatch(first, last, list(types)) for first, last, types in acknowledged]
        topics = [AcknowledgeTopic(topic_id=self.topic_id, partitions=[AcknowledgePartition(0, batches)])]
        values = {"share_session_epoch": self.epoch, "member_id": self.member_id, "topics": topics, **fields}
        return self.send(ShareAcknowledgeRequest(group_id=self.group_id, **values), ShareAcknowledgeResponse)

    def vanish(self) -> None:
        """Close the connection without a word."""
        assert self.wire is not None
        self.wire.close()


def outcome_in(answer: Any) -> ErrorCode:
    if answer.error_code:
        return ErrorCode(answer.error_code)
    return ErrorCode(answer.responses[0].partitions[0].error_code) if answer.responses else ErrorCode.NONE


def acquired_in(answer: Any) -> list[tuple[int, int, int]]:
    assert answer.error_code == 0, ErrorCode(answer.error_code).name
    found = []
    for topic in answer.responses:
        for each in topic.partitions:
            assert each.error_code == 0, ErrorCode(each.error_code).name
            ranges = [(got.first_offset, got.last_offset, got.delivery_count) for got in each.acquired_records]
            if ranges:
                batches = list(batches_in(each.records))
                assert batches[0][0] <= ranges[0][0], "the records do not begin with what was acquired"
                assert batches[-1][1] >= ranges[-1][1], "the records end before what was acquired"
            found += ranges
    return found


def batches_in(records: bytes) -> Iterator[tuple[int, int]]:
    """Yield first and last offset of each batch."""
    at = 0
    while at < len(records):
        header = HEADER.unpack_from(records, at)
        yield header[0], header[0] + header[6]
        at += header[1] + PREFIX_SIZE


def write(play: Play, *sizes: int, topic: str = "tasks") -> None:
    """Write batches of so many records."""
    runtime = play.leader(topic).runtime
    assert runtime is not None
    for size in sizes:
        batch = encode_batch([Record(timestamp_ms=runtime.now_ms(), value=b"task") for _ in range(size)])
        answer = play.ask(play.leader(topic), produce(topic, batch), 12, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == 0


@contextmanager
def share_stage(
    seed: int = 1, *, topic: TopicOptions = TASKS, nodes: int = 1, reset: str = "earliest", **settings: str
) -> Iterator[tuple[Play, MemoryPersister]]:
    """A cluster whose brokers deliver to share groups, and keep the state in memory."""
    given = {**{name.replace("_", "."): value for name, value in settings.items()}}
    with stage(seed, topic, nodes=nodes, controllers=1 if nodes == 1 else 3, settings=given) as play:
        persister = MemoryPersister(play)
        for each in play.cluster.nodes.values():
            assert each.node is not None
            delivery = each.node.late.share_delivery.loaded = ShareDelivery(each.node.environment, persister)
            defaults = delivery.settings_of
            delivery.settings_of = lambda group_id, of=defaults: of(group_id)._replace(auto_offset_reset=reset)  # type: ignore
        yield play, persister
        # What was written is not part of the history that the checker knows.
        play.is_over = True


@contextmanager
def stored_stage(seed: int) -> Iterator[Play]:
    """Three nodes that deliver to share groups, and keep the state on one partition of the internal topic."""
    topic = TopicOptions("tasks", 1, 3, {"min.insync.replicas": "2"})
    settings = {"share.coordinator.state.topic.num.partitions": "1"}
    with stage(seed, topic, settings=settings) as play:
        node = play.leader("tasks").node
        assert node is not None
        done: list[ErrorCode] = []
        node.persister.initialize(GROUP, play.topic_id("tasks"), 0, 1, 0, done.append)
        play.until(lambda: done, "the state is initialized", 60.0)
        assert done == [ErrorCode.NONE]
        yield play
        play.is_over = True
