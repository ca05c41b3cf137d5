"""A worker of a share group in the simulation: it is given tasks, works a while, and accepts, releases or rejects each.

Some tasks it forgets, until their locks time out. It does one request after the other on its share session, and gives
up what it holds when the session is lost. What it was given and what was answered it tells `ShareTruth`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from tests.simulator.clients.client import BACKOFF_S, REQUEST_TIMEOUT_S, History, SimClient
from tests.simulator.truth.share_truth import Delivery, ShareTruth
from tests.simulator.world.network import SimNetwork
from tests.simulator.world.runtime import SimHost
from tests.simulator.world.wire import Wire

from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.codec.messages.find_coordinator_response import FindCoordinatorResponse
from strandline.codec.messages.share_acknowledge_request import AcknowledgementBatch as AcknowledgedBatch
from strandline.codec.messages.share_acknowledge_request import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from strandline.codec.messages.share_acknowledge_response import ShareAcknowledgeResponse
from strandline.codec.messages.share_fetch_request import AcknowledgementBatch as FetchedBatch
from strandline.codec.messages.share_fetch_request import FetchPartition, FetchTopic, ShareFetchRequest
from strandline.codec.messages.share_fetch_response import ShareFetchResponse
from strandline.codec.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from strandline.codec.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from strandline.errors import ErrorCode
from strandline.ids import TopicPartition

SHARE_VERSION: Final = 2
HEARTBEAT_VERSION: Final = 1
FIND_COORDINATOR_VERSION: Final = 3
WAIT_MS: Final = 500
CALM_WORK_S: Final = 0.01
CALM_RECORDS_MAX: Final = 200
KINDS: Final = {"accept": 1, "release": 2, "reject": 3}
Leading = Callable[[TopicPartition], tuple[int, int]]
"""Leader and leader epoch of a partition, as the committed metadata says."""


@dataclass(frozen=True, slots=True)
class WorkerManners:
    """How a worker behaves, until all is calm."""

    work_s: float = 0.3
    """How long a task takes, about."""
    records_max: int = 10
    strict_share: float = 0.5
    """How many fetches ask for no record too many."""
    release_share: float = 0.1
    reject_share: float = 0.03
    forget_share: float = 0.03
    piggyback_share: float = 0.5
    """How many acknowledgements go along with the next fetch."""


class SimShareWorker(SimClient):
    def __init__(
        self,
        network: SimNetwork,
        host: SimHost,
        history: History,
        bootstrap: Sequence[tuple[str, int]],
        truth: ShareTruth,
        group: str,
        partition: TopicPartition,
        *,
        manners: WorkerManners,
        leading: Leading,
        clock_of: Callable[[int], int],
    ) -> None:
        super().__init__(network, host, history, bootstrap, [partition.topic])
        self.truth = truth
        self.group = group
        self.partition = partition
        self.manners = manners
        self._leading = leading
        self._clock_of = clock_of
        """The wall clock of a broker."""
        self.member_id = str(UUID(int=self.random.getrandbits(128), version=4))
        self.is_calm = False
        self.given = 0
        """Records."""
        self._member_epoch = 0
        self._assigned: frozenset[tuple[UUID, int]] = frozenset()
        """What the group coordinator gave it: before, the state may be made once more."""
        self._coordinator: int | None = None
        self._session_wire: Wire | None = None
        self._broker = -1
        self._epoch = 0
        """Of the next request on the share session."""
        self._held: list[Delivery] = []
        self._answers: list[tuple[Delivery, str]] = []
        """What is to be acknowledged with the next request."""
        self.runtime.call_soon(self.refresh)
        self.runtime.call_soon(self._heartbeat)
        self.runtime.call_later(self.random.random(), self._fetch)

    # Membership

    def _heartbeat(self) -> None:
        if self.is_stopped:
            return
        wire = None if self._coordinator is None else self.wire(self._coordinator, "group")
        if wire is None:
            request = FindCoordinatorRequest(key=self.group, key_type=0)
            self.ask_any(request, FIND_COORDINATOR_VERSION, FindCoordinatorResponse, self._on_found)
            return
        heartbeat = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self._member_epoch,
            subscribed_topic_names=[self.partition.topic],
        )
        wire.ask(
            heartbeat, HEARTBEAT_VERSION, ShareGroupHeartbeatResponse, self._on_heartbeat, timeout_s=REQUEST_TIMEOUT_S
        )

    def _on_found(self, answer: FindCoordinatorResponse | None) -> None:
        if answer is not None and not answer.error_code:
            self._coordinator = answer.node_id
            self.brokers[answer.node_id] = (answer.host, answer.port)
        self.runtime.call_later(BACKOFF_S, self._heartbeat)

    def _on_heartbeat(self, answer: ShareGroupHeartbeatResponse | None) -> None:
        if answer is None or answer.error_code:
            code = None if answer is None else answer.error_code
            if code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND):
                self._member_epoch, self._assigned = 0, frozenset()
            else:
                self._coordinator = None
            self.runtime.call_later(BACKOFF_S, self._heartbeat)
            return
        self._member_epoch = answer.member_epoch
        if answer.assignment is not None:
            topics = answer.assignment.topic_partitions
            self._assigned = frozenset((each.topic_id, index) for each in topics for index in each.partitions)
        self.runtime.call_later(answer.heartbeat_interval_ms / 1000, self._heartbeat)

    # Tasks

    def _again(self, after_s: float = BACKOFF_S) -> None:
        self.runtime.call_later(after_s * (0.5 + self.random.random()), self._fetch)

    def _session(self) -> Wire | None:
        """Return the connection of the share session; a new one begins a new session."""
        known = self.leader_of(self.partition)
        wire = None if known is None else self.wire(known.leader, "share")
        if known is None or wire is None:
            self.refresh_later()
            return None
        if wire is not self._session_wire:
            self._session_wire, self._broker = wire, known.leader
            self._forget()
        return wire

    def _forget(self) -> None:
        """Begin a new session: what was held in the former one is lost."""
        self._epoch = 0
        self._held, self._answers = [], []

    def _fetch(self) -> None:
        if self.is_stopped:
            return
        known = self.known.get(self.partition)
        is_assigned = known is not None and (known.topic_id, self.partition.partition) in self._assigned
        wire = self._session() if is_assigned else None
        if wire is None:
            self._again()
            return
        answers, self._answers = self._answers, []
        topic_id = self.known[self.partition].topic_id
        batches = [FetchedBatch(each.offset, each.offset, [KINDS[kind]]) for each, kind in answers]
        is_strict = self.random.random() < self.manners.strict_share
        records_max = CALM_RECORDS_MAX if self.is_calm else self.manners.records_max
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=records_max,
            batch_size=records_max,
            share_acquire_mode=1 if is_strict else 0,
            topics=[FetchTopic(topic_id=topic_id, partitions=[FetchPartition(self.partition.partition, 0, batches)])],
        )
        self._epoch += 1
        asked_at, leading = self.truth.now, self._leading(self.partition)

        def on_answer(answer: ShareFetchResponse | None) -> None:
            if not self.is_stopped:
                self._on_fetched(answer, answers, asked_at, leading)

        wire.ask(request, SHARE_VERSION, ShareFetchResponse, on_answer, timeout_s=REQUEST_TIMEOUT_S)

    def _on_fetched(
        self,
        answer: ShareFetchResponse | None,
        answers: list[tuple[Delivery, str]],
        asked_at: float,
        leading: tuple[int, int],
    ) -> None:
        if answer is None or answer.error_code:
            self._forget()
            self._again()
            return
        is_refused = False
        for told in (each for topic in answer.responses for each in topic.partitions):
            self._on_outcome(answers, told.acknowledge_error_code)
            if told.error_code:
                is_refused = True
                continue
            records = [
                (offset, each.delivery_count)
                for each in told.acquired_records
                for offset in range(each.first_offset, each.last_offset + 1)
            ]
            is_same = leading == self._leading(self.partition) and leading[0] == self._broker
            self._held += self.truth.on_given(
                self.group,
                self.host.name,
                records,
                epoch=leading[1] if is_same else -1,
                asked_at=asked_at,
                now_ms=self._clock_of(self._broker),
            )
            self.given += len(records)
        if is_refused:
            self.refresh_later()
            self._again()
        elif self._held:
            work_s = CALM_WORK_S if self.is_calm else self.manners.work_s
            self.runtime.call_later(work_s * 2 * self.random.random(), self._finish)
        else:
            self.runtime.call_soon(self._fetch)

    def _on_outcome(self, answers: list[tuple[Delivery, str]], code: int) -> None:
        if not code:
            for delivery, kind in answers:
                self.truth.on_acknowledged(self.group, delivery, kind)

    def _finish(self) -> None:
        """Decide what becomes of the tasks at hand."""
        if self.is_stopped:
            return
        held, self._held = self._held, []
        answers = [(each, kind) for each in held if (kind := self._kind())]
        answers.sort(key=lambda each: each[0].offset)
        for delivery, kind in answers:
            if kind != "release":
                self.truth.on_finishing(self.group, delivery)
        if self.random.random() < self.manners.piggyback_share or not answers:
            self._answers = answers
            self._fetch()
        else:
            self._acknowledge(answers)

    def _kind(self) -> str | None:
        drawn, manners = self.random.random(), self.manners
        if self.is_calm:
            return "accept"
        for kind, share in (
            ("release", manners.release_share),
            ("reject", manners.reject_share),
            (None, manners.forget_share),
        ):
            if drawn < share:
                return kind
            drawn -= share
        return "accept"

    def _acknowledge(self, answers: list[tuple[Delivery, str]]) -> None:
        wire = self._session()
        if wire is None or not self._epoch:
            # The session is lost, and with it what was held.
            self._again()
            return
        batches = [AcknowledgedBatch(each.offset, each.offset, [KINDS[kind]]) for each, kind in answers]
        partitions = [AcknowledgePartition(self.partition.partition, batches)]
        topic_id = self.known[self.partition].topic_id
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self._epoch,
            topics=[AcknowledgeTopic(topic_id=topic_id, partitions=partitions)],
        )
        self._epoch += 1

        def on_answer(answer: ShareAcknowledgeResponse | None) -> None:
            if self.is_stopped:
                return
            if answer is None or answer.error_code:
                self._forget()
                self._again()
                return
            for told in (each for topic in answer.responses for each in topic.partitions):
                self._on_outcome(answers, told.error_code)
            self._fetch()

        wire.ask(request, SHARE_VERSION, ShareAcknowledgeResponse, on_answer, timeout_s=REQUEST_TIMEOUT_S)

    def leave(self) -> None:
        """Close the session, and stop: what was held is available again."""
        wire = self._session_wire
        if wire is not None and not wire.is_lost and self._epoch and not wire.asked:
            request = ShareAcknowledgeRequest(
                group_id=self.group, member_id=self.member_id, share_session_epoch=-1, topics=[]
            )
            wire.ask(request, SHARE_VERSION, ShareAcknowledgeResponse, lambda _: None, timeout_s=REQUEST_TIMEOUT_S)
        self.stop()
