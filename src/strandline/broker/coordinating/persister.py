"""The state of share partitions for the parts of a broker that need it, wherever in the cluster it is kept.

Each operation goes to the share coordinator of its share partition: the leader of a partition of `__share_group_state`.
What is asked in one turn of the loop goes to one coordinator together. A coordinator that moved, loads or cannot be
reached is asked again, until `WAIT_S_MAX` is over. An operation may thus be carried out twice, which changes nothing:
writes merge, and epochs fence.

Operations of one share partition are carried out one after the other, in the order in which they were asked for.
Writes that wait are merged into one, so that a busy share partition has one record for many acknowledgements.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final
from uuid import UUID

from strandline.broker.coordinating.share_requests import VERSIONS, outcomes, state_request
from strandline.broker.environment import Environment
from strandline.broker.network.broker_channels import BrokerChannels
from strandline.coordinators.shares.coordinator_key import (
    SHARE_GROUP_STATE_TOPIC,
    coordinator_key,
    partition_of_share,
)
from strandline.coordinators.shares.events import (
    DeleteState,
    InitializeState,
    ReadState,
    StateAnswer,
    StateRequest,
    SummarizeState,
    WriteState,
)
from strandline.coordinators.shares.share_state import SharePartitionKey, ShareState, ShareSummary, StateBatch
from strandline.errors import ErrorCode
from strandline.handlers.support.auto_creation import create_missing
from strandline.handlers.support.context import BrokerServices
from strandline.runtime.runtime import TimerHandle

OnCode = Callable[[ErrorCode], object]
OnState = Callable[[ErrorCode, "ShareState | None"], object]
OnSummary = Callable[[ErrorCode, "ShareSummary | None"], object]

WAIT_S_MAX: Final = 20.0
"""Seconds until an operation is given up, with COORDINATOR_NOT_AVAILABLE."""
ANSWER_S: Final = 2.0
"""Seconds that a coordinator's answer may take longer than its own time limit for a write."""
BACKOFF_S: Final = 0.02
BACKOFF_S_MAX: Final = 0.5
LOOK_S: Final = 1.0
OPERATIONS_MAX: Final = 100_000
"""Operations that may be under way or wait; one more is refused."""
MERGED_BATCHES_MAX: Final = 5_000
"""Batches of writes that are merged into one."""
REQUEST_ELEMENTS_MAX: Final = 10_000
"""Share partitions and batches of one request; the others go with the next."""

_COMES_AGAIN: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


