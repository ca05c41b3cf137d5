"""What the APIs of the share coordinator have in common: one group, many partitions, an outcome for each of them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import starmap
from typing import Any, Final

from strandline.coordinators.shares.coordinator_key import coordinator_key
from strandline.coordinators.shares.events import StateAnswer, StateRequest
from strandline.coordinators.shares.share_state import SharePartitionKey
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext
from strandline.runtime.runtime import TimerHandle
from strandline.runtime.time_slicing import gradually

_MESSAGES: Final = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is loading and hence can't process requests.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.NOT_COORDINATOR: "This is not the correct coordinator.",
}

MakeEvent = Callable[["PartWait", SharePartitionKey, Any], StateRequest]
"""Makes the event from its token, the share partition and the part of the request."""


def ask_each(context: RequestContext, request: Any, event: MakeEvent, then: Callable[[list[Any]], object]) -> None:
    """Ask the shard of each share partition. Call `then` with an entry for each topic: its id, and its answers.

    As in Kafka the list is empty if the group has no name, or a topic of the request no partitions.
    """
    if not request.group_id or not all(topic.partitions for topic in request.topics):
        then([])
        return
    whole = _Whole(context, lambda answers: then(_by_topic(request, answers)))

    def ask(topic_id: Any, part: Any) -> None:
        key = SharePartitionKey(request.group_id, topic_id, part.partition)
        context.node.share_coordinator.submit(coordinator_key(key), event(whole.next_part(), key, part))

    parts = ((topic.topic_id, part) for topic in request.topics for part in topic.partitions)
    gradually(context.node.runtime, starmap(ask, parts), whole.end)


def _by_topic(request: Any, answers: list[StateAnswer]) -> list[Any]:
    left = iter(answers)
    return [(topic.topic_id, [(part.partition, next(left)) for part in topic.partitions]) for topic in request.topics]


class PartWait:
    """The wait for the outcome of one share partition."""

    __slots__ = ("_whole", "outcome")

    def __init__(self, whole: _Whole) -> None:
        self._whole = whole
        self.outcome: StateAnswer | None = None

    def answer(self, response: StateAnswer) -> None:
        if self.outcome is None:
            self.outcome = response
            self._whole.on_part()

    def refuse(self, code: ErrorCode) -> None:
        self.answer(StateAnswer(code, _MESSAGES.get(code)))


class _Whole:
    """The outcomes of a request, complete when all are there or the time of a write is over."""

    def __init__(self, context: RequestContext, then: Callable[[list[StateAnswer]], object]) -> None:
        self._node = context.node
        self._then = then
        self._parts: list[PartWait] = []
        self._missing = 1
        self._timer: TimerHandle | None = None

    def next_part(self) -> PartWait:
        part = PartWait(self)
        self._parts.append(part)
        self._missing += 1
        return part

    def end(self, _: object) -> None:
        """Finish: no more parts will be asked for."""
        if self._missing > 1:
            timeout_s = self._node.config.share_coordinator_write_timeout_ms / 1000
            self._timer = self._node.runtime.call_later(timeout_s, self._expire)
        self.on_part()

    def on_part(self) -> None:
        self._missing -= 1
        if not self._missing:
            if self._timer is not None:
                self._timer.cancel()
            self._then([part.outcome for part in self._parts if part.outcome is not None])

    def _expire(self) -> None:
        """Answer although appends may still be committed: the broker that asked repeats its request."""
        self._timer = None
        for part in self._parts:
            part.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
