"""What all members of groups in the simulation share: finding the coordinator, owning partitions, reading, committing.

A member processes each record when it has read it, and commits what it has processed. It begins where the group stands,
at 0 if nowhere. Some of what it does is what real clients do by accident: a commit comes once more, long after the
generation it was meant for, and a member that was fenced goes on for a while as if it had not heard.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tests.simulator.clients.client import BACKOFF_S, REQUEST_TIMEOUT_S, History
from tests.simulator.clients.consumer import Position, SimConsumer
from tests.simulator.truth.group_truth import GroupTruth, Tag
from tests.simulator.world.network import SimNetwork
from tests.simulator.world.runtime import SimHost
from tests.simulator.world.wire import OnAnswer, Wire

from strandline.codec.message import Message
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.codec.messages.find_coordinator_response import FindCoordinatorResponse
from strandline.codec.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from strandline.codec.messages.offset_commit_response import OffsetCommitResponse
from strandline.codec.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from strandline.codec.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
)
from strandline.errors import ErrorCode
from strandline.ids import TopicPartition
from strandline.testing.history import Committed, Function, Member, Op, Outcome

FIND_COORDINATOR_VERSION: Final = 3
OFFSET_FETCH_VERSION: Final = 9
COMMIT_VERSION: Final = 9

COMMITS_KEPT: Final = 8
"""How many of its own commits a member may see come once more."""

ELSEWHERE: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
"""Answers of a node that does not coordinate the group, or not yet, or not any more."""
CERTAINLY_NOT_COMMITTED: Final = (
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.GROUP_ID_NOT_FOUND,
)


@dataclass(frozen=True, slots=True)
class Manners:
    """How a member behaves."""

    session_timeout_s: float = 6.0
    """Of classic members; the consumer protocol has it from the group."""
    rebalance_timeout_s: float = 10.0
    heartbeat_s: float = 1.0
    commit_pause_s: float = 0.5
    late_share: float = 0.3
    """How often an old commit is sent once more when a generation begins."""
    zombie_share: float = 0.3
    """How often a member that is fenced goes on with what it had."""
    zombie_s: float = 4.0


class SimMember(SimConsumer):
    fenced_by: ClassVar[tuple[ErrorCode, ...]] = ()
    """Answers to a commit after which a member is none any more."""
    names_itself: ClassVar[bool] = False
    """Whether it says who it is when it asks where the group stands."""

    def __init__(
        self,
        network: SimNetwork,
        host: SimHost,
        history: History,
        bootstrap: Sequence[tuple[str, int]],
        truth: GroupTruth,
        group: str,
        topics: Sequence[str],
        *,
        manners: Manners | None = None,
        instance_id: str | None = None,
    ) -> None:
        super().__init__(network, host, history, bootstrap, (), topics=topics)
        self.truth = truth
        self.group = group
        self.manners = manners or Manners()
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        """Or the member epoch."""
        self.on_over: Callable[[SimMember], object] = lambda member: None
        """Called when another has taken this member's place for good."""
        self.commits = 0
        """That were acknowledged."""
        self.refused = 0
        """Commits that came too late, and were rejected for that."""
        self.committed: dict[TopicPartition, int] = {}
        self.is_zombie = False
        self._coordinator: int | None = None
        self._is_finding = False
        self._is_committing = False
        self._tags = 0
        self._sent: deque[OffsetCommitRequest] = deque(maxlen=COMMITS_KEPT)
        self._term = 0
        """Grows when the member gives everything up: answers to what it asked before are void."""
        now_ns = history.now_ns()
        history.ops.append(Op(self.process, "ok", "subscribe", (Member(group),), now_ns, now_ns))
        self.on_topology = self._on_topology
        self._has_begun = False
        self.runtime.call_later(self.manners.commit_pause_s, self._commit_by_time)

    @property
    def owned(self) -> list[TopicPartition]:
        return list(self.positions)

    def begin(self) -> None:
        """Join the group; the topics are known by now."""
        raise NotImplementedError

    def leave(self) -> None:
        """In good order, and for good."""
        raise NotImplementedError

    def on_fenced(self) -> None:
        """Join again, because the group has gone on without this member."""
        raise NotImplementedError

    def subscribed(self) -> list[TopicPartition]:
        """Return all partitions of the topics, in order, as far as they are known."""
        return sorted(each for each in self.known if each.topic in self.topics)

    def _on_topology(self) -> None:
        if not self._has_begun and {each.topic for each in self.known} >= set(self.topics):
            self._has_begun = True
            self.begin()
        self._fetch_all()

    # The coordinator

    def ask_coordinator(
        self,
        request: Message,
        version: int,
        answer_class: type[Message],
        on_answer: OnAnswer,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        """Unless the member gives everything up before, None comes if there is no answer, or no coordinator to ask."""
        wire = self._coordinator_wire()
        if wire is None:
            self.later(on_answer, None)
            return
        term = self._term

        def on_told(answer: Any) -> None:
            if answer is None:
                self._coordinator = None
            if term == self._term and not self.is_stopped:
                on_answer(answer)

        wire.ask(request, version, answer_class, on_told, timeout_s=timeout_s)

    def _coordinator_wire(self) -> Wire | None:
        wire = None if self._coordinator is None else self.wire(self._coordinator, "group")
        if wire is None and not self._is_finding:
            self._is_finding = True
            request = FindCoordinatorRequest(key=self.group, key_type=0)
            self.ask_any(request, FIND_COORDINATOR_VERSION, FindCoordinatorResponse, self._on_found)
        return wire

    def _on_found(self, answer: FindCoordinatorResponse | None) -> None:
        self._is_finding = False
        if answer is not None and not answer.error_code:
            self._coordinator = answer.node_id
            self.brokers[answer.node_id] = (answer.host, answer.port)

    def is_elsewhere(self, code: int) -> bool:
        if code in ELSEWHERE:
            self._coordinator = None
            return True
        return False

    def later(self, then: Callable[..., object], *args: object) -> None:
        """In a moment, unless the member gives everything up before."""
        self._in_term(BACKOFF_S * (0.5 + self.random.random()), then, *args)

    def _in_term(self, delay_s: float, then: Callable[..., object], *args: object) -> None:
        term = self._term

        def unless_void() -> None:
            if term == self._term and not self.is_stopped:
                then(*args)

        self.runtime.call_later(delay_s, unless_void)

    # Owning partitions

    def take(self, partitions: Iterable[TopicPartition]) -> None:
        """Own these and no others; new ones are read from where the group stands."""
        wanted = dict.fromkeys(partitions)
        self.release([each for each in self.positions if each not in wanted])
        added = [each for each in wanted if each not in self.positions]
        if added:
            self._ask_where(added)

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in list(partitions):
            # A fetch that is under way must not move it on.
            self.positions.pop(partition).moves += 1
            self.committed.pop(partition, None)

    def give_up(self) -> None:
        """Own nothing, and hear nothing of what was asked before."""
        self._term += 1
        self._is_committing = False
        self.is_zombie = False
        self.release(self.positions)
        self._note_assignment()

    def claim(self, partitions: Iterable[TopicPartition]) -> None:
        """Record what is owned from now on; no other member may be assigned it meanwhile."""
        if self.member_id:
            owned = frozenset((self.known[each].topic_id, each.partition) for each in partitions)
            self.truth.on_owned(self.group, self.member_id, owned)

    def wants(self, partition: TopicPartition) -> bool:
        """Whether a partition whose position has just come is still to be owned."""
        raise NotImplementedError

    def _ask_where(self, partitions: list[TopicPartition]) -> None:
        topics: dict[str, OffsetFetchRequestTopics] = {}
        for name, index in partitions:
            topics.setdefault(name, OffsetFetchRequestTopics(name=name)).partition_indexes.append(index)
        wanted = OffsetFetchRequestGroup(group_id=self.group, topics=list(topics.values()))
        if self.names_itself:
            wanted.member_id, wanted.member_epoch = self.member_id, self.generation
        invoked_ns = self.history.now_ns()

        def on_answer(answer: OffsetFetchResponse | None) -> None:
            self._on_where(partitions, invoked_ns, answer)

        request = OffsetFetchRequest(groups=[wanted], require_stable=True)
        self.ask_coordinator(request, OFFSET_FETCH_VERSION, OffsetFetchResponse, on_answer)

    def _on_where(self, partitions: list[TopicPartition], invoked_ns: int, answer: OffsetFetchResponse | None) -> None:
        group = None if answer is None else answer.groups[0]
        if group is None or group.error_code or any(each.error_code for each in _partitions(group)):
            if group is not None:
                self.is_elsewhere(group.error_code)
            still = [each for each in partitions if self.wants(each) and each not in self.positions]
            if still:
                self.later(self._ask_where, still)
            return
        for topic in group.topics:
            offsets = {each.partition_index: each.committed_offset for each in topic.partitions}
            self._note("ok", "read_committed_offset", topic.name, offsets, invoked_ns)
            for index, offset in offsets.items():
                self.truth.on_position(self.group, topic.name, index, offset)
                partition = TopicPartition(topic.name, index)
                if self.wants(partition) and partition not in self.positions:
                    self.positions[partition] = Position(partition, max(0, offset))
                    self.committed[partition] = max(0, offset)
                    self._note_assignment(self.positions[partition])
        self._fetch_all()

    # Committing

    def _commit_by_time(self) -> None:
        if not self.is_stopped:
            self.runtime.call_later(self.manners.commit_pause_s * (0.5 + self.random.random()), self._commit_by_time)
            if not self._is_committing:
                self.commit()

    def commit(self, then: Callable[[], object] | None = None) -> None:
        """Commit what has been processed since the last time; `then` is called whatever comes of it."""
        topics: dict[str, OffsetCommitRequestTopic] = {}
        self._tags += 1
        tag = Tag(self.process, self.member_id, self.generation, self._tags)
        for partition, position in self.positions.items():
            if position.offset > self.committed.get(partition, 0):
                at = OffsetCommitRequestPartition(
                    partition_index=partition.partition,
                    committed_offset=position.offset,
                    committed_metadata=tag.text(),
                )
                topics.setdefault(partition.topic, OffsetCommitRequestTopic(name=partition.topic)).partitions.append(at)
        if not topics or self.generation < 0:
            if then is not None:
                then()
            return
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=list(topics.values()),
        )
        self._sent.append(request)
        self._send_commit(request, tag, then)

    def send_late(self) -> None:
        """A commit of a generation that is over once more, as a network that kept it for long would deliver it."""
        if self._sent and self.random.random() < self.manners.late_share:
            request = self.random.choice(self._sent)
            tag = Tag.read(request.topics[0].partitions[0].committed_metadata)
            assert tag is not None
            self._send_commit(request, tag, None, is_late=True)

    def _send_commit(
        self, request: OffsetCommitRequest, tag: Tag, then: Callable[[], object] | None, *, is_late: bool = False
    ) -> None:
        wire = self._coordinator_wire()
        if wire is None:
            if then is not None:
                self.later(then)
            return
        invoked_ns, term = self.history.now_ns(), self._term
        self._is_committing = self._is_committing or not is_late

        def on_answer(answer: OffsetCommitResponse | None) -> None:
            # What came of a commit is part of the history, even if the member has given everything up since.
            is_void = term != self._term
            self._on_committed(request, tag, invoked_ns, answer, is_late=is_late or is_void)
            if then is not None and not is_void and not self.is_stopped:
                then()

        wire.ask(request, COMMIT_VERSION, OffsetCommitResponse, on_answer, timeout_s=REQUEST_TIMEOUT_S)

    def _on_committed(
        self,
        request: OffsetCommitRequest,
        tag: Tag,
        invoked_ns: int,
        answer: OffsetCommitResponse | None,
        *,
        is_late: bool,
    ) -> None:
        if not is_late:
            self._is_committing = False
        code = ErrorCode.REQUEST_TIMED_OUT if answer is None else answer.topics[0].partitions[0].error_code
        if code == ErrorCode.NONE:
            self._on_acknowledged(request, tag, invoked_ns)
            return
        is_certain = code in CERTAINLY_NOT_COMMITTED
        self.refused += is_certain
        self._note_commit(request, "fail" if is_certain else "info", invoked_ns, ErrorCode(code).name)
        if not is_certain:
            self._commit_again(request)
        if answer is None or self.is_elsewhere(code):
            self._coordinator = None
        elif code in self.fenced_by and not is_late and not self.is_zombie and tag.generation == self.generation:
            self.lose()

    def _on_acknowledged(self, request: OffsetCommitRequest, tag: Tag, invoked_ns: int) -> None:
        self.commits += 1
        self._note_commit(request, "ok", invoked_ns, "")
        for topic in request.topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                self.truth.on_acknowledged(tag, *partition)
                if partition in self.positions:
                    # A late one moves the position back if the partition was never lost; the next puts it right.
                    self.committed[partition] = each.committed_offset

    def _commit_again(self, request: OffsetCommitRequest) -> None:
        """It may have been carried out late, over a later one: nothing above it counts as committed."""
        for topic in request.topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                if partition in self.positions and self.committed[partition] >= each.committed_offset:
                    self.committed[partition] = each.committed_offset - 1

    def _note_commit(self, request: OffsetCommitRequest, outcome: Outcome, invoked_ns: int, error: str) -> None:
        for topic in request.topics:
            offsets = {each.partition_index: each.committed_offset for each in topic.partitions}
            self._note(outcome, "commit", topic.name, offsets, invoked_ns, error)

    def _note(
        self, outcome: Outcome, f: Function, topic: str, offsets: dict[int, int], invoked_ns: int, error: str = ""
    ) -> None:
        mops = tuple(Committed(self.group, f"{topic}-{index}", offset) for index, offset in offsets.items())
        self.history.ops.append(Op(self.process, outcome, f, mops, invoked_ns, self.history.now_ns(), error=error))

    # Fenced

    def lose(self) -> None:
        """Not a member any more: some hear it at once, some go on for a while."""
        if self.is_zombie:
            return
        if self.positions and self.random.random() < self.manners.zombie_share:
            self._term += 1
            self._is_committing = False
            self.is_zombie = True
            self._in_term(self.manners.zombie_s * self.random.random(), self._come_to_sense)
        else:
            self._come_to_sense()

    def _come_to_sense(self) -> None:
        self.give_up()
        self.on_fenced()

    def end(self) -> None:
        """Another has this member's place."""
        self.stop()
        self.kill()
        self.on_over(self)


def _partitions(group: OffsetFetchResponseGroup) -> list[OffsetFetchResponsePartitions]:
    return [each for topic in group.topics for each in topic.partitions]