class Persister:
    """The client of the share coordinators. `on_done` is called exactly once, never before the method returns."""

    def __init__(self, environment: Environment, services: BrokerServices) -> None:
        self._environment = environment
        self._services = services
        self._runtime = environment.runtime
        self._lanes: dict[SharePartitionKey, _Lane] = {}
        self._count = 0
        self._due: dict[_Lane, None] = {}
        """Share partitions whose next operation is sent at the end of this turn."""
        self._retried: list[_Operation] = []
        """Operations that are tried again when the time has come."""
        self._channels = BrokerChannels(environment, "shares")
        """By broker, and whether it is for writes: what is asked on one connection is answered in its order."""
        self._looking: TimerHandle | None = None
        self._is_creating = False
        self._is_closed = False

    # ---- what other parts ask for

    def initialize(
        self, group_id: str, topic_id: UUID, partition: int, state_epoch: int, start_offset: int, on_done: OnCode
    ) -> None:
        """Begin the state of a share partition; a start offset of -1 leaves it to the leader to find one."""
        key = SharePartitionKey(group_id, topic_id, partition)
        self._put(lambda token: InitializeState(token, key, state_epoch, start_offset), _code_only(on_done))

    def read(self, group_id: str, topic_id: UUID, partition: int, leader_epoch: int, on_done: OnState) -> None:
        """Read the state for the leader of this epoch, and fence the leaders before it."""
        key = SharePartitionKey(group_id, topic_id, partition)
        self._put(lambda token: ReadState(token, key, leader_epoch), on_done)

    def write(
        self,
        group_id: str,
        topic_id: UUID,
        partition: int,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
        on_done: OnCode,
    ) -> None:
        """Store what changed; a start offset of -1 leaves it as it is. `on_done` is called when it is committed."""
        key = SharePartitionKey(group_id, topic_id, partition)
        self._put(
            lambda token: WriteState(
                token, key, state_epoch, leader_epoch, start_offset, delivery_complete_count, tuple(batches)
            ),
            _code_only(on_done),
        )

    def delete(self, group_id: str, topic_id: UUID, partition: int, on_done: OnCode) -> None:
        """Delete the state; there may be none."""
        key = SharePartitionKey(group_id, topic_id, partition)
        self._put(lambda token: DeleteState(token, key), _code_only(on_done))

    def summary(self, group_id: str, topic_id: UUID, partition: int, leader_epoch: int, on_done: OnSummary) -> None:
        """Read the state without its batches. No coordinator checks the leader epoch, as in Kafka."""
        key = SharePartitionKey(group_id, topic_id, partition)
        self._put(lambda token: SummarizeState(token, key), on_done)

    def close(self) -> None:
        """Give up everything that is under way."""
        self._is_closed = True
        if self._looking is not None:
            self._looking.cancel()
        self._channels.close()
        for lane in list(self._lanes.values()):
            for operation in lane.drain():
                self._finish(operation, StateAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE))

    # ---- operations of one share partition, in turn

    def _put(self, event: Callable[[_Operation], StateRequest], on_done: Callable[..., object]) -> None:
        if self._is_closed or self._count >= OPERATIONS_MAX:
            self._runtime.call_soon(on_done, ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
            return
        self._count += 1
        operation = _Operation(self, event, on_done, self._runtime.monotonic() + WAIT_S_MAX)
        key = operation.event.key
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key)
        operation.lane = lane
        lane.waiting.append(operation)
        if lane.under_way is None:
            self._send_soon(lane)
        if self._looking is None:
            self._looking = self._runtime.call_later(LOOK_S, self._look)

    def _send_soon(self, lane: _Lane) -> None:
        if not self._due:
            self._runtime.call_soon(self._send_due)
        self._due[lane] = None

    def _send_due(self) -> None:
        due, self._due = self._due, {}
        elsewhere: dict[tuple[int, type[StateRequest], str], list[_Operation]] = {}
        for lane in due:
            operation = lane.next()
            if operation is None or self._is_closed:
                continue
            leader = self._coordinator_of(lane)
            if leader is None:
                operation.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            elif leader == self._environment.node_id:
                self._services.share_coordinator.submit(lane.text, operation.event)
            else:
                kind = leader, type(operation.event), lane.key.group_id
                elsewhere.setdefault(kind, []).append(operation)
        for (leader, _, group_id), operations in elsewhere.items():
            for part in _parts(operations):
                self._ask(leader, group_id, part)

    def on_outcome(self, operation: _Operation, answer: StateAnswer) -> None:
        """Go on with the next operation of the share partition, or try this one again."""
        lane = operation.lane
        if lane.under_way is not operation:
            # It was given up before.
            return
        if answer.code is not ErrorCode.NONE and self._comes_again(answer.code, lane.key) and self._retry(operation):
            return
        lane.under_way = None
        self._go_on(lane)
        self._finish(operation, answer)

    def _retry(self, operation: _Operation) -> bool:
        """Try the operation again later; return False if its time will be over by then."""
        backoff_s = min(BACKOFF_S * 2 ** min(operation.attempts, 10), BACKOFF_S_MAX)
        backoff_s *= 0.8 + 0.4 * self._runtime.random.random()
        if self._runtime.monotonic() + backoff_s >= operation.deadline:
            return False
        operation.attempts += 1
        if not self._retried:
            # What fails together is tried again together.
            self._runtime.call_later(backoff_s, self._try_again)
        self._retried.append(operation)
        return True

    def _comes_again(self, code: ErrorCode, key: SharePartitionKey) -> bool:
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            # The coordinator may not know a new topic yet, which this broker knows.
            topic = self._environment.image().topic_by_id(key.topic_id)
            return topic is not None and 0 <= key.partition < len(topic.partitions)
        return code in _COMES_AGAIN

    def _try_again(self) -> None:
        retried, self._retried = self._retried, []
        for operation in retried:
            # Else it was given up, and the one behind it may be under way.
            if operation.lane.under_way is operation:
                self._send_soon(operation.lane)

    def _go_on(self, lane: _Lane) -> None:
        if lane.waiting:
            self._send_soon(lane)
        else:
            self._lanes.pop(lane.key, None)

    def _finish(self, operation: _Operation, answer: StateAnswer) -> None:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if answer.code in _COMES_AGAIN else answer.code
        operation.end()
        self._count -= len(operation.on_done)
        for on_done in operation.on_done:
            on_done(code, answer.value)

    def _look(self) -> None:
        """Give up what has waited for too long."""
        self._looking = self._runtime.call_later(LOOK_S, self._look) if self._lanes else None
        now = self._runtime.monotonic()
        for lane in list(self._lanes.values()):
            late = lane.take_late(now)
            if late and lane.under_way is None:
                self._go_on(lane)
            for operation in late:
                self._finish(operation, StateAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE))

    # ---- coordinators

    def _coordinator_of(self, lane: _Lane) -> int | None:
        """Return the broker that keeps the state, as this one knows it; None if there is none now."""
        topic = self._environment.image().topic_by_name(SHARE_GROUP_STATE_TOPIC)
        if topic is None:
            self._create_topic()
            return None
        partition = topic.partitions[partition_of_share(lane.text, partition_count=len(topic.partitions))]
        return partition.leader if partition.leader >= 0 else None

    def _create_topic(self) -> None:
        if not self._is_creating:
            self._is_creating = True
            create_missing(self._services, [SHARE_GROUP_STATE_TOPIC], self._on_topic)

    def _on_topic(self, refused: dict[str, int]) -> None:
        self._is_creating = False

    def _ask(self, leader: int, group_id: str, operations: list[_Operation]) -> None:
        kind = type(operations[0].event)
        channel = self._channels.find((leader, kind is WriteState), leader)
        if channel is None:
            for operation in operations:
                operation.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        request = state_request(group_id, [operation.event for operation in operations])
        timeout_s = self._environment.config().share_coordinator_write_timeout_ms / 1000 + ANSWER_S
        channel.ask(request, VERSIONS[kind], partial(self._on_response, kind, operations), timeout_s=timeout_s)

    def _on_response(
        self, kind: type[StateRequest], operations: list[_Operation], response: Any, error: BaseException | None
    ) -> None:
        if response is None:
            for operation in operations:
                operation.refuse(ErrorCode.NETWORK_EXCEPTION)
            return
        found = outcomes(kind, response)
        for operation in operations:
            _, topic_id, partition = operation.lane.key
            answer = found.get((topic_id, partition))
            operation.answer(StateAnswer(ErrorCode.UNKNOWN_SERVER_ERROR) if answer is None else answer)


