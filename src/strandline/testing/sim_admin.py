"""Those who change the cluster, and those who commit offsets, while everything else goes on.

`SimAdministrator` makes and deletes topics, moves replicas and leaderships; it takes no for an answer. `SimCommitter`
is the only committer of its group: what it is told later must never be less than what was acknowledged before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from strandline.codec.message import Message
from strandline.codec.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from strandline.codec.messages.alter_partition_reassignments_response import AlterPartitionReassignmentsResponse
from strandline.codec.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from strandline.codec.messages.create_topics_response import CreateTopicsResponse
from strandline.codec.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from strandline.codec.messages.delete_topics_response import DeleteTopicsResponse
from strandline.codec.messages.elect_leaders_request import ElectLeadersRequest
from strandline.codec.messages.elect_leaders_response import ElectLeadersResponse
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.codec.messages.find_coordinator_response import FindCoordinatorResponse
from strandline.codec.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from strandline.codec.messages.offset_commit_response import OffsetCommitResponse
from strandline.codec.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestTopic
from strandline.codec.messages.offset_fetch_response import OffsetFetchResponse
from strandline.ids import TopicPartition
from strandline.testing.history import Committed, Op, Outcome
from strandline.testing.sim_client import REQUEST_TIMEOUT_S, History, SimClient
from strandline.testing.sim_network import SimNetwork
from strandline.testing.sim_runtime import SimHost

SCRATCH_MAX: Final = 3
TIMEOUT_MS: Final = 4_000
FIND_COORDINATOR_VERSION: Final = 3
COMMIT_VERSION: Final = 8
OFFSET_FETCH_VERSION: Final = 7


class SimAdministrator(SimClient):
    def __init__(
        self,
        network: SimNetwork,
        host: SimHost,
        history: History,
        bootstrap: Sequence[tuple[str, int]],
        topic: str,
        *,
        every_s: float,
    ) -> None:
        super().__init__(network, host, history, bootstrap, [topic])
        self.every_s = every_s
        self.asked = 0
        self._scratch = 0
        self.runtime.call_soon(self.refresh)
        self.runtime.call_later(every_s * self.random.random(), self._work)

    def _work(self) -> None:
        if self.is_stopped:
            return
        self.runtime.call_later(self.every_s * (0.5 + self.random.random()), self._work)
        self.asked += 1
        self.refresh()
        self.random.choice([self._create, self._delete, self._move, self._elect])()

    def _ask(self, request: Message, version: int, answer_class: type[Message]) -> None:
        self.ask_any(request, version, answer_class, lambda _: None)

    def _name(self) -> str:
        return f"scratch-{self._scratch % SCRATCH_MAX}"

    def _create(self) -> None:
        self._scratch += 1
        topic = CreatableTopic(name=self._name(), num_partitions=2, replication_factor=-1)
        self._ask(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), 7, CreateTopicsResponse)

    def _delete(self) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=self._name())], timeout_ms=TIMEOUT_MS)
        self._ask(request, 6, DeleteTopicsResponse)

    def _move(self) -> None:
        """Other replicas for a partition, or the same in another order."""
        partition, known = self.random.choice(sorted(self.known.items()) or [(None, None)])
        if partition is None or known is None or len(self.brokers) < len(known.replicas):
            return
        replicas = self.random.sample(sorted(self.brokers), len(known.replicas))
        wanted = ReassignableTopic(
            name=partition.topic, partitions=[ReassignablePartition(partition.partition, replicas)]
        )
        request = AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=[wanted])
        self._ask(request, 0, AlterPartitionReassignmentsResponse)

    def _elect(self) -> None:
        request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=TIMEOUT_MS)
        self._ask(request, 2, ElectLeadersResponse)


class SimCommitter(SimClient):
    """Commits larger and larger offsets for its group, and asks what is committed; one request at a time."""

    def __init__(
        self,
        network: SimNetwork,
        host: SimHost,
        history: History,
        bootstrap: Sequence[tuple[str, int]],
        partition: TopicPartition,
        *,
        pause_s: float,
    ) -> None:
        super().__init__(network, host, history, bootstrap, [partition.topic])
        self.group = f"group of {host.name}"
        self.partition = partition
        self.process = history.new_process()
        self.pause_s = pause_s
        self.committed = 0
        """Commits that were acknowledged."""
        self._offset = 0
        self._coordinator: int | None = None
        self.runtime.call_soon(self.refresh)
        self._later()

    def _later(self) -> None:
        if not self.is_stopped:
            self.runtime.call_later(self.pause_s * (0.5 + self.random.random()), self._work)

    def _work(self) -> None:
        wire = None if self._coordinator is None else self.wire(self._coordinator, "group")
        if wire is None:
            request = FindCoordinatorRequest(key=self.group, key_type=0)
            self.ask_any(request, FIND_COORDINATOR_VERSION, FindCoordinatorResponse, self._on_coordinator)
            return
        topic, index = self.partition
        invoked_ns = self.history.now_ns()
        if self.random.random() < 0.6:
            self._offset += 1
            offset = self._offset
            at = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
            commit = OffsetCommitRequest(
                group_id=self.group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[at])]
            )

            def on_answer(answer: OffsetCommitResponse | None) -> None:
                self._on_committed(offset, invoked_ns, answer)

            wire.ask(commit, COMMIT_VERSION, OffsetCommitResponse, on_answer, timeout_s=REQUEST_TIMEOUT_S)
        else:
            wanted = OffsetFetchRequestTopic(name=topic, partition_indexes=[index])
            fetch = OffsetFetchRequest(group_id=self.group, topics=[wanted])

            def on_told(answer: OffsetFetchResponse | None) -> None:
                self._on_told(invoked_ns, answer)

            wire.ask(fetch, OFFSET_FETCH_VERSION, OffsetFetchResponse, on_told, timeout_s=REQUEST_TIMEOUT_S)

    def _on_coordinator(self, answer: FindCoordinatorResponse | None) -> None:
        if answer is not None and not answer.error_code:
            self._coordinator = answer.node_id
            self.refresh()
        self._later()

    def _on_committed(self, offset: int, invoked_ns: int, answer: OffsetCommitResponse | None) -> None:
        outcome: Outcome = "info"
        if answer is None:
            self._lose_coordinator()
        elif code := answer.topics[0].partitions[0].error_code:
            self._lose_coordinator()
            self._record(outcome, "commit", offset, invoked_ns, error=str(code))
            self._later()
            return
        else:
            outcome = "ok"
            self.committed += 1
        self._record(outcome, "commit", offset, invoked_ns)
        self._later()

    def _on_told(self, invoked_ns: int, answer: OffsetFetchResponse | None) -> None:
        if answer is None or answer.error_code or answer.topics[0].partitions[0].error_code:
            self._lose_coordinator()
        else:
            self._record("ok", "read_committed_offset", answer.topics[0].partitions[0].committed_offset, invoked_ns)
        self._later()

    def _record(self, outcome: Outcome, f: Any, offset: int, invoked_ns: int, error: str = "") -> None:
        mop = Committed(self.group, str(self.partition), offset)
        self.history.ops.append(Op(self.process, outcome, f, (mop,), invoked_ns, self.history.now_ns(), error=error))

    def _lose_coordinator(self) -> None:
        self._coordinator = None
        self.refresh_later()
