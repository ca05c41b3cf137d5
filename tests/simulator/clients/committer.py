"""Clients that commit offsets: each is the only committer of its group, and commits larger and larger offsets.

What a committer is told later must never be less than what was acknowledged before. `RecreatedCommitter` commits for
a topic that is deleted and created again meanwhile: a commit for the topic that exists now must survive all that was
still to be removed of its predecessor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final
from uuid import UUID

from tests.simulator.clients.client import REQUEST_TIMEOUT_S, History, SimClient
from tests.simulator.world.network import SimNetwork
from tests.simulator.world.runtime import SimHost

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

FIND_COORDINATOR_VERSION: Final = 3
COMMIT_VERSION: Final = 8
OFFSET_FETCH_VERSION: Final = 7


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


class RecreatedCommitter(SimCommitter):
    """Commits for a topic that is deleted and created again under it."""

    topic_id: Callable[[str], UUID | None] = staticmethod(lambda name: None)
    """Returns the id of a topic if every node that runs knows the same one."""
    vanished: Sequence[str] = ()
    """Acknowledged commits that a later answer did not know of, in words."""
    _asked_for: UUID | None = None
    _kept: tuple[UUID, int] | None = None

    def _work(self) -> None:
        self._asked_for = self.topic_id(self.partition.topic)
        super()._work()

    def _record(self, outcome: Outcome, f: Any, offset: int, invoked_ns: int, error: str = "") -> None:
        topic_id = self._asked_for
        if outcome != "ok" or topic_id is None or topic_id != self.topic_id(self.partition.topic):
            # The topic was replaced, or may have been, while the request was under way.
            return
        if f == "commit":
            self._kept = topic_id, offset
        elif self._kept is not None and self._kept[0] == topic_id and offset < self._kept[1]:
            self.vanished = (
                *self.vanished,
                f"{self.group}: offset {self._kept[1]} of {self.partition} ({topic_id}) was committed, and {offset} "
                f"is told at {self.history.now_ns() / 1e9:.3f}",
            )