class _Operation:
    """What was asked for, as the token of its event; merged writes are one operation with several callbacks."""

    __slots__ = ("_persister", "attempts", "deadline", "event", "lane", "on_done")

    lane: _Lane

    def __init__(
        self,
        persister: Persister,
        event: Callable[[_Operation], StateRequest],
        on_done: Callable[..., object],
        deadline: float,
    ) -> None:
        self._persister = persister
        self.event = event(self)
        self.on_done = [on_done]
        self.deadline = deadline
        self.attempts = 0

    def answer(self, response: StateAnswer) -> None:
        self._persister.on_outcome(self, response)

    def end(self) -> None:
        """Let go of the event, whose token this is: the two would keep each other until the garbage collector comes."""
        del self.event

    def refuse(self, code: ErrorCode) -> None:
        self._persister.on_outcome(self, StateAnswer(code))


class _Lane:
    """The operations of one share partition: one is under way, the others wait."""

    __slots__ = ("key", "text", "under_way", "waiting")

    def __init__(self, key: SharePartitionKey) -> None:
        self.key = key
        self.text = coordinator_key(key)
        self.under_way: _Operation | None = None
        self.waiting: deque[_Operation] = deque()

    def next(self) -> _Operation | None:
        """Return the operation to send: the one that is tried again, or the first that waits, with writes behind it."""
        if self.under_way is None and self.waiting:
            operation = self.under_way = self.waiting.popleft()
            if isinstance(operation.event, WriteState):
                self._merge_writes(operation, operation.event)
        return self.under_way

    def _merge_writes(self, operation: _Operation, first: WriteState) -> None:
        batches, start_offset, last = list(first.batches), first.start_offset, first
        while self.waiting and len(batches) < MERGED_BATCHES_MAX:
            event = self.waiting[0].event
            if not isinstance(event, WriteState) or _epochs(event) != _epochs(first):
                break
            merged = self.waiting.popleft()
            batches.extend(event.batches)
            start_offset, last = max(start_offset, event.start_offset), event
            operation.on_done.extend(merged.on_done)
            operation.deadline = merged.deadline
            merged.end()
        if last is not first:
            operation.event = replace(last, token=operation, start_offset=start_offset, batches=tuple(batches))

    def take_late(self, now: float) -> list[_Operation]:
        """Take out the operations whose time is over."""
        late = []
        if self.under_way is not None and self.under_way.deadline <= now:
            late.append(self.under_way)
            self.under_way = None
        while self.waiting and self.waiting[0].deadline <= now:
            late.append(self.waiting.popleft())
        return late

    def drain(self) -> Iterable[_Operation]:
        left = [*([] if self.under_way is None else [self.under_way]), *self.waiting]
        self.under_way = None
        self.waiting.clear()
        return left


def _epochs(event: WriteState) -> tuple[int, int]:
    return event.state_epoch, event.leader_epoch


def _parts(operations: list[_Operation]) -> Iterable[list[_Operation]]:
    """Cut the operations into requests that a coordinator takes."""
    part: list[_Operation] = []
    elements = 0
    for operation in operations:
        event = operation.event
        size = 2 + (len(event.batches) if isinstance(event, WriteState) else 0)
        if part and elements + size > REQUEST_ELEMENTS_MAX:
            yield part
            part, elements = [], 0
        part.append(operation)
        elements += size
    yield part


def _code_only(on_done: OnCode) -> Callable[[ErrorCode, object], object]:
    return lambda code, _: on_done(code)
