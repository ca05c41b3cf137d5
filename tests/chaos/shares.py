"""A share group under chaos: tasks with keys and due times, and workers, by raw requests, that write down what they do.

The checker judges them: every task is done once, in the order of its key, and not before its time. When all is healed,
the group must come to the end.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

from confluent_kafka import Producer
from tests.chaos.clients import PacedProducer

from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.client.connection import BrokerConnection
from strandline.client.coordinators import GROUP, ask_coordinator
from strandline.client.failures import ClientFailed
from strandline.codec.columns import columns_of
from strandline.codec.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from strandline.codec.messages.describe_share_group_offsets_response import DescribeShareGroupOffsetsResponse
from strandline.codec.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from strandline.codec.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from strandline.codec.messages.share_acknowledge_request import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from strandline.codec.messages.share_acknowledge_response import ShareAcknowledgeResponse
from strandline.codec.messages.share_fetch_request import FetchPartition, FetchTopic, ShareFetchRequest
from strandline.codec.messages.share_fetch_response import ShareFetchResponse
from strandline.codec.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from strandline.codec.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from strandline.errors import ErrorCode, StrandlineError
from strandline.ids import TopicPartition
from strandline.testing.client_threads import ClientThread, payload_of
from strandline.testing.history import Acknowledged, Acquired, Op, Outcome, SharePosition
from strandline.testing.recorder import Recorder

WORKERS = 3
KEYS = 20
DELAYS_MS = (0, 0, 0, 0, 500, 3_000)
TASK_SETTINGS = {"strandline.delay.enable": "true"}
LIMIT = 10
LOCK_MS = 4_000
CALL_S = 5.0
WAIT_MS = 300
RECORDS_MAX = 20
END_TIMEOUT_S = 120.0
KINDS = {"accept": 1, "release": 2, "reject": 3}
CERTAINLY_NOT = frozenset(
    {
        ErrorCode.INVALID_RECORD_STATE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        # The share coordinator refused the write of a leader that was replaced.
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
"""Answers after which nothing was stored. After any other error it may have been."""

SHARE_SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.session.timeout.ms": "6000",
    "group.share.session.timeout.ms": "6000",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "1000",
}


def tasks_of(topic: str) -> str:
    return f"{topic}-tasks"


def group_of(topic: str) -> str:
    return f"share-group-of-{topic}"


class TaskProducer(PacedProducer):
    """Sends tasks with keys, some of which are due later."""

    def _send_one(self, producer: Producer) -> None:
        partition = self.partitions[self._sent % len(self.partitions)]
        value = f"{self.process}:{self._sent}"
        producer.produce(
            partition.topic,
            payload_of(value, self.value_bytes),
            key=f"key-{self._sent % KEYS}",
            partition=partition.partition,
            timestamp=time.time_ns() // 1_000_000 + DELAYS_MS[self._sent % len(DELAYS_MS)],
            on_delivery=partial(self._on_delivery, partition, value, self.recorder.now_ns()),
        )
        self._sent += 1
        self._in_flight += 1


class TaskWorker(ClientThread):
    """A worker: takes tasks, works a little, accepts most of them; now and then it forgets some, or dies."""

    def __init__(
        self, recorder: Recorder, bootstrap: str, partition: TopicPartition, group: str, rng: random.Random
    ) -> None:
        self.process = recorder.new_process()
        super().__init__(recorder, f"task-worker-{self.process}")
        self.partition = partition
        self.group = group
        self._rng = rng
        self._settings = ClientSettings(bootstrap, "task-worker", request_timeout_s=CALL_S, api_timeout_s=4 * CALL_S)
        self._member_id = ""
        self._member_epoch = 0
        self._epoch = 0
        self._beat_at = 0.0

    def work(self) -> None:
        while not self.stopping.is_set():
            self.process = self.recorder.new_process()
            self._member_id = str(UUID(int=self._rng.getrandbits(128), version=4))
            self._member_epoch = self._epoch = 0
            self._beat_at = 0.0
            client = ClusterClient(self._settings)
            try:
                self._live_once(client)
            except (StrandlineError, ClientFailed, OSError):
                self.stopping.wait(0.2)
            finally:
                client.close()

    def _live_once(self, client: ClusterClient) -> None:
        leader, topic_id = client.leader_of(self.partition)
        connection = client.connection(client.address_of(leader))
        while not self.stopping.is_set() and self._rng.random() > 0.005:
            self._heartbeat(client)
            if connection.is_waiting:
                raise StrandlineError("the leader, which coordinates as well, did not answer a heartbeat here")
            given = self._fetch(connection, topic_id)
            self.stopping.wait(0.02 * self._rng.random())
            self._acknowledge(connection, topic_id, given)

    def _heartbeat(self, client: ClusterClient) -> None:
        if time.monotonic() < self._beat_at:
            return
        request = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self._member_id,
            member_epoch=self._member_epoch,
            subscribed_topic_names=[self.partition.topic],
        )
        answer = ask_coordinator(
            client,
            "join the share group",
            self.group,
            request,
            ShareGroupHeartbeatResponse,
            lambda response: response.error_code,
            key_type=GROUP,
        )
        self._member_epoch = 0 if answer.error_code else answer.member_epoch
        self._beat_at = time.monotonic() + answer.heartbeat_interval_ms / 1000

    def _fetch(self, connection: BrokerConnection, topic_id: UUID) -> list[Acquired]:
        partition = FetchPartition(self.partition.partition)
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=RECORDS_MAX,
            batch_size=RECORDS_MAX,
            share_acquire_mode=self._rng.choice((0, 1)),
            topics=[FetchTopic(topic_id=topic_id, partitions=[partition])],
        )
        self._epoch += 1
        invoked_ns = self.recorder.now_ns()
        try:
            answer = connection.ask(request, ShareFetchResponse)
        except (StrandlineError, OSError) as error:
            lost = (Acquired(self.group, str(self.partition), -1, 0),)
            self._record("info", "share_fetch", lost, invoked_ns, str(error))
            raise
        now_ms = time.time_ns() // 1_000_000
        given = [each for topic in answer.responses for told in topic.partitions for each in self._given(told, now_ms)]
        if given:
            self._record("ok", "share_fetch", tuple(given), invoked_ns)
        codes = [answer.error_code, *(each.error_code for topic in answer.responses for each in topic.partitions)]
        for code in filter(None, codes):
            raise StrandlineError(ErrorCode(code).name)
        return given

    def _given(self, told: object, now_ms: int) -> list[Acquired]:
        facts = {
            record.offset: (record.timestamp_ms, record.key)
            for columns in columns_of(told.records or b"")  # type: ignore[attr-defined]
            for record in columns
        }
        given = []
        for each in told.acquired_records:  # type: ignore[attr-defined]
            for offset in range(each.first_offset, each.last_offset + 1):
                due_ms, key = facts[offset]
                early_ms = max(0, due_ms - now_ms) if each.delivery_count == 1 else 0
                name = None if key is None else key.decode()
                given.append(Acquired(self.group, str(self.partition), offset, each.delivery_count, name, early_ms))
        return given

    def _acknowledge(self, connection: BrokerConnection, topic_id: UUID, given: Sequence[Acquired]) -> None:
        answers = [(each, kind) for each in given if (kind := self._kind())]
        if not answers:
            return
        batches = [AcknowledgementBatch(each.offset, each.offset, [KINDS[kind]]) for each, kind in answers]
        partition = AcknowledgePartition(self.partition.partition, batches)
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            topics=[AcknowledgeTopic(topic_id=topic_id, partitions=[partition])],
        )
        self._epoch += 1
        mops = tuple(
            Acknowledged(self.group, each.partition, each.offset, each.deliveries, kind) for each, kind in answers
        )
        invoked_ns = self.recorder.now_ns()
        try:
            answer = connection.ask(request, ShareAcknowledgeResponse)
        except (StrandlineError, OSError) as error:
            self._record("info", "share_acknowledge", mops, invoked_ns, str(error))
            raise
        code = answer.error_code or answer.responses[0].partitions[0].error_code
        outcome: Outcome = "ok" if not code else "fail" if code in CERTAINLY_NOT else "info"
        self._record(outcome, "share_acknowledge", mops, invoked_ns, ErrorCode(code).name if code else "")
        if code:
            raise StrandlineError(ErrorCode(code).name)

    def _kind(self) -> str | None:
        drawn = self._rng.random()
        return "release" if drawn < 0.05 else None if drawn < 0.06 else "accept"

    def _record(self, outcome: Outcome, f: str, mops: tuple[object, ...], invoked_ns: int, error: str = "") -> None:
        now_ns = self.recorder.now_ns()
        self.recorder.add(Op(self.process, outcome, f, mops, invoked_ns, now_ns, error=error))  # type: ignore[arg-type]


@dataclass
class ShareWorkload:
    """A topic of tasks, who writes it, and who works on it."""

    recorder: Recorder
    bootstrap: str
    partition: TopicPartition
    group: str
    producer: TaskProducer
    workers: list[TaskWorker]

    @property
    def clients(self) -> list[ClientThread]:
        return [self.producer, *self.workers]

    def configure(self) -> None:
        """Give the group its settings before a worker joins it: without them it would begin at the end of the log."""
        settings = {
            "share.auto.offset.reset": "earliest",
            "share.order": "key",
            "share.delivery.count.limit": str(LIMIT),
            "share.record.lock.duration.ms": str(LOCK_MS),
            "strandline.share.backoff.ms": "200",
        }
        configs = [AlterableConfig(name, 0, value) for name, value in settings.items()]
        request = IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(32, self.group, configs)])
        client = ClusterClient(ClientSettings(self.bootstrap, "task-admin"))
        try:
            answer = client.ask_any(request, IncrementalAlterConfigsResponse)
            assert not answer.responses[0].error_code, answer.responses[0].error_message
        finally:
            client.close()

    def finish(self, end: int) -> str:
        """Wait until the group has done everything, and write down how far it is; return what is missing, in words."""
        deadline = time.monotonic() + END_TIMEOUT_S
        start = -1
        client = ClusterClient(ClientSettings(self.bootstrap, "task-watcher", request_timeout_s=CALL_S))
        try:
            while start < end and time.monotonic() < deadline:
                start = self._start_offset(client)
                time.sleep(0.2)
        finally:
            client.close()
        now_ns = self.recorder.now_ns()
        mop = SharePosition(self.group, str(self.partition), start, LIMIT)
        self.recorder.add(Op(self.recorder.new_process(), "ok", "share_start", (mop,), now_ns, now_ns, final=True))
        return "" if start >= end else f"{self.group} is at {start} of {end} after {END_TIMEOUT_S:g} s"

    def _start_offset(self, client: ClusterClient) -> int:
        groups = [DescribeShareGroupOffsetsRequestGroup(group_id=self.group, topics=None)]
        answer = ask_coordinator(
            client,
            "read the share group's offsets",
            self.group,
            DescribeShareGroupOffsetsRequest(groups=groups),
            DescribeShareGroupOffsetsResponse,
            lambda response: response.groups[0].error_code,
            key_type=GROUP,
        )
        found = [each.start_offset for topic in answer.groups[0].topics for each in topic.partitions]
        return found[0] if found else -1


def shares_over(recorder: Recorder, bootstrap: str, topic: str, *, seed: int, per_second: float) -> ShareWorkload:
    partition, group = TopicPartition(tasks_of(topic), 0), group_of(topic)
    workers = [
        TaskWorker(recorder, bootstrap, partition, group, random.Random(f"{seed} worker {seat}"))
        for seat in range(WORKERS)
    ]
    producer = TaskProducer(recorder, bootstrap, [partition], per_second=per_second)
    workload = ShareWorkload(recorder, bootstrap, partition, group, producer, workers)
    workload.configure()
    return workload


def without_clocks(ops: list[Op]) -> list[Op]:
    """Return a history without due times: where the clocks of nodes jumped, their leaders gave tasks early."""
    return [
        replace(op, mops=tuple(mop._replace(early_ms=0) if isinstance(mop, Acquired) else mop for mop in op.mops))
        if op.f == "share_fetch"
        else op
        for op in ops
    ]
